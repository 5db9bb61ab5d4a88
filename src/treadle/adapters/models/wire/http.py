"""HTTP to providers: requests with a key, every failure as a ModelError, and one call of a model: send, read on, and
ask again without what the server refused by name. The base of adapters that differ in the bytes of a request and in the
reading of an answer; knows no protocol itself. `treadle.base.http` does the rest."""

import asyncio
import errno
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypedDict
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from treadle.adapters.models.base import ModelBase, parse_levels
from treadle.adapters.models.keys import Secret
from treadle.adapters.models.wire.encoder import NO_PICTURES, NONE_REFUSED, RequestEncoder
from treadle.adapters.models.wire.failures import is_refusal, is_refusal_of, make_error
from treadle.adapters.models.wire.reading import ANSWER_BYTES, AnswerReader, make_limit_error
from treadle.base.file_system import reach_faultpoint
from treadle.base.http.client import DamagedBody, HttpClient, HttpResponse, UnknownEncoding
from treadle.base.http.connection import CONNECT_S, CutOff, InvalidAddress
from treadle.errors import ModelError
from treadle.ports.model import Memo, ModelInfo, ModelRequest
from treadle.protocol.deltas import Delta, NoticeDelta, UsageDelta

BODY_CAP = 64 * 1024  # how much of a refusal is read
DOCUMENT_CAP = 16 * 1024 * 1024  # how large a document may be that is read as a whole
AFTER_FINISH_S = 10.0  # for the closing words of a server (usage, an end mark) once it gave its finish reason
CLOSE_S = 0.05  # how long to wait for the end of the body after the end mark, so that the connection can be used again


class ProviderResponse:
    """An answer, as its bytes come in. Holds the connection as long as its block runs; leaving early drops it."""

    def __init__(self, host: str, response: HttpResponse) -> None:
        self._host, self._response = host, response
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.__exit__()

    async def read(self) -> bytes:
        """Return the data that arrived since the last call; empty at the end."""
        try:
            data = await self._response.read()
        except OSError as error:
            raise _make_connection_error(self._host, error) from error
        self._size += len(data)
        if self._size > ANSWER_BYTES:
            raise make_limit_error(self._host, "an answer", ANSWER_BYTES)
        return data

    async def read_on(self, seconds: float) -> bytes:
        """As `read`, once the answer is finished: silence is as good as the end."""
        try:
            async with asyncio.timeout(seconds):
                return await self.read()
        except (ModelError, OSError):  # time-outs are OSErrors
            return b""

    async def leave(self) -> None:
        """Give the server a moment to end the body after its last word."""
        if not self._response.is_at_eof():
            await self.read_on(CLOSE_S)


class Http:
    """The connections of one registry; they belong to the event loop in which they were made."""

    def __init__(self) -> None:
        self._client = HttpClient()

    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, key: Secret, *, key_header: str = ""
    ) -> ProviderResponse:
        """The key goes nowhere else: into the header of this name, or as a bearer token."""
        return await self._send("POST", url, {"Content-Type": "application/json", **headers}, body, key, key_header)

    async def get(self, url: str, headers: Mapping[str, str], key: Secret, *, key_header: str = "") -> bytes:
        """Fetch a whole document. The timeout is that of a connection, because no watchdog checks for silence."""
        document = bytearray()
        try:
            async with asyncio.timeout(CONNECT_S):
                with await self._send("GET", url, headers, None, key, key_header) as reply:
                    while piece := await reply.read():
                        document += piece
                        if len(document) > DOCUMENT_CAP:
                            raise ModelError("bad_request", f"{format_host(url)} answered with more than can be read")
        except TimeoutError as error:
            raise ModelError("network", f"{format_host(url)} did not answer within {CONNECT_S:g} seconds") from error
        return bytes(document)

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, key: Secret, key_header: str
    ) -> ProviderResponse:
        host = format_host(url)
        all_headers = dict(headers)
        if key:
            all_headers[key_header or "Authorization"] = key.reveal() if key_header else f"Bearer {key.reveal()}"
        reach_faultpoint("models.request")
        try:
            response = await self._client.request(method, url, all_headers, body)
        except UnknownEncoding as error:
            message = f"{host} compressed its answer ({error}), which was not asked for"
            raise ModelError("bad_request", message) from error
        except OSError as error:
            raise _make_connection_error(host, error, key) from error
        except InvalidAddress as error:
            raise ModelError("bad_request", f"{host} is no address of a server; check the base URL") from error
        except ValueError as error:  # also from the names of hosts
            raise ModelError("bad_request", f"{host} cannot be asked: {error}") from error
        reply = ProviderResponse(host, response)
        if response.status == 200:
            return reply
        with reply:
            raise await _read_refusal(host, response, reply, key)

    async def close(self) -> None:
        await self._client.close()


