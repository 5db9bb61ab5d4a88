"""Extreme numbers and odd text at every border: refused with a clear error, or stored and read back the same
(S-20, A-01, D-06). A chat whose first record cannot be read opens read-only."""

import asyncio
import itertools
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import click
import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.faults.chance import SOAK
from tests.scenario.command_line import CommandLine
from tests.scenario.http_kit import eventually, serving
from tests.scenario.kit import Stage
from treadle import Agent, Budget, ChatOptions, ScriptedModel
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.adapters.tools.function import tool
from treadle.base.types import ChatId, SystemClock
from treadle.chat.state import ChatState
from treadle.engine.hub import Hub
from treadle.engine.log import Log
from treadle.errors import ConfigError, InvalidInput, Refused, TreadleError
from treadle.frontends.cli.group import cli
from treadle.library.command_stream import CommandStream
from treadle.library.config import load
from treadle.ports.toolset import Invocation, Outcome, PlainTool, Settlement
from treadle.protocol import commands as c
from treadle.protocol import wire
from treadle.protocol.content import Usage
from treadle.protocol.events import Envelope, ModelCall, RecordLost, UserMessage
from treadle.protocol.options import BUDGET_BOUNDS, NUMBER_BOUNDS
from treadle.protocol.permissions import Rule
from treadle.protocol.tools import DynamicTool, ToolSpec
from treadle.testing.checker import check

pytestmark = pytest.mark.thorough(one_of=8)

INF, NAN = math.inf, math.nan


def agent(store: Any = None, *answers: Any, **settings: Any) -> Agent:
    model = ScriptedModel(list(answers) or [Say("Done.")])
    return Agent(store or MemoryStore(), model=model, builtin=False, **settings)


# -- numbers ------------------------------------------------------------------------------------------------------

WRONG: list[dict[str, Any]] = [
    {"run_budget": Budget(usd=INF)},
    {"chat_budget": Budget(usd=NAN)},
    {"run_budget": Budget(wall_s=-INF)},
    {"chat_budget": Budget(tokens=-1)},
    {"chat_budget": Budget(turns=10**30)},
    {"action_deadline_s": INF},
    {"action_deadline_s": 1e16},
    {"action_deadline_s": -1.0},
    {"max_turns": -5},
    {"max_turns": 0},
    {"max_continuations": -1},
    {"temperature": NAN},
    {"temperature": INF},
    {"max_tokens": -1},
    {"context_window": 10**12},
    {"subagents": -1},
    {"subagent_depth": 10**6},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
async def test_a_number_out_of_range_is_refused_by_the_library(wrong: dict[str, Any]) -> None:  # S-20
    async with agent() as new_agent:
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            await new_agent.chat(**wrong)
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            new_agent.begin("c_new", ChatOptions(**wrong))
        chat = await new_agent.chat()
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            await chat.command(c.ChangeOptions(msgspec.to_builtins(wrong)))
        assert len(await chat.events()) == 1
        assert (await new_agent.deps.store.list()) != []


WRONG_TYPES: list[dict[str, Any]] = [
    {"run_budget": Budget(tokens=1.5)},  # type: ignore[arg-type]
    {"run_budget": Budget(tokens=True)},
    {"chat_budget": Budget(usd="3")},  # type: ignore[arg-type]
    {"rules": (Rule("allow", "run_command", 5),)},  # type: ignore[arg-type]
    {"dynamic_tools": (DynamicTool("look", 5, {"type": "object"}),)},  # type: ignore[arg-type]
    {"max_turns": 2.5},
]


@pytest.mark.parametrize("wrong", WRONG_TYPES, ids=str)
async def test_a_value_of_another_type_is_refused_by_the_library(wrong: dict[str, Any]) -> None:  # S-20
    """Within an object that the caller has made, too: the first record could not be read any more."""
    async with agent() as new_agent:
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            await new_agent.chat(**wrong)
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            await new_agent.begin("c_new", ChatOptions(**wrong))
        chat = await new_agent.chat()
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            await chat.command(c.ChangeOptions(wrong))
        with pytest.raises(InvalidInput, match="since"):
            await chat.command(c.Restore("r", "undo", since=1.5))  # type: ignore[arg-type]
        assert len(await chat.events()) == 1
        assert (await new_agent.deps.store.list()) != []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("budget_usd", INF),
        ("budget_usd", NAN),
        ("budget_wall_s", INF),
        ("budget_tokens", 10**30),
        ("retry_base_s", INF),
        ("silence_s", INF),
        ("answer_s", NAN),
        ("limit_memory_gb", INF),
        ("job_idle_s", INF),
        ("snapshot_days", INF),
        ("world_days", NAN),
        ("drain_s", INF),
        ("lease_s", INF),
        ("max_turns", 10**30),
        ("concurrency", 10**30),
    ],
)
def test_a_number_out_of_range_is_refused_in_the_settings(name: str, value: float, tmp_path: Path) -> None:
    environment = {"TREADLE_HOME": str(tmp_path)}
    with pytest.raises(ConfigError, match=name.upper()):
        load({**environment, f"TREADLE_{name.upper()}": str(value)})
    with pytest.raises(ConfigError, match=name.replace("_", "-")):
        load(environment, {name: value})
    (tmp_path / "config.toml").write_text(f"{name} = {value}\n")
    with pytest.raises(ConfigError, match=name):
        load(environment)


