"""The query parameters of the HTTP API, as Structs; the bodies of requests are in `http_requests`."""

from typing import Annotated, Literal

from msgspec import Meta

from treadle.protocol.http_requests import Body, Line, Seq
from treadle.protocol.views import Status


class Page(Body, frozen=True):
    after: Seq = 0  # begin behind this place
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class OutputQuery(Body, frozen=True):
    offset: Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)] = -16_000  # the first byte; if negative, from the end
    limit: Annotated[int, Meta(ge=1, le=64_000)] = 64_000  # how many bytes at most; whole lines, where there are any


class MessagePage(Body, frozen=True):
    after: Seq = 0
    before: Seq = 0  # with neither `after` nor `before`: the newest
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class ChatQuery(Body, frozen=True):
    status: Status | None = None
    archived: bool | None = None  # without it, chats of both kinds are listed
    label: Line = ""
    query: Line = ""  # a part of the title, or the beginning of the id
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: Annotated[str, Meta(max_length=200, pattern=r"^[A-Za-z0-9_.:-]*$")] = ""  # `next` of the page before


class SearchQuery(Body, frozen=True):
    text: Annotated[str, Meta(min_length=1, max_length=200)]  # all in the title, project or id, or in one message
    archived: bool | None = None  # without it, chats of both kinds are looked through
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class ActionQuery(Body, frozen=True):
    below: bool = False  # also what the chats wait for that its calls began, and theirs


class RootQuery(Body, frozen=True):
    root: Line = ""  # the project of a chat to come; empty: that of the server


class RuleQuery(Body, frozen=True):
    chat: Line = ""  # a chat whose own rules are meant, too


class FindQuery(Body, frozen=True):
    query: Line = ""  # letters that stand in the file's path in this order
    root: Line = ""  # the project of a chat to come; empty: that of the server


class PathQuery(Body, frozen=True):
    path: Annotated[str, Meta(max_length=4_096, pattern=r"^[^\x00]*$")] = "."


class FileQuery(Body, frozen=True):
    path: Annotated[str, Meta(min_length=1, max_length=4_096, pattern=r"^[^\x00]*$")]


class ChangesQuery(Body, frozen=True):
    run: Annotated[str, Meta(pattern=r"^(last|all|[1-9][0-9]{0,8})$")] = "last"
    """last: the newest run of which something is left; a number: as `runs` counts them."""
    path: Annotated[str, Meta(max_length=4_096, pattern=r"^[^\x00]*$")] = ""
    """Only this file, or what lies below this folder."""
    even_kept: bool = False  # also what was kept
    after: Seq = 0  # pass over so many files
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class WaitQuery(Body, frozen=True):
    wait: Annotated[float, Meta(ge=0, le=60)] = 0  # seconds to wait for the outcome; without it the answer is 202


class StreamQuery(Body, frozen=True):
    after: Seq | None = None  # Begin behind this seq; `Last-Event-ID` counts more. Without either: from the beginning.
    follow: bool = True  # false: end with what is recorded, instead of waiting for more
    view: Literal["events", "simple"] = "events"  # simple: six kinds of news, for simple readers
    deltas: bool = True  # false: without live text
    ticket: str = ""  # stands for a token where no header can be sent


class WatchQuery(Body, frozen=True):
    after: Seq | None = None  # begin behind this number; `Last-Event-ID` counts more; neither: with the next event
    follow: bool = True
    ticket: str = ""


class DaysQuery(Body, frozen=True):
    days: Annotated[int, Meta(ge=1, le=366)] = 30  # how many days back, today included; in UTC


class NoQuery(Body, frozen=True):
    pass
