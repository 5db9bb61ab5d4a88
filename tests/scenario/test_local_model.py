"""A real model, SmolLM2 with 135 million weights, through the whole loop by the real command line (M-15). It is tiny
and often wrong: the tests check that everything it does is valid and durable, never the text of its answers."""

import os
import signal
import time
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest

from tests.scenario.command_line import CommandLine, CommandResult, end, until
from tests.unit.adapters.models.local import real
from treadle import Agent
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin import make_builtin_tools
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.registry import Tools
from treadle.adapters.workspace.root import Root
from treadle.frontends.cli.options import EXIT_INCOMPLETE, EXIT_OK, EXIT_TURN_CAP
from treadle.protocol.options import Budget, ChatOptions

pytestmark = pytest.mark.thorough(one_of=8)

MODEL = ("--model", "local:smollm2")
WORDS_ONLY = ("--tools", ",")
LONG = "1500"


@pytest.fixture
def local(cli: CommandLine) -> CommandLine:
    """A command line that can import the engine and find the weights, with a short system text."""
    real.weights()
    cli.environment["PYTHONPATH"] = os.pathsep.join([cli.environment["PYTHONPATH"], *real.import_path()])
    cli.environment |= {"TREADLE_TEMPERATURE": "0", "TREADLE_MAX_TOKENS": "32", "TREADLE_SUMMARIZE": "false"}
    (cli.folder / "system.txt").write_text("You work in a project.")
    return cli


def system(cli: CommandLine) -> tuple[str, str]:
    return ("--system", str(cli.folder / "system.txt"))


def engine_of(pid: int) -> int:
    """The inference process of a run."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            if b"engine.py" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    raise AssertionError("no inference process")


def assert_sound(run_result: CommandResult) -> None:
    """The log has no gap, every call has its one result, and what the model cost was counted, not guessed."""
    seqs = [event["seq"] for event in run_result.events if "seq" in event]
    assert seqs == list(range(1, len(seqs) + 1))
    requests = [call["call"] for message in run_result.of("assistant.message") for call in message["tool_requests"]]
    assert requests == [result["call"] for result in run_result.of("tool.execution_complete")]
    for turn in run_result.of("assistant.turn_end"):
        if turn["finish_reason"] in ("stop", "tool_calls", "length"):
            assert turn["usage"]["input"] > 20
            assert not turn["usage"]["estimated"]


def test_a_run_makes_valid_calls_and_ends(local: CommandLine) -> None:
    (local.project / "notes.txt").write_text("The word is heron.\n")
    tools = ("--tools", "read_file,list_directory")
    task = "Use list_directory, then read_file notes.txt."
    run_result = local("run", task, *MODEL, *system(local), *tools, "--max-turns", "2", "--json")
    assert run_result.code in (EXIT_OK, EXIT_TURN_CAP, EXIT_INCOMPLETE), run_result.err
    assert run_result.types[-1] == "session.idle"
    exported = local("export", "last")
    assert_sound(exported)
    schemas = {
        spec.name: spec.parameters
        for spec in Tools(make_builtin_tools(ToolContext(Root, MemoryStore())), []).list_specs(ChatOptions(root="/"))
    }
    finished = {turn["turn"]: turn["finish_reason"] for turn in exported.of("assistant.turn_end")}
    messages = exported.of("assistant.message")
    assert messages
    for message in messages:
        for request in message["tool_requests"]:
            assert request["name"] in ("read_file", "list_directory")
            if finished[message["turn"]] == "tool_calls":  # else it was cut off at the limit
                assert jsonschema_rs.is_valid(schemas[request["name"]], msgspec.json.decode(request["arguments"]))


def test_killed_in_the_middle_of_an_answer_it_resumes(local: CommandLine) -> None:
    task = "Tell a long story about a river and the sea."
    arguments = ("run", task, *MODEL, *system(local), *WORDS_ONLY, "--json")
    process = local.start(*arguments, env={"TREADLE_MAX_TOKENS": "96"})
    events = until(process, "assistant.message_delta")
    engine = engine_of(process.pid)
    process.kill()
    end(process)
    assert real.has_exited(engine, 10.0)  # no process left behind
    resumed = local("resume", "last", "--json")
    assert resumed.code == EXIT_INCOMPLETE, resumed.err  # 96 tokens do not hold a long story
    assert resumed.of("assistant.turn_retry")[0]["class"] == "worker_lost"
    exported = local("export", "last")
    assert_sound(exported)
    assert len(exported.of("assistant.message")) == 1
    recorded = [event["seq"] for event in events if "seq" in event]
    assert [event["seq"] for event in exported.events][: len(recorded)] == recorded


def test_an_interrupt_stops_the_generation_at_once(local: CommandLine) -> None:  # L-07
    task = "Tell a long story about a river and the sea."
    arguments = ("run", task, *MODEL, *system(local), *WORDS_ONLY, "--json")
    process = local.start(*arguments, env={"TREADLE_MAX_TOKENS": LONG})
    until(process, "assistant.message_delta")
    engine = engine_of(process.pid)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    run_result = end(process)
    assert run_result.code == 130
    assert time.monotonic() - began < 15  # the rest of the answer would take minutes
    assert real.has_exited(engine, 5.0)
    exported = local("export", "last")
    message = exported.of("assistant.message")[0]
    assert message["partial"]
    assert message["content"]


async def test_a_budget_stops_it_by_what_was_really_counted(tmp_path: Path) -> None:  # L-11
    real.weights()
    options = ChatOptions(
        model="local:smollm2",
        root=str(tmp_path),
        system_prompt="Talk.",
        tools=(),
        temperature=0.0,
        max_tokens=16,
        summarize=False,
        chat_budget=Budget(tokens=660),
    )
    async with Agent(env=os.environ) as agent:
        chat = agent.chat(options=options)
        first = [event.type async for event in chat.send("Tell a story.")]
        assert "assistant.message" in first
        second = [event.type async for event in chat.send("Go on.")]
        assert "assistant.message" not in second
        assert "session.limit_reached" in second
        usage = (await chat.state()).totals.usage
    assert 16 < usage.tokens < 660
    assert not usage.estimated
