"""The real small model behind the port: its output is valid, it stops when told, and it comes back (M-15). The tests
never look at its words."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest
import pytest_asyncio

from tests.faults.chance import SOAK, some
from tests.unit.adapters.models.local.real import has_exited, small_model
from treadle.adapters.models.local.model import LocalModel
from treadle.adapters.models.local.prompt import build_answer_schema
from treadle.adapters.models.local.weights import find_library
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin import make_builtin_tools
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.registry import Tools
from treadle.adapters.workspace.root import Root
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.errors import ConfigError, ModelError
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.content import UserEntry
from treadle.protocol.deltas import Delta, NoticeDelta
from treadle.protocol.options import ChatOptions
from treadle.protocol.tools import ToolSpec

pytestmark = pytest.mark.thorough(one_of=12)

TOOLS = tuple(
    tool
    for tool in Tools(make_builtin_tools(ToolContext(Root, MemoryStore())), []).list_specs(ChatOptions(root="/"))
    if tool.name not in ("update_plan", "edit_file")
)
SYSTEM = "You work in a project."
TASKS = (
    "Read notes.txt.",
    "Run the tests.",
    "List the folder src.",
    "Write hello to a.txt.",
    "Run `ls -la`.",
    "You are done.",
    "Say hello.",
    "Read lines 3 to 9 of main.py.",
    "Delete the file b.txt.",
    "What is in README.md?",
)


@pytest.fixture
async def model() -> AsyncIterator[LocalModel]:
    model = small_model()
    yield model
    await model.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def loaded_model() -> AsyncIterator[LocalModel]:
    """One engine for tests that neither stop it nor care what it was asked before: loading it takes a second."""
    model = small_model()
    await answer(model, build_request("Say yes.", max_tokens=1))
    yield model
    await model.close()


shares_the_engine = pytest.mark.asyncio(loop_scope="module")


def build_request(text: str, **more: object) -> ModelRequest:
    return ModelRequest(SYSTEM, [UserEntry(text)], **more)  # type: ignore[arg-type]


async def answer(model: LocalModel, request: ModelRequest) -> ModelAnswer:
    assembler = Assembler(1)
    async for deltas in model.stream(request):
        assembler.feed(deltas)
    return assembler.finish(model.info.ref)


async def first_delta(model: LocalModel, request: ModelRequest) -> None:
    """Ask, and leave as soon as something was said."""
    async with aclosing(model.stream(request)) as stream:  # type: ignore[type-var]
        async for deltas in stream:
            if deltas:
                return


@shares_the_engine
async def test_every_answer_is_a_valid_call_or_words(loaded_model: LocalModel) -> None:
    """All of them, with the built-in tools: one task and four tools by chance, ten tasks and all tools in a soak."""
    tools_by_name = {tool.name: tool for tool in TOOLS}
    calls = 0
    for task in some(TASKS, 10, "tasks"):
        reply = await answer(loaded_model, build_request(task, tools=TOOLS if SOAK else TOOLS[:4]))
        assert reply.usage is not None
        assert reply.usage.input > 100
        assert 0 < reply.usage.output <= 48
        assert reply.text or reply.requests or reply.finish_reason == "length"
        for request in reply.requests:
            tool = tools_by_name[request.name]
            if reply.finish_reason == "length":  # an endless argument is cut off, and seen to be
                continue
            assert reply.finish_reason == "tool_calls"
            assert jsonschema_rs.is_valid(tool.parameters, msgspec.json.decode(request.arguments))
            calls += 1
    assert calls or not SOAK


@shares_the_engine
async def test_words_stream_and_end_at_the_limit(loaded_model: LocalModel) -> None:
    batches: list[list[Delta]] = []
    async for deltas in loaded_model.stream(build_request("Tell a long story about a river.", max_tokens=12)):
        batches.append(list(deltas))
    assembler = Assembler(1)
    assembler.feed(delta for batch in batches for delta in batch)
    reply = assembler.finish("local:smollm2")
    assert reply.text
    assert (reply.finish_reason, reply.usage and reply.usage.output) == ("length", 12)
    assert sum(bool(batch) for batch in batches) > 3


async def test_the_same_question_costs_less_the_second_time(model: LocalModel) -> None:
    first = await answer(model, build_request("Count to ten.", max_tokens=4))
    second = await answer(model, build_request("Count to ten.", max_tokens=4))
    assert first.usage is not None
    assert second.usage is not None
    assert (first.text, first.usage.cached) == (second.text, 0)
    assert second.usage.cached > second.usage.input // 2


@pytest.mark.slow
async def test_tools_that_can_be_called_no_more_are_not_read_anew(model: LocalModel) -> None:  # L-21
    await answer(model, build_request("Say hello.", tools=TOOLS[:2], max_tokens=4))
    last = await answer(model, build_request("Say hello.", withdrawn=TOOLS[:2], max_tokens=24))
    assert last.usage is not None
    assert last.usage.cached > last.usage.input // 2
    assert last.text
    assert not last.requests


async def test_one_who_leaves_stops_the_generation() -> None:
    """Two thousand tokens would take many times as long as all of this test may."""
    model = small_model(window=4_096, max_output=2_000)
    try:
        await first_delta(model, build_request("Tell a very long story about every river."))
        pid = model.engine.pid
        async with asyncio.timeout(60):
            reply = await answer(model, build_request("Say yes.", max_tokens=4))
        assert reply.text
        assert model.engine.pid == pid  # the same process, which needs not load again
    finally:
        await model.close()


@shares_the_engine
async def test_the_engine_listens_to_nobody_else(loaded_model: LocalModel) -> None:  # S-13
    await answer(loaded_model, build_request("Say yes.", max_tokens=2))
    process = Path(f"/proc/{loaded_model.engine.pid}")
    sockets = {os.readlink(fd).strip("socket:[]") for fd in (process / "fd").iterdir() if fd.is_symlink()}
    ports = [
        line.split()[9] for table in ("tcp", "tcp6") for line in (process / "net" / table).read_text().splitlines()
    ]
    assert sockets.isdisjoint(ports)
    paths = [line.split()[-1] for line in (process / "net" / "unix").read_text().splitlines() if "engine.sock" in line]
    assert not any(map(os.path.exists, paths))


@shares_the_engine
async def test_calls_wait_for_each_other(loaded_model: LocalModel) -> None:
    answers = await asyncio.gather(*(answer(loaded_model, build_request(f"Say {n}.", max_tokens=4)) for n in range(3)))
    assert all(one.usage and one.usage.output <= 4 and one.text for one in answers)


async def test_a_process_that_dies_is_an_error_and_then_another(model: LocalModel) -> None:
    async def murder() -> None:
        async for deltas in model.stream(build_request("Tell a long story.", max_tokens=400)):
            if deltas:
                os.kill(model.engine.pid, signal.SIGKILL)

    with pytest.raises(ModelError, match="ended with code -9") as raised:
        await murder()
    assert raised.value.kind == "cut_stream"
    assert (await answer(model, build_request("Say yes.", max_tokens=4))).text


async def test_close_ends_the_process_in_the_middle_of_an_answer(model: LocalModel) -> None:
    await first_delta(model, build_request("Tell a long story.", max_tokens=400))
    pid = model.engine.pid
    await model.close()
    assert pid
    assert has_exited(pid, 5.0)
    await model.close()


@pytest.mark.slow
async def test_a_conversation_that_is_too_long_is_shortened_and_told_once() -> None:
    model = small_model(window=256, max_output=16)
    entries = [UserEntry(f"{n}: " + "ä✓ " * 100, source="person") for n in range(8)]  # many tokens a letter
    request = ModelRequest(SYSTEM, entries)
    try:
        notices: list[Delta] = []
        for _ in range(2):
            assembler = Assembler(1)
            async for deltas in model.stream(request):
                notices += [delta for delta in deltas if isinstance(delta, NoticeDelta)]
                assembler.feed(deltas)
            usage = assembler.finish("local:smollm2").usage
            assert usage is not None
            assert 50 < usage.input <= 256 - 16
        assert len(notices) == 1
    finally:
        await model.close()


@shares_the_engine
async def test_a_schema_that_is_hard_still_binds(loaded_model: LocalModel) -> None:
    """Refs, unions, patterns and words that the engine does not know."""
    parameters = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["a", "b"]},
            "node": {"$ref": "#/$defs/Node"},
            "when": {"type": "string", "format": "date-time", "pattern": "^[0-9]{4}$"},
            "odd": {"oneOf": [{"type": "integer", "multipleOf": 5}, {"type": "null"}], "x-vendor": True},
        },
        "required": ["kind", "when"],
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
    }
    schema = build_answer_schema([ToolSpec("make_thing", parameters=parameters)])
    schema["anyOf"] = schema["anyOf"][1:]  # it may not speak: whether it does is its own choice
    body = {"messages": [{"role": "user", "content": "Hello!"}], "stream": True, "max_tokens": 32, "temperature": 0}
    written_text = ""
    async for chunks in loaded_model.engine.ask(body, schema):
        written_text += "".join(chunk.text for chunk in chunks)
    # An engine that had dropped the grammar would say hello.
    assert re.match(r'\{"name": "make_thing", "arguments": \{"kind": "[ab]"', written_text)


async def test_a_file_that_is_no_model_is_a_clear_error(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF" + bytes(100))
    model = LocalModel(ModelInfo("local", "broken"), file, find_library("local:broken"))
    with pytest.raises(ConfigError, match=r"broken\.gguf cannot be loaded"):
        await answer(model, build_request("Hi."))
    assert model.engine.pid == 0