def parse_server(url: str) -> tuple[str, int]:
    """The address and port of a URL; empty and 0 if it has none that can be read."""
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0)
    except ValueError:
        return "", 0


def hide_credentials(url: str) -> str:
    """The address without a user and password, for people and logs (M-13)."""
    return re.sub(r"//[^/]*@", "//", url)


def format_host(url: str) -> str:
    """The part of an address that people are told."""
    return hide_credentials(url).split("/")[2] if "://" in url else url


def _make_connection_error(host: str, error: OSError, key: Secret | None = None) -> ModelError:
    if isinstance(error, DamagedBody):
        return ModelError("cut_stream", f"{host} sent a compressed answer that is damaged")
    if isinstance(error, CutOff):
        return ModelError("cut_stream", f"{host} broke off in the middle of its answer")
    if isinstance(error, TimeoutError) and not str(error):
        return ModelError("network", f"{host} cannot be reached: no answer within {CONNECT_S:g} seconds")
    reason = str(error) or type(error).__name__
    # Where a name has several addresses, asyncio joins the errors of all in one text.
    refused = isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in reason
    message = f"{host} cannot be reached: {key.redact(reason) if key else reason}"
    return ModelError("network", message, unreachable=refused)


async def _read_refusal(host: str, response: HttpResponse, reply: ProviderResponse, key: Secret) -> ModelError:
    """The error that a status other than 200 stands for. The body is read as far as it helps."""
    body = bytearray()
    try:
        async with asyncio.timeout(CONNECT_S):
            while len(body) < BODY_CAP and (piece := await reply.read()):
                body += piece
    except (ModelError, OSError):
        pass  # the status alone says enough
    redacted = key.redact(bytes(body[:BODY_CAP]).decode("utf-8", "replace")).encode()
    error = make_error(host, response.status, redacted, response.headers)
    if not response.redirect:
        return error
    reason = f"{error}; it" if body.strip() else f"{host} answered {response.status}: it"
    message = f"{reason} redirects to {key.redact(response.redirect[:500])}, which is not followed; check the base URL"
    return ModelError("bad_request", message, status=response.status)


class Access(NamedTuple):
    base_url: str
    key: Secret
    headers: Mapping[str, str] = {}
    key_header: str = ""  # where the key stands; empty: it is a bearer token


class Endpoint(Protocol):
    """The address and key of a model's calls. Some must fetch a token first, and another when it is refused (M-11)."""

    async def prepare_access(self, request: ModelRequest) -> Access:
        """Where this request goes. ModelError when there is no way to it."""
        ...

    def report_refusal(self, access: Access, error: ModelError) -> bool:
        """Report a refused access. Return True if another may be available. Called once per call of the model."""
        return False


class HttpOptions(TypedDict, total=False):
    """How a model is reached: by an address, a key and headers, or by an endpoint that finds them for each call."""

    base_url: str
    api_key: str | Secret
    headers: Mapping[str, str] | None
    endpoint: Endpoint
    http: Http


MENDS = 12  # how often one call is made again without what was refused of it; no server has so much to refuse
_ABOUT_PICTURES = re.compile(r"image|picture|vision|multi-?modal|inline_?data|media.?type", re.I)


