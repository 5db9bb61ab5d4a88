"""The shapes of answers, as a client reads them."""

import msgspec

from treadle.protocol.content import Usage
from treadle.protocol.http_answers import Accepted, ChatLine, ChatList
from treadle.protocol.wire import to_wire_form


def test_a_client_passes_over_fields_of_a_newer_server() -> None:
    line = ChatLine(
        id="c_1",
        status="idle",
        title="",
        model="m",
        root="",
        archived=False,
        labels=(),
        head=3,
        created="",
        updated="",
        turns=1,
        usage=Usage(),
        last_error=None,
    )
    newer = {"chats": [to_wire_form(line) | {"mood": "good"}], "next": "", "total": 1}
    assert msgspec.json.decode(msgspec.json.encode(newer), type=ChatList) == ChatList(chats=(line,), next="")
    body = b'{"chat": "c_1", "status": "pending", "head": 4, "since": 2}'
    assert msgspec.json.decode(body, type=Accepted) == Accepted(chat="c_1", status="pending", head=4)
