"""The replies of the API as bytes, and its errors: stable code, status and meaning of each, in one table. Routes only
raise."""

from collections.abc import Mapping
from typing import Literal

import msgspec
from starlette.responses import Response

from treadle import errors
from treadle.base.logs import log_error, log_traceback
from treadle.errors import REFUSALS, RefusalCode, TreadleError
from treadle.protocol.http_answers import ErrorBody, ErrorReply
from treadle.protocol.wire import to_wire_form

JSON = "application/json"
ProblemCode = Literal[
    "invalid_json",
    "bad_request",
    "unauthorized",
    "forbidden_host",
    "forbidden_origin",
    "operators_only",
    "not_found",
    "method_not_allowed",
    "request_timeout",
    "too_large",
    "unsupported_media_type",
    "idempotency_mismatch",
    "too_many_streams",
    "too_many_tries",
    "internal",
    "draining",
]

PROBLEMS: dict[ProblemCode, tuple[int, str]] = {
    "invalid_json": (400, "the body is no JSON, is nested too deeply, or does not have the shape that it must have"),
    "bad_request": (400, "a parameter of the path or the query does not fit, or a header does not"),
    "unauthorized": (401, "the token is missing, unknown or revoked"),
    "forbidden_host": (403, "the server does not answer to the name in the header Host"),
    "forbidden_origin": (403, "a page of another origin may not use the server"),
    "operators_only": (403, "only who runs the server may see this; the operator can add users with serve_operators"),
    "not_found": (
        404,
        "there is no such route, chat or prompt; chats of other users count as absent",
    ),
    "method_not_allowed": (405, "the route exists, but not with this method"),
    "request_timeout": (408, "the body did not come in time"),
    "too_large": (413, "the body, or the file that was asked for, is too large"),
    "unsupported_media_type": (415, "the body must be application/json"),
    "idempotency_mismatch": (422, "the Idempotency-Key was used before, for another request"),
    "too_many_streams": (429, "too many streams of this user are open"),
    "too_many_tries": (429, "a wrong code was tried a moment ago; wait as long as Retry-After says"),
    "internal": (500, "a fault of Treadle; it is in the server's log"),
    "draining": (503, "the server is shutting down; another one, or a later try, will serve"),
}
"""Problems that occur before the chat decides."""

REFUSAL_STATUS: dict[RefusalCode, int] = {
    "busy": 409,
    "awaiting_action": 409,
    "not_awaiting_action": 409,
    "not_running": 409,
    "archived": 400,
    "queue_full": 409,
    "results_mismatch": 400,
    "no_such_action": 409,
    "no_such_message": 404,
    "no_such_queued": 404,
    "no_such_block": 404,
    "hash_mismatch": 409,
    "empty": 400,
    "unreadable": 409,
}

ERROR_STATUS: tuple[tuple[type[TreadleError], int], ...] = (
    (errors.InvalidInput, 400),
    (errors.NotFound, 404),
    (errors.JobElsewhere, 409),
    (errors.Damaged, 500),
    (errors.StoreError, 503),
    (errors.ModelError, 502),
    (errors.Conflict, 409),
    (errors.RootChanged, 409),
    (errors.WorldBusy, 409),
    (errors.ToolError, 400),
)
"""The first that fits counts."""

HIDDEN = (errors.StoreError,)
"""Their sentences are for the operator: they may name files and addresses of the server."""


class Problem(Exception):
    """Raised by the server's own checks."""

    def __init__(self, code: ProblemCode, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = PROBLEMS[code][0]
        self.headers = dict(headers or {})


def explain(error: Exception) -> tuple[int, str, str]:
    """The status, the code and the sentence for an error."""
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


def codes() -> dict[str, tuple[int, str]]:
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
}
"""Of the tree in `treadle.errors`, what a request can come to."""


class ApiReply(msgspec.Struct, frozen=True):
    """The reply of a route: a status and the bytes of its JSON; 204 has none."""

    status: int
    body: bytes = b""

    def response(self) -> Response:
        return Response(self.body, self.status, media_type=JSON if self.body else None)


def reply(data: object, status: int = 200) -> ApiReply:
    """With every field in it: nothing is left to be known."""
    return ApiReply(status, msgspec.json.encode(to_wire_form(data)))


NOTHING = ApiReply(204)


def problem(error: Exception) -> Response:
    status, code, message = explain(error)
    body = msgspec.json.encode(ErrorReply(ErrorBody(code, message)))
    return Response(body, status, error.headers if isinstance(error, Problem) else None, JSON)