def test_a_number_out_of_range_is_refused_on_the_command_line(tmp_path: Path) -> None:
    treadle = CommandLine(tmp_path)
    for flag, value in (("--budget-usd", "inf"), ("--budget-usd", "nan"), ("--budget-wall-s", "inf")):
        run_result = treadle("run", "hello", flag, value, "--model", treadle.script('[[turn]]\nsay = "x"\n'))
        assert run_result.code == 2, run_result.err
        assert flag in run_result.err


def all_commands() -> Iterator[click.Command]:
    def below(command: click.Command) -> Iterator[click.Command]:
        yield command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                subcommand = command.get_command(context, name)
                assert subcommand is not None
                yield from below(subcommand)

    return below(cli)


def test_no_option_of_the_command_line_takes_a_number_that_is_not_finite() -> None:
    options = [option for command in all_commands() for option in command.params]
    floats = [option for option in options if isinstance(option.type, click.types.FloatParamType)]
    assert len(floats) >= 5
    for option, odd in itertools.product(floats, ("inf", "-inf", "nan")):
        with pytest.raises(click.BadParameter):
            option.type.convert(odd, option, None)


NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True), st.integers(-(10**20), 10**20), st.sampled_from([0, 1, 2**53, 1e9])
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([*NUMBER_BOUNDS, *(f"chat_budget.{kind}" for kind in BUDGET_BOUNDS)]), NUMBERS)
@example("max_turns", 1)
async def test_any_number_is_refused_or_read_back(name: str, value: float) -> None:
    """D-06: the log has an accepted value unchanged."""
    option, _, kind = name.partition(".")
    given_value = {kind: value} if kind else value
    store = MemoryStore()
    async with agent(store) as new_agent:
        try:
            chat = await new_agent.chat(**{option: given_value})  # type: ignore[arg-type]
        except InvalidInput:
            assert await store.list() == []
            return
        async with agent(store) as second_agent:
            options = (await second_agent.chat(chat.id).state()).options
        stored = getattr(getattr(options, option), kind) if kind else getattr(options, option)
        assert stored == value


def test_the_wire_refuses_what_it_could_not_read_back() -> None:
    for wrong in (INF, -INF, NAN):
        spent = ModelCall("summary", usage=Usage(usd=wrong))
        with pytest.raises(InvalidInput, match=r"usage\.usd"):
            wire.encode(Envelope(1, ChatId("c_1"), 0, spent))
    with pytest.raises(InvalidInput, match="half of a character"):
        wire.encode(Envelope(1, ChatId("c_1"), 0, UserMessage("\ud800")))
    wire.encode(Envelope(1, ChatId("c_1"), 0, UserMessage("null")))


# -- a first record that cannot be read ---------------------------------------------------------------------------


async def damaged_chat(path: Path, seq: int = 1, **options: Any) -> str:
    """A chat whose record at `seq` is not readable any more."""
    store = SqliteStore(path)
    async with agent(store) as new_agent:
        chat = await new_agent.chat(mode="read-only", chat_budget=Budget(usd=1.0), **options)
        await chat.ask("hello")
        if seq > 1:
            await chat.command(c.ChangeOptions({"mode": "auto-edit"}))
            await chat.command(c.ChangeOptions({"mode": "confirm"}))
            seq = (await chat.state()).head
    await store.close()
    with closing(sqlite3.connect(path)) as database, database:
        places = [row[0] for row in database.execute("SELECT place FROM events ORDER BY place")]
        database.execute("UPDATE events SET body = ? WHERE place = ?", (b'{"options": 5}', places[seq - 1]))
        database.execute("DELETE FROM snapshots")
    return chat.id


