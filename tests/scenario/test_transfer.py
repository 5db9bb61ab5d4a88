"""D-08: a chat leaves as JSON lines and comes back as it was; bad input changes nothing."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.golden.samples import OPTIONS
from tests.scenario.scenes import SCENES, World, watch
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.adapters.stores.memory import MemoryStore
from treadle.base.types import ChatId
from treadle.chat.divergence import find_first_divergence
from treadle.chat.fold import fold_all
from treadle.chat.state import ChatState
from treadle.engine.effects import read_ledger
from treadle.errors import ChatExists, Damaged, InvalidInput, NotFound, TreadleError
from treadle.library.replay import replay
from treadle.library.transfer import PORTABLE, export_chat, import_chat, read_chat
from treadle.ports.store import Commit, Store
from treadle.protocol import wire
from treadle.protocol.content import Image, Shell
from treadle.protocol.events import Envelope, ExecutionComplete, RecordLost, SessionIdle
from treadle.protocol.options import ChatOptions
from treadle.protocol.wire import Record
from treadle.testing.checker import check

pytestmark = pytest.mark.thorough(one_of=12)


async def export_lines(store: Store, chat: ChatId) -> list[bytes]:
    return [line async for line in export_chat(store, chat)]


def events_of(lines: list[bytes]) -> list[dict[str, Any]]:
    """The lines without what only says how many there are."""
    return [{key: value for key, value in json.loads(line).items() if key != "events"} for line in lines]


async def replays(store: Store, chat: ChatId) -> None:
    """A replay writes the same events, and nothing to the chat itself (D-07)."""
    recorded = await read_chat(store, chat)
    result = await replay(store, chat)
    assert result.divergence is None, result.divergence.text
    assert result.matches
    assert find_first_divergence(recorded, result.events) is None
    assert [e.epoch for e in result.events] == [e.epoch for e in recorded]
    assert await read_chat(store, chat) == recorded


@pytest.mark.parametrize("name", SCENES)
async def test_a_chat_is_replayed_comes_back_as_it_was_and_rests(name: str, world: World) -> None:  # D-08, S-09
    chat = await SCENES[name](world)
    await replays(world.store, chat)
    lines = await export_lines(world.store, chat)
    other_store = MemoryStore()
    assert await import_chat(other_store, lines) == chat
    back = events_of(await export_lines(other_store, chat))
    assert back[: len(lines)] == events_of(lines)
    new_types = [event["type"] for event in back[len(lines) :]]
    assert "session.imported" in new_types
    old, new = (await world.store.get(chat)).summary, (await other_store.get(chat)).summary
    assert (new.title, new.turns, new.created_ms) == (old.title, old.turns, old.created_ms)
    assert new.status in ("idle", "error")
    assert (new.runnable, new.wake_ms) == (False, 0)
    assert await other_store.claim("w", now_ms=1 << 50) is None
    assert await check(other_store, chat) == []
    copy = await import_chat(world.store, lines, new_id=True)
    assert copy != chat
    copy_bytes = b"".join((await export_lines(world.store, copy))[: len(lines)]).replace(copy.encode(), chat.encode())
    assert events_of(copy_bytes.splitlines()) == events_of(lines)
    assert (await replay(world.store, copy)).matches


async def test_every_line_is_an_event_with_its_place(world: World) -> None:
    chat = await SCENES["tools_that_read_and_write"](world)
    read = [json.loads(line) for line in await export_lines(world.store, chat)]
    assert [line["seq"] for line in read] == list(range(1, len(read) + 1))
    assert [line["type"] for line in read] == [e.type for e in await read_chat(world.store, chat)]


async def test_an_imported_chat_goes_on(world: World) -> None:
    chat = await SCENES["a_chat_that_is_cut_off"](world)
    copy = await import_chat(world.store, await export_lines(world.store, chat), new_id=True, local=world.options())
    agent = world.agent(ScriptedModel([Say("Whole.")], follow="calls"))
    await watch(agent.chat(copy).send("Go on."))
    await agent.worker.close()
    assert await check(world.store, copy) == []
    assert (await replay(world.store, copy)).matches


async def test_bytes_outside_the_log_travel_with_it_once(world: World) -> None:  # D-06
    output = await world.store.put_blob(b"all of it\x00\xff")
    image = Image("image/png", await world.store.put_blob(b"picture"))
    missing_image = Image("image/png", "0" * 64)
    agent = world.agent(ScriptedModel([Say("Nice."), Say("Again.")], follow="calls"))
    chat = agent.chat(options=world.options())
    await watch(chat.send("Look.", images=[image]))
    await watch(chat.send("Look again.", images=[image, missing_image]))
    await agent.worker.close()
    state = await chat.state()
    envelope = Envelope(state.head + 1, chat.id, 0, ExecutionComplete("1.0", True, output=output))
    summary = (await world.store.get(chat.id)).summary
    await world.store.append(Commit(chat.id, [wire.encode(envelope)], summary, durable=False))
    lines = await export_lines(world.store, chat.id)
    assert [sorted(json.loads(line).get("blobs", {})) for line in lines if b'"blobs"' in line] == [
        [image.blob],
        [output],
    ]
    other_store = MemoryStore()
    await import_chat(other_store, lines)
    assert await other_store.get_blob(output) == b"all of it\x00\xff"
    assert await other_store.get_blob(image.blob) == b"picture"
    with pytest.raises(NotFound):
        await other_store.get_blob(missing_image.blob)
    assert events_of(await export_lines(other_store, chat.id))[: len(lines)] == events_of(lines)


async def test_a_damaged_record_does_not_keep_the_rest(world: World) -> None:  # D-06
    chat = await SCENES["plain_answers"](world)
    summary = (await world.store.get(chat)).summary
    broken = Record(summary.head + 1, 0, "assistant.message", 1, 3, b'{"turn":"x"}')
    await world.store.append(Commit(chat, [broken], summary, durable=False))
    lines = await export_lines(world.store, chat)
    other_store = MemoryStore()
    await import_chat(other_store, lines)
    assert isinstance((await read_chat(other_store, chat))[len(lines) - 1].data, RecordLost)


def _drop(number: int) -> Callable[[list[bytes]], list[bytes]]:
    return lambda lines: lines[: number - 1] + lines[number:]


def _line(number: int, change: Callable[[dict[str, object]], object]) -> Callable[[list[bytes]], list[bytes]]:
    def change_line(lines: list[bytes]) -> list[bytes]:
        read = json.loads(lines[number - 1])
        change(read)
        return [*lines[: number - 1], json.dumps(read).encode(), *lines[number:]]

    return change_line


def _live(lines: list[bytes]) -> list[bytes]:
    return [*lines, wire.to_json(Envelope(0, ChatId("c"), 0, SessionIdle("done")))]


@pytest.mark.parametrize(
    ("tamper", "error", "text"),
    [
        (lambda lines: [*lines[:2], b"{oops", *lines[2:]], Damaged, "Line 3 cannot be read"),
        (lambda lines: [*lines[:2], b"\xff\xfe", *lines[2:]], Damaged, "Line 3"),
        (_line(3, lambda line: line.update(type="no.such")), Damaged, "Line 3.*unknown event type"),
        (_line(3, lambda line: line.update(version=9)), Damaged, "Line 3.*version 9"),
        (_line(3, lambda line: line.update(data={"turn": "one"})), Damaged, "Line 3"),
        (_line(3, lambda line: line.update(time="yesterday")), Damaged, "Line 3.*not a time"),
        (_line(3, lambda line: line.update(blobs={"0" * 64: "eA=="})), Damaged, "Line 3.*hash"),
        (_line(3, lambda line: line.update(blobs={"0" * 64: "no base64"})), Damaged, "Line 3.*base64"),
        (_line(3, lambda line: line.update(blobs=[1])), Damaged, "Line 3"),
        (_line(3, lambda line: line.update(chat="c_other")), InvalidInput, "Line 3.*c_other"),
        (_line(1, lambda line: line.update(chat="")), InvalidInput, "Line 1.*no chat"),
        (_line(1, lambda line: line.update(chat="../../c_1")), InvalidInput, "Line 1.*no chat's id"),
        (_line(1, lambda line: line.update(chat="c_\x1b[2J")), InvalidInput, "Line 1.*no chat's id"),
        (_line(1, lambda line: line.update(events="many")), Damaged, "Line 1.*count"),
        (lambda lines: lines[:-1], InvalidInput, "first line says.*cut"),
        (lambda lines: lines[:1], InvalidInput, "first line says.*cut"),
        (lambda lines: [*lines[:-1], lines[-1][:20]], Damaged, "cannot be read"),
        (_drop(1), InvalidInput, "Line 1"),
        (_drop(3), InvalidInput, "Line 3.*seq is 4 where 3 follows"),
        (lambda lines: [lines[0], lines[0]], InvalidInput, "Line 2"),
        (_live, InvalidInput, "session.idle is live only"),
        (lambda lines: [], InvalidInput, "empty"),
        (lambda lines: [b"\n", b"  "], InvalidInput, "empty"),
    ],
)
@pytest.mark.parametrize("new_id", [False, True])
async def test_bad_input_is_told_by_line_and_changes_nothing(
    tamper: Callable[[list[bytes]], list[bytes]], error: type[TreadleError], text: str, new_id: bool, world: World
) -> None:
    lines = await export_lines(world.store, await SCENES["plain_answers"](world))
    other_store = MemoryStore()
    with pytest.raises(error, match=text):
        await import_chat(other_store, tamper(lines), new_id)
    assert await other_store.list() == []


async def test_an_id_that_is_taken_is_refused(world: World) -> None:
    chat = await SCENES["plain_answers"](world)
    lines = await export_lines(world.store, chat)
    with pytest.raises(ChatExists, match=chat):
        await import_chat(world.store, lines)
    assert await export_lines(world.store, chat) == lines


async def test_blank_lines_and_text_are_fine(world: World) -> None:
    chat = await SCENES["plain_answers"](world)
    lines = await export_lines(world.store, chat)
    other_store = MemoryStore()
    await import_chat(other_store, ["", *(line.decode() for line in lines), "\n"])
    assert events_of(await export_lines(other_store, chat))[: len(lines)] == events_of(lines)


async def test_lines_of_older_exports_say_no_number(world: World) -> None:
    chat = await SCENES["plain_answers"](world)
    lines = [json.dumps(line) for line in events_of(await export_lines(world.store, chat))]
    assert await import_chat(MemoryStore(), lines) == chat


LOCAL = {
    *("model", "rung", "temperature", "max_tokens", "context_window", "reasoning_effort", "compaction_effort"),
    *("root", "root_id", "world", "instructions", "skills", "agent", "agent_prompt", "own_servers"),
    *("command_view", "git_branch", "checks", "diagnose"),
    *("mode", "interactive", "tools", "rules", "sandbox", "network", "strict_paths"),
    *("auto_approve_commands", "auto_approve_sensitive_edits", "sensitive"),
    *("max_turns", "on_limit", "on_guard", "run_budget", "chat_budget", "subagents", "subagent_depth"),
}
"""The options that say what may be done, where, by whom and at what expense. They do not move."""


def test_every_option_moves_with_a_chat_or_does_not() -> None:  # S-09
    assert not PORTABLE & LOCAL
    assert set(ChatOptions.__struct_fields__) == PORTABLE | LOCAL, (
        "say in treadle.library.transfer, or here, which it is"
    )


async def test_what_gives_power_does_not_move(world: World) -> None:  # S-09
    lines = await export_lines(world.store, await SCENES["plain_answers"](world))
    other_store = MemoryStore()
    first = json.loads(lines[0])
    first["data"]["options"] = msgspec.to_builtins(OPTIONS)  # every option says something
    first["data"]["owner"] = "mallory"
    local = ChatOptions(model="openai:gpt-4.1", root="/here", mode="read-only", max_turns=3, checks=("true",))
    chat = await import_chat(other_store, [json.dumps(first), *lines[1:]], local=local)
    state = fold_all(ChatState(chat=chat), await read_chat(other_store, chat))
    assert state.owner == ""
    for name in ChatOptions.__struct_fields__:
        of = OPTIONS if name in PORTABLE else local
        assert getattr(state.options, name) == getattr(of, name), name
    second_chat = await import_chat(other_store, lines, new_id=True, owner="ada")
    assert (await other_store.get(second_chat)).summary.owner == "ada"


async def test_a_shell_from_elsewhere_does_not_hold_here(world: World) -> None:  # S-09, T-14
    chat = await SCENES["tools_that_read_and_write"](world)
    agent = world.agent(ScriptedModel([Call("run_command", command="export GREETING=x"), Say("Set.")], follow="calls"))
    await watch(agent.chat(chat, auto_approve_commands=True, mode="autopilot").send("Set it."))
    assert (await agent.chat(chat).state()).shell != Shell()
    copy = await import_chat(world.store, await export_lines(world.store, chat), new_id=True, local=world.options())
    state = await agent.chat(copy).state()
    assert (state.shell, state.seen_files) == (Shell(), {})
    await agent.worker.close()


async def test_what_was_done_elsewhere_is_not_undone_here(world: World) -> None:  # W-02
    chat = await SCENES["tools_that_read_and_write"](world)
    copy = await import_chat(world.store, await export_lines(world.store, chat), new_id=True, local=world.options())
    assert (await read_ledger(world.store, chat)).entries
    assert (await read_ledger(world.store, copy)).entries == ()
    agent = world.agent(ScriptedModel([Call("write_file", path="c.txt", content="c"), Say("Made.")], follow="calls"))
    await watch(agent.chat(copy).send("Make c."))
    assert [file.path for entry in (await read_ledger(world.store, copy)).entries for file in entry.files] == ["c.txt"]
    await agent.worker.close()


async def test_a_chat_that_does_not_exist_cannot_be_exported(world: World) -> None:
    with pytest.raises(NotFound):
        await export_lines(world.store, ChatId("c_nobody"))
