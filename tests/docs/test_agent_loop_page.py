"""The sequences of events in the guide to the loop are what chats really record (L-01, L-02, L-13, L-14)."""

import re
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, ScriptedModel, tool
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.memory import MemoryStore

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "agent-loop.md").read_text(encoding="utf-8")
SEQUENCES = dict(re.findall(r"<!-- sequence: (\w+) -->\n```text\n(.*?)```", PAGE, flags=re.S))


@tool(read_only=True)
async def look() -> str:
    """Look at something."""
    return "seen"


DONE = Call("task_complete", summary="All done.")
CHATS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "answer": ([Say("Hello.")], {}),
    "call": ([(Say("I look."), Call("look")), Say("Done.")], {}),
    "action": ([Call("ask_user", question="Which?"), Say("Done.")], {"interactive": True}),
    "complete": ([(Say("Ready."), DONE)], {"verify": False}),
    "autopilot": ([Say("Soon."), (Say("Ready."), DONE)], {"mode": "autopilot", "verify": False}),
}


def test_every_sequence_of_the_page_is_executed() -> None:
    assert set(SEQUENCES) == set(CHATS)


@pytest.mark.parametrize("name", sorted(CHATS))
async def test_a_sequence_is_what_is_recorded(name: str) -> None:
    steps, options = CHATS[name]
    async with Agent(MemoryStore(), model=ScriptedModel(steps), tools=[look]) as agent:
        chat = agent.chat(**options)
        idle = [one async for one in chat.send("Go.") if one.type == "session.idle"]
        if actions := await chat.actions():
            idle += [one async for one in chat.answer(actions[0], "this") if one.type == "session.idle"]
        recorded = [one.type for one in (await chat.events())[1:]]
    assert recorded == [line.split()[0] for line in SEQUENCES[name].splitlines()]
    assert len(idle) == 1  # L-12
