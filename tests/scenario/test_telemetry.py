"""Traces and metrics in a collector that takes them over real HTTP (E-04)."""

import asyncio
import logging
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from tests.collector import Collector
from tests.scenario.command_line import CommandLine
from tests.scenario.http_kit import serving
from tests.scenario.kit import change, fail, look, play
from tests.scenario.providers import PROVIDERS
from treadle import Agent, DynamicTool, ScriptedModel, tool
from treadle.adapters.models.scripted import Call, Fail, ReportUsage, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.adapters.telemetry.settings import Telemetry
from treadle.ports.model import ModelInfo
from treadle.protocol.content import Usage
from treadle.protocol.permissions import SECRET_NAME
from treadle.testing.clock import ManualClock
from treadle.testing.fake_model import Reply

OUTSIDE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
KEY = "sk-ant-api03-" + "Zx9" * 20


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as new_collector:
        yield new_collector


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setattr("treadle.adapters.telemetry.watcher.CLOSE_S", 60.0)

    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


def agent(collector: Collector, steps: Any, *tools: Any, content: bool = False, **settings: Any) -> Agent:
    model = steps if isinstance(steps, ScriptedModel) else ScriptedModel(steps)
    telemetry = Telemetry(collector.url, content=content)
    return Agent(model=model, tools=tools, builtin=False, telemetry=telemetry, retry_base_s=0.0, **settings)


