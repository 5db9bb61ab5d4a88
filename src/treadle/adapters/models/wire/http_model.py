"""One call of a model over HTTP: where it goes and with which key, send, read on, and ask again without what the server
refused by name. The base of adapters that differ in the bytes of a request and in the reading of an answer; knows no
protocol itself."""

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, TypedDict
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from treadle.adapters.models.base import ModelBase
from treadle.adapters.models.keys import Secret
from treadle.adapters.models.reasoning_effort import named_levels
from treadle.adapters.models.wire.encoder import NO_PICTURES, NONE_REFUSED, RequestEncoder
from treadle.adapters.models.wire.failures import is_refusal, refuses
from treadle.adapters.models.wire.http import Http, host_of, server_of
from treadle.adapters.models.wire.reading import AnswerReader
from treadle.base.file_system import faultpoint
from treadle.errors import ModelError
from treadle.ports.model import Memo, ModelInfo, ModelRequest
from treadle.protocol.deltas import Delta, NoticeDelta, UsageDelta


class Access(NamedTuple):
    base_url: str
    key: Secret
    headers: Mapping[str, str] = {}
    key_header: str = ""  # where the key stands; empty: it is a bearer token


class Endpoint(Protocol):
    """The address and key of a model's calls. Some must fetch a token first, and another when it is refused (M-11)."""

    async def access(self, request: ModelRequest) -> Access:
        """Where this request goes. ModelError when there is no way to it."""
        ...

    def refused(self, access: Access, error: ModelError) -> bool:
        """Report a refused access. Return True if another may be available. Called once per call of the model."""
        return False


class FixedEndpoint(Endpoint):
    def __init__(self, access: Access) -> None:
        self._access = access

    def __repr__(self) -> str:
        return repr(self._access.base_url)

    async def access(self, request: ModelRequest) -> Access:
        return self._access


class ConnectionOptions(TypedDict, total=False):
    """How a model is reached: by an address, a key and headers, or by an endpoint that finds them for each call."""

    base_url: str
    api_key: str | Secret
    headers: Mapping[str, str] | None
    endpoint: Endpoint
    http: Http


MENDS = 12  # how often one call is made again without what was refused of it; no server has so much to refuse
_ABOUT_PICTURES = re.compile(r"image|picture|vision|multi-?modal|inline_?data|media.?type", re.I)