@pytest.mark.parametrize("repaired", [False, True])
async def test_a_chat_without_its_first_record_opens_read_only(tmp_path: Path, repaired: bool) -> None:  # D-06
    id = await damaged_chat(tmp_path / "t.db")
    store = SqliteStore(tmp_path / "t.db")
    if repaired:
        assert any(problem.repaired for problem in await store.check(repair=True))
    async with agent(store) as new_agent:
        chat = new_agent.chat(id)
        state = await chat.state()
        assert isinstance((await chat.events())[0].data, RecordLost)
        assert (state.options.mode, await chat.status()) == ("read-only", "error")
        for command in (c.Send("go on"), c.ChangeOptions({"mode": "autopilot"}), c.Rename("x"), c.Compact()):
            with pytest.raises(Refused, match="first record") as refused:
                await chat.command(command)
            assert refused.value.reason == "unreadable"
        assert await chat.wait(state.head, 0) == state.head
    await store.close()


async def test_a_pending_chat_without_its_first_record_is_not_driven(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    store = SqliteStore(path)
    async with agent(store) as new_agent:
        chat = await new_agent.chat()
        await new_agent.deps.log.execute(chat.id, c.Send("go"))
    await store.close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE events SET body = ? WHERE place = (SELECT min(place) FROM events)", (b"null",))
    store = SqliteStore(path)
    async with agent(store) as new_agent:
        await new_agent.worker.drive(chat.id)
        assert [type(each.data).__name__ for each in await new_agent.chat(chat.id).events()] == [
            "RecordLost",
            "UserMessage",
        ]
        assert not (await store.get(chat.id)).summary.runnable
    await store.close()


async def test_a_lost_change_of_options_leaves_the_chat_read_only(tmp_path: Path) -> None:
    """The lost record may have made it stricter."""
    id = await damaged_chat(tmp_path / "t.db", seq=2)
    store = SqliteStore(tmp_path / "t.db")
    async with agent(store) as new_agent:
        chat = new_agent.chat(id)
        assert (await chat.state()).options.mode == "read-only"
        await chat.command(c.ChangeOptions({"mode": "confirm"}))
        assert (await chat.state()).options.mode == "confirm"
    await store.close()


async def test_a_record_of_unknown_type_that_is_missing_leaves_the_chat_read_only(tmp_path: Path) -> None:  # D-06
    """It may have been the one that made the chat read-only."""
    path = tmp_path / "t.db"
    store = SqliteStore(path)
    async with agent(store) as new_agent:
        chat = await new_agent.chat(mode="auto-edit")
        await chat.command(c.ChangeOptions({"mode": "read-only"}))
        await chat.command(c.Rename("x"))
    await store.close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM events WHERE place = (SELECT min(place) + 1 FROM events)")
    store = SqliteStore(path)
    async with agent(store) as new_agent:
        assert (await new_agent.chat(chat.id).state()).options.mode == "read-only"
    await store.close()


# -- text ---------------------------------------------------------------------------------------------------------

LONE = "a\udcffb"


async def test_half_a_character_in_a_tools_result_is_replaced() -> None:
    """A file name that is not UTF-8, as Python decodes it: the call has its one result, and the run ends."""
    ran = 0

    @tool(read_only=True)
    def names() -> str:
        """List names."""
        nonlocal ran
        ran += 1
        return f"found {LONE}"

    store = MemoryStore()
    async with agent(store, [Call("names")], Say("Done."), tools=[names]) as new_agent:
        chat = await new_agent.chat()
        answer = await chat.ask("go")
        assert answer.text == "Done."
        assert ran == 1
        results = [each.data.result for each in await chat.events() if each.type == "tool.execution_complete"]  # type: ignore[attr-defined]
        assert results == ["found a\N{REPLACEMENT CHARACTER}b"]
        assert await check(store, chat.id) == []


async def test_half_a_character_in_an_error_of_a_tool_is_replaced() -> None:
    @tool
    def fails() -> str:
        """Fail."""
        raise ValueError(LONE)

    store = MemoryStore()
    async with agent(store, [Call("fails")], Say("Done."), tools=[fails]) as new_agent:
        chat = await new_agent.chat()
        assert (await chat.ask("go")).text == "Done."
        assert await check(store, chat.id) == []


async def test_half_a_character_in_live_output_is_replaced(tmp_path: Path) -> None:
    """The stream of a reader goes on, and the text is the same for all."""

    class Speaks(PlainTool):
        spec = ToolSpec("speak", "Speak.", read_only=True)

        async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
            return None

        async def run(self, invocation: Invocation) -> Outcome:
            invocation.emit(LONE)
            await asyncio.sleep(0.05)
            return Outcome("spoke")

        async def settle(self, invocation: Invocation) -> Settlement:
            return "run_again"

    store = SqliteStore(tmp_path / "t.db")
    async with serving(store, tmp_path, [Call("speak"), Say("Done.")], Speaks()) as server:
        api = server.user("ada")
        chat = await api.create()
        following = asyncio.ensure_future(api.until(chat, "session.idle"))
        await eventually(lambda: server.service.metrics.streams.total() == 1)
        await api("POST", f"/api/chats/{chat}/messages", {"content": "go"})
        events = await following
        live_text = "".join(event["data"]["text"] for event in events if event["type"] == "tool.execution_output")
        assert live_text == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize(
    "command",
    [
        c.Send(LONE),
        c.Rename(LONE),
        c.ChangeOptions({"system_prompt": LONE}),
        c.ChangeOptions({"labels": [LONE]}),
        c.Interrupt(LONE),
        c.Apply(path=LONE, content="x"),
    ],
    ids=lambda command: type(command).__name__,
)
async def test_half_a_character_in_a_command_is_refused(command: c.Command) -> None:
    async with agent() as new_agent:
        chat = await new_agent.chat()
        with pytest.raises(InvalidInput, match="half of a character"):
            await chat.command(command)
        assert len(await chat.events()) == 1
        assert (await chat.ask("still usable")).text == "Done."


async def test_half_a_character_in_the_options_of_a_new_chat_is_refused() -> None:
    store = MemoryStore()
    async with agent(store) as new_agent:
        with pytest.raises(InvalidInput, match="half of a character"):
            await new_agent.chat(system_prompt=LONE)
        assert await store.list() == []


TEXTS = st.text(st.characters(exclude_categories=()), max_size=20) | st.sampled_from(
    ["\x00", "\ufeff", "\u202e", "\U0010ffff", "a\r\nb", "\ud83d\ude00"[:1], "null", "NaN", "x" * 70_000]
)


@pytest.mark.thorough(one_of=8)
@settings(max_examples=60, deadline=None)
@given(TEXTS)
async def test_any_text_of_a_message_is_refused_or_read_back(text: str) -> None:
    store = MemoryStore()
    async with agent(store) as new_agent:
        chat = await new_agent.chat()
        try:
            await chat.ask(text)
        except TreadleError:
            assert len(await chat.events()) == 1
            return
        messages = [each.data.content for each in await chat.events() if isinstance(each.data, UserMessage)]
        assert messages == [text]
        states: list[ChatState] = [await chat.state()]
        async with agent(store) as second_agent:
            states.append(await second_agent.chat(chat.id).state())
        assert states[0] == states[1]


ODD_TEXTS = [
    "\x00",
    "a\x00b",
    "\ufeff",
    "\u202e",
    "\U0010ffff",
    "a\r\nb",
    "\x1b[2J",
    "x" * 300_000,
    "\ud83d",
    "\ue000" * 3,
]


@pytest.mark.parametrize("text", ODD_TEXTS, ids=ascii)
async def test_odd_text_is_refused_or_read_back_by_every_store(stage: Stage, text: str) -> None:
    """As a message, a title, a label, a prompt and a name of a person; in memory, SQLite and PostgreSQL."""
    stage.replayed = False  # some are refused
    new_agent = stage.agent([Say("Done.")] * 9)
    commands = (
        c.Send(text),
        c.Rename(text),
        c.ChangeOptions({"labels": [text]}),
        c.ChangeOptions({"system_prompt": text}),
        c.ChangeOptions({"model": text}),
        c.Interrupt(text),
    )
    for command in commands:
        chat = await new_agent.chat()
        with suppress(InvalidInput, Refused):
            await chat.command(command)
        async with asyncio.timeout(20):
            async for _ in chat.resume():
                pass
        log = await chat.events()
        assert not any(isinstance(each.data, RecordLost) for each in log)
        assert await Log(stage.store, Hub(), SystemClock()).load(chat.id) == await chat.state()


# -- commands -----------------------------------------------------------------------------------------------------

COUNTS = st.sampled_from([-(10**30), -(2**63), -1, 0, 1, 2, 3, 2**31, 2**53, 2**63, 10**30])
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    int: COUNTS,
    str: TEXTS | st.sampled_from(["", "1.0", "q_1", "undo"]),
    bool: st.booleans(),
    float: NUMBERS,
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of the type of a field, odd ones first of all."""
    if kind in LEAVES:
        return LEAVES[kind]
    if kind is Any:
        return TEXTS | NUMBERS | st.none() | st.lists(NUMBERS, max_size=2)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return values_of(parts[0])
    if origin is Literal:
        return st.sampled_from(parts)
    if origin in (Union, UnionType):
        return st.one_of(*(values_of(part) for part in parts if part is not NoneType), st.none())
    if origin is tuple:
        return st.lists(values_of(parts[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(TEXTS, values_of(parts[1]), max_size=2)
    if kind is c.ChangeOptions:
        hints = get_type_hints(ChatOptions)
        option_pairs = st.sampled_from(sorted(hints)).flatmap(
            lambda name: st.tuples(st.just(name), values_of(hints[name]))
        )
        return option_pairs.map(lambda pair: c.ChangeOptions({pair[0]: msgspec.to_builtins(pair[1])}))
    assert isinstance(kind, type), kind
    hints = get_type_hints(kind)
    return st.builds(kind, **{name: values_of(hints[name]) for name in kind.__struct_fields__})  # type: ignore[attr-defined]


OF_WORKERS = (c.Expire, c.CloseJob, c.RecordTitle)
COMMANDS = [kind for kind in get_args(c.Command) if kind not in OF_WORKERS]


@pytest.mark.thorough(one_of=8)
@settings(max_examples=40 * (5 if SOAK else 1), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(COMMANDS).flatmap(values_of), st.booleans())
async def test_any_command_is_refused_or_read_back(command: c.Command, has_message: bool) -> None:
    """Any content of a command leads to an error of the tree, or to events that can be read and folded again."""
    with TemporaryDirectory() as folder:
        await carry_out(command, has_message, SqliteStore(Path(folder, "t.db")))


async def carry_out(command: c.Command, has_message: bool, store: SqliteStore) -> None:
    async with agent(store, *[Say("Done.")] * 8) as new_agent:
        chat = await new_agent.chat()
        if has_message:
            await chat.ask("hello")
        with suppress(TreadleError):
            async with asyncio.timeout(30):
                async for _ in CommandStream(chat, command):
                    pass
        assert not any(isinstance(each.data, RecordLost) for each in await chat.events())
        state = await chat.state()
        assert await Log(store, Hub(), SystemClock()).load(chat.id) == state


# -- HTTP ---------------------------------------------------------------------------------------------------------

ODD_JSON: list[bytes] = [
    b"1e999",
    b"-1e999",
    b"NaN",
    b"Infinity",
    b"1e308",
    b"-1",
    b"-0.0",
    b"1e-320",
    b"9223372036854775808",
    b"1" + b"0" * 400,
    b"null",
    b"true",
    b'"\\ud800"',
    b'"\\u0000"',
    b'"\xff"',
    b'"a\\u202eb"',
    b"[" * 2_000 + b"]" * 2_000,
    b'{"usd": 1e999}',
    b'{"usd": 1e300}',
    b'{"tokens": -1}',
    b'{"tokens": 1e30}',
    b'{"wall_s": 1e30}',
    b'{"turns": 9007199254740993}',
]
OPTIONS = ["run_budget", "chat_budget", "max_turns", "action_deadline_s", "temperature", "max_tokens", "context_window",
           "max_continuations", "system_prompt", "labels", "mode", "root", "model", "sensitive", "tools"]  # fmt: skip


@pytest.mark.thorough(one_of=8)
async def test_any_http_body_is_refused_or_read_back(tmp_path: Path) -> None:
    """Each option of a new chat, and each of a change, with each odd value: 4xx with a code and a sentence, or a chat
    whose first record can be read."""
    async with serving(SqliteStore(tmp_path / "t.db"), tmp_path, [Say("Done.")]) as server:
        api = server.user("ada")
        chat = await api.create("hello")
        for option, odd in itertools.product(OPTIONS, ODD_JSON):
            body = b'{"%s": %s}' % (option.encode(), odd)
            for method, path in (("POST", "/api/chats"), ("PATCH", f"/api/chats/{chat}")):
                answer = await api(method, path, data=body, headers={"content-type": "application/json"})
                assert answer.status < 500, (body, answer.status, answer.data)
                if answer.status >= 400:
                    assert answer.code, body
                    continue
                log = await api.log(answer.json["id"])
                assert log[0]["type"] == "session.created", body
                assert not [event for event in log if event["type"] == "session.record_lost"], body
