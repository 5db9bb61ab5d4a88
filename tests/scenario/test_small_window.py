"""A model with a small window is told of tools in short: system text and tools together take at most 1,200 tokens on
every rung, and nothing that it may call is lost."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from treadle import Agent
from treadle.adapters.models.capability_ladder import format_tools
from treadle.adapters.models.local import prompt as local
from treadle.adapters.models.scripted import Call, Part, Say, ScriptedModel
from treadle.chat.history import estimate_tokens
from treadle.chat.small_window import SMALL_WINDOW
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.deltas import Delta
from treadle.protocol.events import ExecutionComplete
from treadle.protocol.tools import WORDS, ToolSpec

MOST = 1_200
LEFT_OUT = {"apply_patch", "get_diagnostics", "delegate", "update_plan", "check_command", "send_input", "stop_command"}


class Listening(ScriptedModel):
    """Remembers what it was asked first, and what was withheld each time."""

    first_request: ModelRequest | None = None

    def __init__(self, script: Sequence[Part], info: ModelInfo) -> None:
        super().__init__(script, info=info)
        self.withheld: list[frozenset[str]] = []
        self.last: ModelRequest | None = None

    def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        self.first_request = self.first_request or request
        self.last = request
        self.withheld.append(request.withheld)
        return super().stream(request)


def make_agent(folder: Path, window: int, *script: Part) -> tuple[Agent, Listening]:
    model = Listening([*script, Say("Done.")], info=ModelInfo("scripted", "small", window=window))
    return Agent(folder / "chats.db", model=model, home=folder / "home"), model


async def read_first_request(
    agent: Agent, model: Listening, root: Path, **options: object
) -> tuple[str, tuple[ToolSpec, ...]]:
    async with agent:
        async for _ in agent.chat(root=root, interactive=True, **options).send("Go."):  # type: ignore[arg-type]
            pass
    assert model.first_request is not None
    return model.first_request.system, tuple(model.first_request.tools)


async def test_system_text_and_tools_take_at_most_1200_tokens(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    system, tools = await read_first_request(*make_agent(tmp_path, SMALL_WINDOW), root)
    native = [{"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools]
    texts = (
        msgspec.json.encode(native).decode(),
        format_tools(tools),
        local.build(system, (), tools, 9_999).messages[0].content,
    )
    for text in texts:
        assert estimate_tokens(len(system) + len(text)) <= MOST
    assert {tool.name for tool in tools}.isdisjoint(LEFT_OUT)
    edit = next(tool for tool in tools if tool.name == "edit_file")
    assert (
        [*edit.parameters["properties"]]
        == [*edit.parameters["required"], "line"]
        == ["path", "old_str", "new_str", "line"]
    )
    assert "edit_file(path: string, old_str: string, new_str: string): " in texts[2], "line is named by an error"
    assert "read_file(path: string): " in texts[2]
    assert str(root) not in system, "else it is written out in every call"


async def test_what_is_left_out_can_be_called_all_the_same(tmp_path: Path) -> None:
    (root := tmp_path / "project").mkdir()
    step = {"text": "look", "status": "done"}
    agent, _ = make_agent(tmp_path, SMALL_WINDOW, Call("update_plan", steps=[step]))
    async with agent:
        chat = agent.chat(root=root)
        events = [envelope.data async for envelope in chat.send("Go.")]
    assert [event.success for event in events if isinstance(event, ExecutionComplete)] == [True]


@pytest.mark.parametrize(("window", "tools"), [(SMALL_WINDOW + 1, None), (SMALL_WINDOW, ("read_file", "update_plan"))])
async def test_a_larger_window_and_chosen_tools_lose_none(
    tmp_path: Path, window: int, tools: tuple[str, ...] | None
) -> None:
    (root := tmp_path / "project").mkdir()
    _, tool_specs = await read_first_request(*make_agent(tmp_path, window), root, tools=tools)
    assert {tool.name for tool in tool_specs} >= (LEFT_OUT if tools is None else {"read_file", "update_plan"})


async def test_what_would_be_called_in_vain_is_withheld(tmp_path: Path) -> None:  # L-10
    """An edit before anything was read, more of an output that was not cut, and calls that brought nothing new, until
    one does."""
    (root := tmp_path / "project").mkdir()
    (root / "a.txt").write_text("a\n")
    look, read = Call("list_directory", path="."), Call("read_file", path="a.txt")
    agent, model = make_agent(tmp_path, SMALL_WINDOW, look, look, read, look, read, Call("read_file", path="b"))
    async with agent:
        async for _ in agent.chat(root=root).send("Look."):
            pass
    looks, reads = {"list_directory"}, {"read_file"}
    expected = [{"edit_file"}, {"edit_file"}, {"edit_file"} | looks, set(), looks, looks | reads, set()]
    assert model.withheld == [{"read_output"} | names for names in expected]
    agent, model = make_agent(tmp_path, SMALL_WINDOW + 1)
    async with agent:
        async for _ in agent.chat(root=root).send("Look."):
            pass
    assert model.withheld == [frozenset()]


async def test_what_was_read_in_vain_stays_withheld_when_a_call_fails(tmp_path: Path) -> None:  # L-10
    (root := tmp_path / "project").mkdir()
    (root / "a.txt").write_text("a\n")
    read = Call("read_file", path="a.txt")
    wrong = Call("edit_file", path="a.txt", old_str="zzz", new_str="b")
    right = Call("edit_file", path="a.txt", old_str="a", new_str="b")
    agent, model = make_agent(tmp_path, SMALL_WINDOW, read, read, wrong, right)
    async with agent:
        async for _ in agent.chat(root=root, mode="auto-edit").send("Look."):
            pass
    reads = {"read_file"}
    assert [names & reads for names in model.withheld] == [set(), set(), reads, reads, set()]


async def test_a_task_that_asks_for_a_change_is_not_answered_by_words_before_there_is_one(
    tmp_path: Path,
) -> None:  # L-16
    (root := tmp_path / "project").mkdir()
    write = Call("write_file", path="a.txt", content="a\n")
    agent, model = make_agent(tmp_path, SMALL_WINDOW, write)
    async with agent:
        async for _ in agent.chat(root=root, mode="auto-edit").send("Create a.txt with one line."):
            pass
    both = {"task_complete", WORDS}
    assert [names & both for names in model.withheld] == [both, set()]


async def test_the_last_words_at_the_turn_cap_begin_with_the_list_that_was_read_before(tmp_path: Path) -> None:  # L-21
    (root := tmp_path / "project").mkdir()
    agent, model = make_agent(tmp_path, SMALL_WINDOW, Call("list_directory", path="."))
    async with agent:
        async for _ in agent.chat(root=root, max_turns=1).send("Look."):
            pass
    assert model.first_request is not None
    assert model.last is not None
    assert model.first_request.tools
    assert not model.first_request.withdrawn
    assert not model.last.tools
    assert model.last.withdrawn == model.first_request.tools