async def test_a_run_is_a_tree_by_the_conventions(collector: Collector) -> None:
    usage = ReportUsage(Usage(1_200, 80, 1_000, 16, 0.25))
    async with agent(
        collector, [(Call("look"), Call("fail"), usage), (Say("Done."), usage)], look, fail
    ) as traced_agent:
        chat = traced_agent.chat()
        await chat.ask("Look around.")
    assert collector.problems() == []
    assert collector.tree() == [
        "invoke_agent treadle",
        "  turn 1",
        "    chat script",
        "    execute_tool look",
        "    execute_tool fail !",
        "  turn 2",
        "    chat script",
    ]
    run, model = collector.one("invoke_agent treadle"), collector.find_spans("chat script")[0]
    assert run.resource["service.name"] == "treadle"
    assert run.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert run.attributes["gen_ai.conversation.id"] == chat.id
    assert (run.attributes["gen_ai.usage.input_tokens"], run.attributes["gen_ai.usage.output_tokens"]) == (2_400, 160)
    assert run.attributes["treadle.end"] == "done"
    assert model.kind == 3  # CLIENT
    assert model.attributes["gen_ai.operation.name"] == "chat"
    assert model.attributes["gen_ai.request.model"] == "script"
    assert model.attributes["gen_ai.usage.cache_read.input_tokens"] == 1_000
    assert model.attributes["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert model.attributes["gen_ai.response.time_to_first_chunk"] >= 0
    tool_span = collector.one("execute_tool look")
    assert tool_span.attributes["gen_ai.tool.name"] == "look"
    assert tool_span.attributes["gen_ai.tool.call.id"]
    assert tool_span.attributes["gen_ai.tool.type"] == "function"
    assert tool_span.schema_url == "https://opentelemetry.io/schemas/1.41.0"
    assert collector.one("execute_tool fail").attributes["error.type"] == "tool_error"


@pytest.mark.parametrize("name", ["openai", "responses", "anthropic", "gemini", "ollama"])
def test_a_model_call_tells_who_answered(cli: CommandLine, collector: Collector, name: str) -> None:
    provider = PROVIDERS[name]
    with provider.make([Reply(text="Hello.")]) as fake:
        env = {**provider.env(fake), "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        run_result = cli("run", "--model", provider.model, "Say hello.", env=env)
        port = int(fake.url.rpartition(":")[2])
    assert run_result.code == 0, run_result.err
    (span,) = [span for span in collector.spans if span.name.startswith("chat ")]
    assert (span.attributes["server.address"], span.attributes["server.port"]) == ("127.0.0.1", port)
    assert span.attributes["gen_ai.response.model"]
    assert ("gen_ai.response.id" in span.attributes) == (name != "ollama")  # Ollama's answers have none


async def test_metrics_tell_tokens_cost_and_times(collector: Collector) -> None:
    info = ModelInfo("acme", "small", window=100_000, usd_per_million_input=1.0, usd_per_million_output=2.0)
    model = ScriptedModel(
        [(Call("look"), ReportUsage(Usage(1_000, 10))), (Say("Done."), ReportUsage(Usage(2_000, 20)))], info=info
    )
    async with agent(collector, model, look) as traced_agent:
        await traced_agent.chat().ask("Look around.")
    tokens = {
        labels["gen_ai.token.type"]: (total, n) for labels, total, n in collector.points("gen_ai.client.token.usage")
    }
    assert tokens == {"input": (3_000, 2), "output": (30, 2)}
    durations = {
        labels["gen_ai.operation.name"]: n for labels, _, n in collector.points("gen_ai.client.operation.duration")
    }
    assert durations == {"chat": 2, "invoke_agent": 1}
    assert [n for _, _, n in collector.points("gen_ai.client.operation.time_to_first_chunk")] == [2]
    assert [(labels["gen_ai.tool.name"], n) for labels, _, n in collector.points("treadle.tool.duration")] == [
        ("look", 1)
    ]
    assert [n for _, _, n in collector.points("treadle.queue.duration")] == [1]
    ((labels, cost, _),) = collector.points("treadle.cost")
    assert cost > 0
    assert (labels["gen_ai.provider.name"], labels["gen_ai.request.model"]) == ("acme", "small")


async def test_what_was_said_is_shown_only_when_asked_for_and_never_a_secret(collector: Collector) -> None:  # S-11
    steps = [(Say("I look."), Call("change", n=4711)), Say("All is well.")]
    async with agent(collector, steps, change) as traced_agent:
        await traced_agent.chat().ask(f"Use the key {KEY} wisely.")
    words = [b"wisely", b"4711", b"changed", b"All is well", KEY.encode()]
    assert [word for word in words if word in collector.raw] == []

    async with agent(collector, steps, change, content=True) as traced_agent:
        await traced_agent.chat().ask(f"Use the key {KEY} wisely.")
    assert [word for word in words if word not in collector.raw] == [KEY.encode()]
    run = collector.find_spans("invoke_agent treadle")[1]
    assert "wisely" in run.attributes["gen_ai.input.messages"]
    assert "All is well." in run.attributes["gen_ai.output.messages"]
    assert collector.find_spans("execute_tool change")[1].attributes["gen_ai.tool.call.arguments"] == '{"n":4711}'


async def test_waits_are_spans_and_what_is_known_by_then_is_sent(collector: Collector) -> None:
    @tool(needs_approval=True)
    async def deploy() -> str:
        """Deploy."""
        return "out"

    lookup = DynamicTool("lookup", "Look something up.", {"type": "object"})
    steps = [Call("look"), Call("deploy"), Call("lookup"), Say("Done.")]
    async with agent(collector, steps, look, deploy) as traced_agent:
        chat = traced_agent.chat(interactive=True, dynamic_tools=(lookup,))
        await play(chat.send("go"))
        await asyncio.to_thread(collector.until, lambda: bool(collector.find_spans("turn 1")))
        assert collector.find_spans("invoke_agent treadle") == []
        (action,) = await chat.actions()
        await play(chat.approve(action))
        (action,) = await chat.actions()
        await play(chat.submit({action.tool_call_id: "found"}))
    assert collector.problems() == []
    assert collector.tree()[4:10] == [
        "  turn 2",
        "    chat script",
        "    wait approval",
        "    execute_tool deploy",
        "  turn 3",
        "    chat script",
    ]
    approval = collector.one("wait approval").attributes
    assert (approval["gen_ai.tool.name"], approval["treadle.decision"]) == ("deploy", "allow")
    assert collector.one("wait client_tool").attributes["gen_ai.tool.name"] == "lookup"
    waits = {labels["treadle.wait"] for labels, _, _ in collector.points("treadle.wait.duration")}
    assert waits == {"approval", "client_tool"}


async def test_failed_attempts_and_failed_runs_are_errors(collector: Collector) -> None:
    steps = [(Fail("overloaded"), Call("look")), Fail("auth", times=0)]
    async with agent(collector, steps, look) as traced_agent:
        await play(traced_agent.chat().send("go"))
    assert collector.problems() == []
    assert collector.tree() == [
        "invoke_agent treadle !",
        "  turn 1",
        "    chat script !",
        "    chat script",
        "    execute_tool look",
        "  turn 2",
        "    chat script !",
    ]
    assert [span.attributes.get("error.type") for span in collector.find_spans("chat script")] == [
        "overloaded",
        None,
        "auth",
    ]
    assert collector.one("invoke_agent treadle").attributes["error.type"] == "auth"


async def test_compactions_are_spans_in_a_run_and_on_their_own(collector: Collector) -> None:
    steps = [Call("look", n=1), Call("look", n=2), (Fail("context_limit", times=1), Say("Done."))]
    model = ScriptedModel(steps, side_answers={"compaction": "We looked."}, follow="turns")
    async with agent(collector, model, look) as traced_agent:
        chat = traced_agent.chat()
        await play(chat.send("go"))
        await play(chat.compact())
    assert collector.problems() == []
    inside, alone = collector.find_spans("compaction")
    assert inside.attributes["treadle.trigger"] == "context_limit"
    turn = next(span for span in collector.spans if span.id == inside.parent)
    assert turn.name == "turn 3"
    assert alone.parent == ""
    assert alone.trace != inside.trace
    model_calls = [span for span in collector.find_spans("chat script") if span.parent == inside.id]
    assert [span.attributes["treadle.purpose"] for span in model_calls] == ["compaction"]


async def test_a_run_joins_the_trace_that_it_was_sent_from(collector: Collector, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "chats.db")
    async with agent(collector, [Say("one"), Say("two"), Say("three")], store=store) as traced_agent:
        chat = traced_agent.chat()
        await play(chat.send("go", traceparent=OUTSIDE))
        await play(chat.send("again", traceparent="00-nonsense"))
    joined, own_span = collector.find_spans("invoke_agent treadle")
    assert (joined.trace, joined.parent) == ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
    assert own_span.parent == ""
    assert own_span.trace != joined.trace


async def test_what_is_not_sampled_there_is_not_sampled_here(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with agent(collector, [Say("one")]) as traced_agent:
        await play(traced_agent.chat().send("go", traceparent=OUTSIDE[:-1] + "0"))
    assert collector.spans == []
    assert collector.points("gen_ai.client.operation.duration") != []
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    async with agent(collector, [Say("one")]) as traced_agent:
        await play(traced_agent.chat().send("go"))
    assert collector.spans == []


async def test_spans_of_tools_hang_on_their_call_and_log_lines_tell_the_trace(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    span_ids: list[tuple[str, str]] = []

    @tool
    async def inner() -> str:
        """Look who asks."""
        here = trace.get_current_span().get_span_context()
        span_ids.append((f"{here.trace_id:032x}", f"{here.span_id:016x}"))
        logging.getLogger("treadle").warning("inside")
        return "seen"

    async with agent(collector, [Call("inner"), Say("Done.")], inner) as traced_agent:
        await traced_agent.chat().ask("go")
    span = collector.one("execute_tool inner")
    assert span_ids == [(span.trace, span.id)]
    assert f"inside [trace {span.trace}]" in caplog.text
    assert not trace.get_current_span().get_span_context().is_valid


async def test_the_usual_variables_say_where_and_under_which_name(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=looms")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mill")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    async with Agent(model=ScriptedModel([Say("Hi.")]), telemetry=True) as new_agent:
        await new_agent.chat().ask("go")
    assert collector.one("invoke_agent treadle").resource["service.name"] == "mill"
    assert {headers["x-team"] for headers in collector.headers} == {"looms"}
    assert collector.metrics == []


async def test_nothing_is_watched_unless_something_is_set_up() -> None:
    async with Agent(model=ScriptedModel([Say("Hi.")]), telemetry=True) as new_agent:
        await new_agent.chat().ask("go")
        assert type(new_agent.deps.observer).__name__ == "Observer"
        assert new_agent.warnings == []


async def test_what_cannot_be_sent_is_told_and_the_work_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Collector() as dead_collector:
        pass
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    async with agent(dead_collector, [Say("Hi.")]) as traced_agent:
        assert (await traced_agent.chat().ask("go")).text == "Hi."
    assert "traces do not reach the collector" in caplog.text


@pytest.mark.parametrize(
    ("variables", "missing"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "carrier-pigeon"}, "carrier-pigeon"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "zipkin"),
    ],
)
async def test_what_cannot_be_set_up_is_a_warning(
    variables: dict[str, str], missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    async with Agent(model=ScriptedModel([Say("Hi.")]), telemetry=True) as new_agent:
        assert missing in new_agent.warnings[0]
        assert (await new_agent.chat().ask("go")).text == "Hi."


async def test_over_http_a_message_brings_its_trace_along_also_through_the_queue(tmp_path: Path) -> None:
    headers = {"traceparent": OUTSIDE}
    async with serving(SqliteStore(tmp_path / "treadle.db"), tmp_path, [], works=False) as server:
        user = server.local
        creation = await user("POST", "/api/chats", {"content": "first"}, headers=headers)
        chat = creation.json["id"]
        await user("POST", f"/api/chats/{chat}/messages", {"content": "second"}, headers=headers)
        await user("POST", f"/api/chats/{chat}/messages", {"content": "third"}, headers={"traceparent": "no\x09ne"})
        log = await user.log(chat)
    message_traces = [
        (one["data"]["content"], one["data"]["traceparent"]) for one in log if "traceparent" in one["data"]
    ]
    assert message_traces == [("first", OUTSIDE), ("second", OUTSIDE), ("third", "")]


def test_a_command_in_a_traced_job_joins_its_trace(cli: CommandLine, collector: Collector) -> None:
    model = cli.script('[[turn]]\ntext = "Hello."\n', "s.toml")
    traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "TRACEPARENT": OUTSIDE}
    run_result = cli("run", "--model", model, "Say hello.", env=traced)
    assert run_result.code == 0
    assert "collector" not in run_result.err
    assert collector.problems(OUTSIDE.split("-")[2]) == []
    assert collector.one("invoke_agent treadle").trace == OUTSIDE.split("-")[1]
    assert collector.points("gen_ai.client.token.usage")


def test_a_command_whose_collector_is_away_says_so_once(cli: CommandLine) -> None:
    model = cli.script('[[turn]]\ntext = "Hello."\n')
    away = {"TREADLE_OTEL_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    run_result = cli("run", "--model", model, "Say hello.", env=away)
    assert run_result.code == 0
    (line,) = [line for line in run_result.err.splitlines() if "127.0.0.1:1" in line]
    assert line.startswith("traces do not reach the collector (http://127.0.0.1:1)")
    assert "Traceback" not in run_result.err


def test_grpc_without_its_package_says_what_to_install(cli: CommandLine) -> None:
    if find_spec("grpc") is not None:
        pytest.skip("grpcio is installed")
    model = cli.script('[[turn]]\ntext = "Hello."\n')
    settings = {"TREADLE_OTEL_ENDPOINT": "http://127.0.0.1:1", "TREADLE_OTEL_PROTOCOL": "grpc"}
    run_result = cli("run", "--model", model, "Say hello.", env=settings)
    assert run_result.code == 0
    assert "opentelemetry-exporter-otlp-proto-grpc is not installed" in run_result.err


async def test_two_processes_that_take_turns_hand_over_each_portion_once(collector: Collector, tmp_path: Path) -> None:
    """Each begins to read where it comes in, and a long run is shown while it goes on."""
    clock = ManualClock()
    file = tmp_path / "chats.db"
    steps = [Call("slow") if n % 3 else Call("ask_user", question="On?") for n in range(1, 13)]

    @tool
    async def slow() -> str:
        """Take six seconds."""
        clock.advance(6)
        return "done"

    chats: list[str] = []
    for n in range(5):
        model = ScriptedModel([*steps, Say("Done.")], follow="turns")
        settings: dict[str, Any] = {"telemetry": Telemetry(collector.url), "clock": clock, "retry_base_s": 0.0}
        async with Agent(SqliteStore(file), model=model, tools=[slow], home=tmp_path, **settings) as new_agent:
            chat = new_agent.chat(chats[0]) if chats else new_agent.chat(interactive=True)
            chats = [chat.id]
            actions = await chat.actions() if n else ()
            await play(chat.answer(actions[0], "yes") if actions else chat.send("go"))
        if n == 1:
            assert collector.find_spans("turn 5")
            assert not collector.find_spans("invoke_agent treadle")
    assert collector.problems() == []
    assert len(collector.find_spans("execute_tool slow")) == 8
    assert len(collector.find_spans("wait question")) == 4
    assert collector.one("invoke_agent treadle").moments.count("treadle.worker") == 5


def test_the_collectors_key_is_a_secret_for_commands() -> None:  # M-13
    assert SECRET_NAME.search("OTEL_EXPORTER_OTLP_HEADERS")
    assert SECRET_NAME.search("OTEL_EXPORTER_OTLP_TRACES_HEADERS")
    assert not SECRET_NAME.search("OTEL_SERVICE_NAME")
