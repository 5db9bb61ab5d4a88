"""What a small model is not offered (L-10)."""

from treadle.base.types import ChatId
from treadle.chat.small_window import select_withheld_tools
from treadle.chat.state import ChatState, RunState, SeenFile
from treadle.protocol.tools import ToolSpec


def test_repeats_whose_calls_were_compacted_away_withhold_none_of_them() -> None:
    state = ChatState(ChatId("c"), run=RunState(0, 10, signatures=("same", "same")), seen_files={"a": (SeenFile("h"),)})
    specs = [ToolSpec("same"), ToolSpec("change", needs="reading"), ToolSpec("more", needs="output")]
    assert select_withheld_tools(state, specs) == {"more"}
