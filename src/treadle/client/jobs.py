"""The background commands of a chat over HTTP, `chat.jobs()`. Only the server on whose machine a job runs can reach it:
ApiError `job_elsewhere` from the others."""

from treadle.client.http import Http
from treadle.protocol.http_answers import Accepted, JobList
from treadle.protocol.views import JobChanges, JobOutput, JobView

TAIL = 16_000


class ClientJob:
    """One job. `view` is what was known when it was last asked about."""

    def __init__(self, http: Http, at: str, view: JobView) -> None:
        self.view = view
        self._http = http
        self._at = f"{at}/jobs/{view.job}"

    async def tail(self, offset: int = -TAIL) -> JobOutput:
        """Return the output from a byte on; a negative offset counts from the end. Continue from `next`."""
        return await self._http.get(f"{self._at}/output", JobOutput, {"offset": str(offset)})

    async def send(self, text: str = "", *, enter: bool = True, end: bool = False) -> JobView:
        """Write to its input, with a line end behind it unless `enter` is false; `end` closes the input."""
        payload = {"text": text, "enter": enter, "end": end}
        self.view = await self._http.change("POST", f"{self._at}/input", payload, JobView)
        return self.view

    async def stop(self) -> JobView:
        """End it with everything it started."""
        self.view = await self._http.change("POST", f"{self._at}/stop", {}, JobView)
        return self.view

    async def changes(self) -> JobChanges:
        """Its changes that are not committed, once it has ended."""
        return await self._http.get(f"{self._at}/changes", JobChanges)

    async def commit(self) -> Accepted:
        """Commit its changes to the project; the chat's log tells the outcome."""
        return await self._http.change("POST", f"{self._at}/commit", {}, Accepted)

    async def discard(self) -> JobView:
        """Discard its changes that are not committed, once it has ended."""
        self.view = await self._http.change("POST", f"{self._at}/discard", {}, JobView)
        return self.view


async def jobs_of(http: Http, at: str) -> list[ClientJob]:
    return [ClientJob(http, at, view) for view in (await http.get(f"{at}/jobs", JobList)).jobs]