class HttpModel(ModelBase, ABC):
    """One model behind one base URL, or behind an endpoint of its own. It makes one call at a time, as the port says;
    the engine retries and records. Subclasses define the request and the reader of the answer."""

    base_url: ClassVar[str] = ""  # the provider's own address
    path: str  # the path after the base URL
    key_header: ClassVar[str] = ""
    headers: ClassVar[Mapping[str, str]] = {}  # sent with each request
    start_hint: str = ""  # the command that starts a server on the user's machine
    effort_words: ClassVar[Sequence[tuple[str, str]]] = ()
    """The parameters that tell the reasoning effort, each with a pattern of what servers call it in refusals."""
    _encoder: RequestEncoder

    def __init__(self, info: ModelInfo, connection: ConnectionOptions) -> None:
        super().__init__(info)
        key = connection.get("api_key", "")
        self._access = Access(
            self._base(connection.get("base_url", self.base_url)),
            key if isinstance(key, Secret) else Secret(key),
            {**self.headers, **(connection.get("headers") or {})},
            self.key_header,
        )
        self._endpoint = connection.get("endpoint") or FixedEndpoint(self._access)
        http = connection.get("http")
        self._http = http or Http()
        self._owns_http = http is None
        self._blind: WeakKeyDictionary[Memo, Memo] = WeakKeyDictionary()
        """Conversations whose pictures were refused, and memos for their bytes without them."""
        self._refused: set[str] = set()  # parameters that this model is no longer sent

    @classmethod
    def _base(cls, url: str) -> str:
        """A base URL as it was given, without what `path` adds to it."""
        return url.rstrip("/").removesuffix(cls.path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._info.ref!r}, {self._endpoint!r})"

    async def close(self) -> None:
        if self._owns_http:
            await self._http.close()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        original_request = await self._begin(request)
        refused, mends = False, 0
        old_refused = frozenset(self._refused) if self._refused else NONE_REFUSED
        efforts = self._server_efforts
        while True:
            request = original_request
            if not self._info.vision or request.memo in self._blind:
                memo = self._blind.get(request.memo, request.memo)
                request = replace(request, pictures=NO_PICTURES, memo=memo)
            request, notices = self._fit_effort(request)
            if notices:
                yield notices
            access = await self._endpoint.access(request)
            url = access.base_url + self.path
            parameters = self._parameters(request)
            body = self._encoder.body(parameters, request)
            has_output = False
            try:
                response = await self._http.post(url, access.headers, body, access.key, key_header=access.key_header)
                with response as reply:
                    reader = self._reader(host_of(url))
                    reader.server = server_of(url)
                    reader.sent = parameters
                    while not reader.done:
                        chunk = await (reply.read() if reader.finish_reason is None else reply.read_on())
                        if not chunk:
                            break
                        deltas = reader.feed(chunk)
                        has_output = has_output or any(type(delta) is not UsageDelta for delta in deltas)
                        if deltas:  # a server that merely keeps the line open is silent (L-12)
                            yield deltas
                    faultpoint("models.streamed")
                    yield reader.end()
                    if reader.done:
                        await reply.leave()
                    return
            except ModelError as error:
                if not has_output and not refused and self._endpoint.refused(access, error):
                    refused = True
                    continue
                mends += 1
                notice = None
                if not has_output and mends <= MENDS:
                    notice = self._look_away(error, original_request) or self._mend_effort(error, parameters, request)
                    notice = notice or self._mend(error, parameters, request)
                if notice is None:
                    if is_refusal(error):
                        # It failed without the refused parameters, too: they were not the cause. Restore them.
                        self._refused &= old_refused
                        self._server_efforts = efforts
                    raise self._explained(error, has_output=has_output) from error.__cause__
            yield [notice]

    def _look_away(self, error: ModelError, request: ModelRequest) -> NoticeDelta | None:
        """A picture that a server does not take must not end a conversation: it goes on without."""
        about = error.kind == "bad_request" and _ABOUT_PICTURES.search(str(error))
        if not about or not request.pictures or request.memo in self._blind or not self._info.vision:
            return None
        self._blind[request.memo] = Memo()  # the other one holds the bytes of the pictures
        return self._notice("pictures_dropped", "refuses the pictures; it goes on without them")

    def _mend_effort(
        self, error: ModelError, sent_params: Mapping[str, Any], request: ModelRequest
    ) -> NoticeDelta | None:
        """If the server refused the reasoning effort, take a level that it names, or go without."""
        effort = request.effort
        about = error.param or str(error)
        if not effort or not any(
            name in sent_params and re.search(words, about, re.I) and refuses(error, name, words)
            for name, words in self.effort_words
        ):
            return None
        levels = tuple(level for level in named_levels(str(error)) if level != effort)
        self._server_efforts = levels
        self._told_efforts.pop(request.memo, None)  # which level is sent instead is told when it is
        levels_text = f"the levels {', '.join(levels)}" if levels else "no reasoning effort"
        return self._notice("effort", f"refuses the reasoning effort {effort}; it takes {levels_text}")

    async def _begin(self, request: ModelRequest) -> ModelRequest:
        """The request as it is to be made, once all is known that must be."""
        return request

    @abstractmethod
    def _parameters(self, request: ModelRequest) -> dict[str, Any]:
        """Return the parameters of the request beside the conversation and the tools."""

    @abstractmethod
    def _reader(self, host: str) -> AnswerReader: ...

    @abstractmethod
    def _mend(self, error: ModelError, sent_params: Mapping[str, Any], request: ModelRequest) -> NoticeDelta | None:
        """Leave out what the server refused by name and say so (M-01); None when asking again cannot help."""

    def _explained(self, error: ModelError, *, has_output: bool) -> ModelError:
        """The failure, in words that help; `heard` when a part of the answer came before it."""
        if not error.unreachable:
            return error
        message = f"{error}; no server listens there: {self.start_hint or 'start it, or check the base URL'}"
        return ModelError(error.kind, message, unreachable=True)

    def _select_parameters(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in params.items() if value is not None and name not in self._refused}

    def _drop(self, name: str) -> NoticeDelta:
        """Go without a parameter from now on; if that does not help, only this once."""
        self._refused.add(name)
        return self._notice("parameter_dropped", f"refuses {name}; it is no longer sent")
