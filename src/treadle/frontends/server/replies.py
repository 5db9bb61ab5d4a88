"""Replies as bytes: the results of handlers, and errors in their one shape."""

import msgspec
from starlette.responses import Response

from treadle.frontends.server.problems import Problem, explain
from treadle.protocol.http_answers import ErrorBody, ErrorReply
from treadle.protocol.wire import to_wire_form

JSON = "application/json"


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
