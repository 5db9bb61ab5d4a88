"""Front ends that send JSON to a program take every event, whatever is in it (S-12)."""

import msgspec
import pytest

from tests.hostile_text import TEXTS, check_inert, hostile_events
from tests.lazily import Lazy
from treadle.diff.diff import Texts
from treadle.frontends.copilot_words.events import Telling
from treadle.protocol.files import FileChange

acp_projection = Lazy("treadle.frontends.acp.projection")


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_an_editor_is_shown_inert_text(text: str) -> None:  # S-12, S-22
    async def texts(change: FileChange) -> Texts:
        return text.encode(), text.encode()

    projection = acp_projection.Projection("/project", texts, terminals=True)
    for envelope in hostile_events(text):
        for update in await projection.show(envelope):
            update.model_dump_json(by_alias=True)
            if content := getattr(getattr(update, "content", None), "text", ""):
                check_inert(content)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_program_of_the_copilot_sdk_is_sent_every_event(text: str) -> None:
    telling = Telling("c_1", str)
    for envelope in hostile_events(text):
        msgspec.json.encode(telling.tell(envelope))
