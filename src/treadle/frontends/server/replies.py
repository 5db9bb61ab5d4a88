"""The replies of the API: bytes, views, errors with a stable code each, and the answer that is remembered under an
Idempotency-Key in the commit of its request (A-04). A refusal is not remembered: it changed nothing."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec
from starlette.responses import Response

from treadle import errors
from treadle.base.logs import log_error, log_traceback
from treadle.chat.state import ChatState, build_summary, compute_status, get_failure, list_open_actions
from treadle.engine.log import Answer
from treadle.errors import REFUSALS, AlreadyAnswered, RefusalCode, TreadleError
from treadle.ports.store import ANSWER_MS, Listed, Remembered, Store
from treadle.protocol import http_answers as a
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, UserEntry
from treadle.protocol.views import ChatSummary, Status, get_shown_status
from treadle.protocol.wire import format_time, to_wire_form

JSON = "application/json"
ProblemCode = Literal[
    "invalid_json", "bad_request", "unauthorized", "forbidden_host", "forbidden_origin", "operators_only",
    "not_found", "method_not_allowed", "request_timeout", "too_large", "unsupported_media_type",
    "idempotency_mismatch", "too_many_streams", "too_many_tries", "internal", "draining",
]  # fmt: skip

PROBLEMS: dict[ProblemCode, tuple[int, str]] = {
    "invalid_json": (400, "the body is no JSON, is nested too deeply, or does not have the shape that it must have"),
    "bad_request": (400, "a parameter of the path or the query does not fit, or a header does not"),
    "unauthorized": (401, "the token is missing, unknown or revoked"),
    "forbidden_host": (403, "the server does not answer to the name in the header Host"),
    "forbidden_origin": (403, "a page of another origin may not use the server"),
    "operators_only": (403, "only who runs the server may see this; the operator can add users with serve_operators"),
    "not_found": (404, "there is no such route, chat or prompt; chats of other users count as absent"),
    "method_not_allowed": (405, "the route exists, but not with this method"),
    "request_timeout": (408, "the body did not come in time"),
    "too_large": (413, "the body, or the file that was asked for, is too large"),
    "unsupported_media_type": (415, "the body must be application/json"),
    "idempotency_mismatch": (422, "the Idempotency-Key was used before, for another request"),
    "too_many_streams": (429, "too many streams of this user are open"),
    "too_many_tries": (429, "a wrong code was tried a moment ago; wait as long as Retry-After says"),
    "internal": (500, "a fault of Treadle; it is in the server's log"),
    "draining": (503, "the server is shutting down; another one, or a later try, will serve"),
}  # Problems that occur before the chat decides.

REFUSAL_STATUS: dict[RefusalCode, int] = {
    "busy": 409, "awaiting_action": 409, "not_awaiting_action": 409, "not_running": 409, "archived": 400,
    "queue_full": 409, "results_mismatch": 400, "no_such_action": 409, "no_such_message": 404, "no_such_queued": 404,
    "no_such_block": 404, "hash_mismatch": 409, "empty": 400, "unreadable": 409,
}  # fmt: skip

# The first that fits counts.
ERROR_STATUS: tuple[tuple[type[TreadleError], int], ...] = (
    (errors.InvalidInput, 400), (errors.NotFound, 404), (errors.JobElsewhere, 409), (errors.Damaged, 500),
    (errors.StoreError, 503), (errors.ModelError, 502), (errors.Conflict, 409), (errors.RootChanged, 409),
    (errors.WorldBusy, 409), (errors.ToolError, 400),
)  # fmt: skip

HIDDEN = (errors.StoreError,)  # Their sentences are for the operator: they may name files and addresses of the server.


class Problem(Exception):
    def __init__(self, code: ProblemCode, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = PROBLEMS[code][0]
        self.headers = dict(headers or {})


def explain(error: Exception) -> tuple[int, str, str]:
    if isinstance(error, Problem):
        return error.status, error.code, str(error)
    if isinstance(error, errors.Refused):
        return REFUSAL_STATUS[error.reason], error.reason, str(error)
    if isinstance(error, TreadleError):
        for kind, status in ERROR_STATUS:
            if isinstance(error, kind):
                if isinstance(error, HIDDEN):
                    log_error("a request failed: %s", error)
                    return status, error.code, "The store cannot be used at the moment; try again."
                return status, error.code, str(error)
    log_traceback("a request failed", error)
    return 500, "internal", "This is a fault of the server; it was logged."


def list_codes() -> dict[str, tuple[int, str]]:
    """All codes that a client may see, with their status and meaning."""
    all_codes: dict[str, tuple[int, str]] = dict(PROBLEMS)  # type: ignore[arg-type]
    all_codes |= {code: (REFUSAL_STATUS[code], meaning) for code, meaning in REFUSALS.items()}
    return dict(sorted((all_codes | TREE).items(), key=lambda pair: (pair[1][0], pair[0])))


TREE: dict[str, tuple[int, str]] = {
    "invalid_input": (400, "the request has the right shape but cannot be carried out; the sentence says why"),
    "config": (400, "the model, or something else that is asked for, is not set up on this server"),
    "tool": (400, "a file cannot be read or listed, or an MCP server cannot be asked"),
    "outside_root": (400, "the path leads out of the project"),
    "root_changed": (
        409,
        "another folder stands where the root of the chat was; naming the root again binds the chat to it",
    ),
    "job_elsewhere": (409, "the background command can only be reached on the machine that it runs on, which is named"),
    "conflict": (409, "a file was changed in the meantime"),
    "world_busy": (409, "a chat or a command works in the world, or there are worlds of it; end those first"),
    "damaged": (500, "a record or a blob cannot be read"),
    "model": (502, "a provider failed"),
    "store": (503, "the store cannot be used at the moment"),
}  # Of the tree in `treadle.errors`, what a request can come to.


class ApiReply(msgspec.Struct, frozen=True):
    """The reply of a route: a status and the bytes of its JSON; 204 has none."""

    status: int
    body: bytes = b""

    def make_response(self) -> Response:
        return Response(self.body, self.status, media_type=JSON if self.body else None)


def encode_reply(data: object, status: int = 200) -> ApiReply:
    """With every field in it: nothing is left to be known."""
    return ApiReply(status, msgspec.json.encode(to_wire_form(data)))


NOTHING = ApiReply(204)


def build_problem(error: Exception) -> Response:
    status, code, message = explain(error)
    body = msgspec.json.encode(a.ErrorReply(a.ErrorBody(code, message)))
    return Response(body, status, error.headers if isinstance(error, Problem) else None, JSON)


def build_chat_line(listed: Listed) -> a.ChatLine:
    return _build_line(listed.summary, get_shown_status(listed.summary.status, listed.leased))


def build_chat_view(state: ChatState, chat_status: Status, warnings: tuple[str, ...] = ()) -> a.ChatView:
    line = msgspec.structs.asdict(_build_line(build_summary(state), chat_status)) | {"last_error": get_failure(state)}
    fields = {name: getattr(state, name) for name in ("options", "queue", "plan", "last_end", "last_why")}
    return a.ChatView(**line, **fields, actions=list_open_actions(state), warnings=warnings)


_SAME = ("title", "model", "root", "archived", "labels", "head", "turns", "usage", "last_error", "deleted")
"""Fields that a line has from the summary as they are."""


def _build_line(line: ChatSummary, chat_status: Status) -> a.ChatLine:
    fields = {name: getattr(line, name) for name in _SAME} | {"parent": line.parent.partition("/")[0]}
    created, updated = format_time(line.created_ms), format_time(line.updated_ms)
    return a.ChatLine(id=line.chat, status=chat_status, created=created, updated=updated, **fields)


def build_accepted(state: ChatState, queue_id: str = "", restore: str = "") -> a.Accepted:
    queued = queue_id if any(item.id == queue_id for item in state.queue) else ""
    return a.Accepted(chat=state.chat, status=compute_status(state), head=state.head, queued=queued, restore=restore)


def build_message_view(place: int, entry: Entry) -> a.MessageView:
    match entry:
        case UserEntry(text=text, seq=seq, source=source):
            return a.MessageView(place=place, role="user", seq=seq, source=source, content=text)
        case AssistantEntry(turn=turn, text=text, thinking=thinking, calls=calls):
            thought = "".join(block.text for block in thinking)
            views = tuple(a.CallView(call=call.call, name=call.name, arguments=call.arguments) for call in calls)
            return a.MessageView(place=place, role="assistant", turn=turn, content=text, reasoning=thought, calls=views)
        case ResultsEntry(turn=turn, results=results):
            result_views = tuple(a.ResultView(call=each.call, success=each.success, text=each.text) for each in results)
            return a.MessageView(place=place, role="tool", turn=turn, results=result_views)


HEADER = "idempotency-key"
MAX_KEY = 255


class Key(msgspec.Struct, frozen=True):
    owner: str
    key: str
    request: str  # The hash of method, path and body.

    def make_answer_builder(self, make_reply: Callable[[ChatState], ApiReply], now_ms: int) -> Answer:
        """Return a function that makes the answer to remember from the state of the chat after the request."""
        return lambda state: self.build_remembered(make_reply(state), now_ms)

    def build_remembered(self, reply: ApiReply, now_ms: int) -> Remembered:
        return Remembered(self.owner, self.key, self.request, reply.status, reply.body, now_ms)

    def make_id(self, prefix: str, now_ms: int) -> str:
        """An id for what this request makes: the same for every repetition, as long as its answer is remembered."""
        about = f"{self.owner}\n{self.key}\n{self.request}\n{now_ms // ANSWER_MS}"
        return f"{prefix}_{hashlib.sha256(about.encode()).hexdigest()[:32]}"

    def make_step_key(self, name: str) -> "Key":
        """The key of a step of this request. No request has such a key: they are printable."""
        return msgspec.structs.replace(self, key=f"{self.key}\x1f{name}")


def parse_key(values: list[str], owner: str, method: str, path: str, body: bytes) -> Key | None:
    """The key of a request, or None if it has none. Problem if it cannot be used."""
    if not values:
        return None
    key = values[0]
    if len(values) > 1 or not key or len(key) > MAX_KEY or not (key.isascii() and key.isprintable()):
        raise Problem("bad_request", f"Idempotency-Key must be 1 to {MAX_KEY} printable characters, once.")
    return Key(owner, key, hashlib.sha256(f"{method} {path}\n".encode() + body).hexdigest())


async def find_answer(store: Store, key: Key) -> ApiReply | None:
    remembered = await store.recall(key.owner, key.key)
    return None if remembered is None else repeat_reply(key, remembered)


def repeat_reply(key: Key, first: Remembered | AlreadyAnswered) -> ApiReply:
    """The first answer to the same request, which was given before or while this one was under way."""
    if first.request != key.request:
        raise Problem("idempotency_mismatch", f"The Idempotency-Key {key.key!r} was used for another request.")
    return ApiReply(first.status, first.body)