class HttpModel(ModelBase, ABC):
    """It makes one call at a time, as the port says; the engine retries and records."""

    base_url: ClassVar[str] = ""  # the provider's own address
    path: str  # the path after the base URL
    key_header: ClassVar[str] = ""
    headers: ClassVar[Mapping[str, str]] = {}  # sent with each request
    start_hint: str = ""  # the command that starts a server on the user's machine
    # The parameters that tell the reasoning effort, each with a pattern of what servers call it in refusals.
    effort_words: ClassVar[Sequence[tuple[str, str]]] = ()
    reader: Callable[[str, ModelInfo], AnswerReader]
    _encoder: RequestEncoder

    def __init__(self, info: ModelInfo, options: HttpOptions) -> None:
        super().__init__(info)
        key = options.get("api_key", "")
        base_url = self._normalize_base_url(options.get("base_url", self.base_url))
        headers = {**self.headers, **(options.get("headers") or {})}
        self._access = Access(base_url, key if isinstance(key, Secret) else Secret(key), headers, self.key_header)
        self._endpoint = options.get("endpoint")
        self._http = options.get("http") or Http()
        self._owns_http = options.get("http") is None
        # Conversations whose pictures were refused, and memos for their bytes without them.
        self._blind: WeakKeyDictionary[Memo, Memo] = WeakKeyDictionary()
        self._refused: set[str] = set()  # parameters that this model is no longer sent

    @classmethod
    def _normalize_base_url(cls, url: str) -> str:
        """A base URL as it was given, without what `path` adds to it."""
        return url.rstrip("/").removesuffix(cls.path)

    def __repr__(self) -> str:
        address = self._endpoint or hide_credentials(self._access.base_url)
        return f"{type(self).__name__}({self._info.ref!r}, {address!r})"

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
                request = replace(request, pictures=NO_PICTURES, memo=self._blind.get(request.memo, request.memo))
            request, notices = self._fit_effort(request)
            if notices:
                yield notices
            access = self._access if self._endpoint is None else await self._endpoint.prepare_access(request)
            url = access.base_url + self.path
            parameters = self._build_parameters(request)
            body = self._encoder.encode_body(parameters, request)
            has_output = False
            try:
                response = await self._http.post(url, access.headers, body, access.key, key_header=access.key_header)
                with response as reply:
                    reader = self.reader(format_host(url), self._info)
                    reader.server, reader.sent = parse_server(url), parameters
                    while not reader.done:
                        chunk = await (reply.read() if reader.finish_reason is None else reply.read_on(AFTER_FINISH_S))
                        if not chunk:
                            break
                        deltas = reader.feed(chunk)
                        has_output = has_output or any(type(delta) is not UsageDelta for delta in deltas)
                        if deltas:  # a server that merely keeps the line open is silent (L-12)
                            yield deltas
                    reach_faultpoint("models.streamed")
                    yield reader.end()
                    if reader.done:
                        await reply.leave()
                    return
            except ModelError as error:
                if self._endpoint and not has_output and not refused and self._endpoint.report_refusal(access, error):
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
                    raise self._explain_error(error, has_output=has_output) from error.__cause__
            yield [notice]

    def _look_away(self, error: ModelError, request: ModelRequest) -> NoticeDelta | None:
        """A picture that a server does not take must not end a conversation: it goes on without."""
        about = error.kind == "bad_request" and _ABOUT_PICTURES.search(str(error))
        if not about or not request.pictures or request.memo in self._blind or not self._info.vision:
            return None
        self._blind[request.memo] = Memo()  # the other one holds the bytes of the pictures
        return self._make_notice("pictures_dropped", "refuses the pictures; it goes on without them")

    def _mend_effort(self, error: ModelError, params: Mapping[str, Any], request: ModelRequest) -> NoticeDelta | None:
        """If the server refused the reasoning effort, take a level that it names, or go without."""
        effort = request.effort
        about = error.param or str(error)
        if not effort or not any(
            name in params and re.search(words, about, re.I) and is_refusal_of(error, name, words)
            for name, words in self.effort_words
        ):
            return None
        levels = tuple(level for level in parse_levels(str(error)) if level != effort)
        self._server_efforts = levels
        self._told_efforts.pop(request.memo, None)  # which level is sent instead is told when it is
        levels_text = f"the levels {', '.join(levels)}" if levels else "no reasoning effort"
        return self._make_notice("effort", f"refuses the reasoning effort {effort}; it takes {levels_text}")

    async def _begin(self, request: ModelRequest) -> ModelRequest:
        """The request as it is to be made, once all is known that must be."""
        return request

    @abstractmethod
    def _build_parameters(self, request: ModelRequest) -> dict[str, Any]:
        """All but the conversation and the tools."""

    @abstractmethod
    def _mend(self, error: ModelError, sent_params: Mapping[str, Any], request: ModelRequest) -> NoticeDelta | None:
        """Leave out what the server refused by name and say so (M-01); None when asking again cannot help."""

    def _explain_error(self, error: ModelError, *, has_output: bool) -> ModelError:
        """The failure, in words that help; `has_output` when a part of the answer came before it."""
        if not error.unreachable:
            return error
        message = f"{error}; no server listens there: {self.start_hint or 'start it, or check the base URL'}"
        return ModelError(error.kind, message, unreachable=True)

    def _select_parameters(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in params.items() if value is not None and name not in self._refused}

    def _drop(self, name: str) -> NoticeDelta:
        """Go without a parameter from now on; if that does not help, only this once."""
        self._refused.add(name)
        return self._make_notice("parameter_dropped", f"refuses {name}; it is no longer sent")
