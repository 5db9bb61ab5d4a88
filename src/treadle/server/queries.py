"""What clients may put behind the question mark of an address, as Structs. Only shapes."""

from typing import Annotated, Literal

from msgspec import Meta

from treadle.protocol.views import Status
from treadle.server.bodies import Body, Line, Seq


class Page(Body, frozen=True):
    after: Seq = 0
    """Begin behind this place."""
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class MessagePage(Body, frozen=True):
    after: Seq = 0
    before: Seq = 0
    """With neither `after` nor `before`: the newest."""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class ChatQuery(Body, frozen=True):
    status: Status | None = None
    archived: bool | None = None
    """Without it, chats of both kinds are listed."""
    label: Line = ""
    query: Line = ""
    """A part of the title, or the beginning of the id."""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: Annotated[str, Meta(max_length=200, pattern=r"^[A-Za-z0-9_.:-]*$")] = ""
    """`next` of the page before."""


class PathQuery(Body, frozen=True):
    path: Annotated[str, Meta(max_length=4_096, pattern=r"^[^\x00]*$")] = "."


class FileQuery(Body, frozen=True):
    path: Annotated[str, Meta(min_length=1, max_length=4_096, pattern=r"^[^\x00]*$")]


class ChangesQuery(Body, frozen=True):
    run: Annotated[str, Meta(pattern=r"^(last|all|[1-9][0-9]{0,8})$")] = "last"
    """last: the newest run of which something is left; a number: as `runs` counts them."""
    path: Annotated[str, Meta(max_length=4_096, pattern=r"^[^\x00]*$")] = ""
    """Only this file, or what lies below this folder."""
    even_kept: bool = False
    """Also what was kept."""
    after: Seq = 0
    """Pass over so many files."""
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class WaitQuery(Body, frozen=True):
    wait: Annotated[float, Meta(ge=0, le=60)] = 0
    """For how many seconds to wait for the outcome; without it, or when they are over, the answer is 202."""


class StreamQuery(Body, frozen=True):
    after: Seq | None = None
    """Begin behind this seq; `Last-Event-ID` counts more. Without either: from the beginning."""
    follow: bool = True
    """false: end with what is recorded, instead of waiting for more."""
    view: Literal["events", "simple"] = "events"
    """simple: six kinds of news, for simple readers (A-11)."""
    deltas: bool = True
    """false: without live text."""
    ticket: str = ""
    """Stands for a token where no header can be sent."""


class WatchQuery(Body, frozen=True):
    after: Seq | None = None
    """Begin behind this number; `Last-Event-ID` counts more. Without either: what happens from now on."""
    follow: bool = True
    ticket: str = ""


class NoQuery(Body, frozen=True):
    pass
