"""Chat Completions: OpenAI and every server that speaks its language (M-01). Makes one call at a time, as the port
says; retries and records are the engine's business."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from treadle.errors import ModelError
from treadle.faultpoint import faultpoint
from treadle.models.catalog import look_up
from treadle.models.keys import Secret
from treadle.models.openai_request import Encoder
from treadle.models.openai_stream import StreamReader
from treadle.models.surroundings import Surroundings
from treadle.models.wire.http import Http
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.deltas import Delta, NoticeDelta

BASE_URL = "https://api.openai.com/v1"

_OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


class OpenAIChat:
    """One model behind one base URL."""

    def __init__(
        self,
        info: ModelInfo,
        *,
        base_url: str = BASE_URL,
        api_key: str | Secret = "",
        headers: Mapping[str, str] | None = None,
        http: Http | None = None,
    ) -> None:
        self._info = info
        self._url = base_url.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"
        self._where = self._url.split("/")[2] if "://" in self._url else self._url
        self._key = api_key if isinstance(api_key, Secret) else Secret(api_key)
        self._headers = dict(headers or {})
        self._http = http or Http()
        self._owns_http = http is None
        self._encoder = Encoder()
        # The newer name is the only one that all of OpenAI's own models take; elsewhere it is often unknown.
        self._limit_name = "max_completion_tokens" if self._where == "api.openai.com" else "max_tokens"
        self._refused: set[str] = set()

    def __repr__(self) -> str:
        return f"OpenAIChat({self._info.ref!r}, {self._url!r})"

    @property
    def info(self) -> ModelInfo:
        return self._info

    async def close(self) -> None:
        if self._owns_http:
            await self._http.close()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        while True:
            parameters = self._parameters(request)
            body = self._encoder.body(parameters, request)
            heard = False
            try:
                async with self._http.post(self._url, self._headers, body, self._key) as reply:
                    reader = StreamReader(self._where)
                    while not reader.done and (chunk := await reply.read_on(finished=reader.finish_reason is not None)):
                        if deltas := reader.feed(chunk):
                            heard = True
                            yield deltas
                    faultpoint("models.streamed")
                    yield reader.end()
                    if reader.done:
                        await reply.leave()
                    return
            except ModelError as error:
                notice = None if heard else self._drop_refused(error, parameters)
                if notice is None:
                    raise
            yield [notice]

    def _parameters(self, request: ModelRequest) -> dict[str, Any]:
        temperature = self._info.temperature if request.temperature is None else request.temperature
        wanted = {
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": temperature,
            self._limit_name: request.max_tokens or self._info.max_output or None,
        }
        kept = {name: value for name, value in wanted.items() if value is not None and name not in self._refused}
        return {"model": self._info.name, **kept}

    def _drop_refused(self, error: ModelError, sent: Mapping[str, Any]) -> NoticeDelta | None:
        """If the server refused a parameter by name, go without it for good and say so (M-01). A refused name of
        the output limit is first tried by its other name. Each refusal leaves less to refuse, so this ends."""
        if error.kind != "bad_request" or error.status not in (400, 422):
            return None
        said = str(error)
        for name in sent:
            if name in ("model", "stream") or name not in said:
                continue
            self._refused.add(name)
            other = _OTHER_NAME.get(name, "")
            if other and other not in self._refused:
                self._limit_name = other
                return NoticeDelta("parameter_renamed", f"{self._info.ref} takes {other} instead of {name}")
            return NoticeDelta("parameter_dropped", f"{self._info.ref} refuses {name}; it is no longer sent")
        return None


def connect(name: str, around: Surroundings) -> OpenAIChat:
    key, url = around.access(f"openai:{name}", "OPENAI_API_KEY", "OPENAI_BASE_URL")
    return OpenAIChat(look_up("openai", name), base_url=url or BASE_URL, api_key=key, http=around.http)
