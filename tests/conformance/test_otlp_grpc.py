"""Traces and metrics over real gRPC, taken by a server that grpcio runs in this process (E-04). `make conformance`
installs grpcio and the exporter; over HTTP the same is told by `tests/scenario/test_telemetry.py`."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.collector import Collector
from tests.faults.driver import IDLE, WAITING
from tests.faults.harness import Case
from tests.faults.scenarios import SCENARIOS
from tests.scenario.command_line import CommandLine
from tests.scenario.kit import look
from treadle import Agent, ScriptedModel
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.telemetry.settings import Telemetry
from treadle.testing.fake_openai import FakeOpenAI

pytestmark = pytest.mark.thorough(one_of=12)

grpc = pytest.importorskip("grpc", reason="no grpcio; make conformance installs it")
pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="no exporter; make conformance installs it")

OUTSIDE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SERVICES = {"trace.v1.TraceService": "/v1/traces", "metrics.v1.MetricsService": "/v1/metrics"}


class GrpcCollector(Collector):
    """The same collector behind another door: `collector.address`, and the path of HTTP for each of the services."""

    def __init__(self) -> None:
        super().__init__()
        self._grpc = grpc.server(ThreadPoolExecutor(2))
        for service, path in SERVICES.items():
            taking = {"Export": grpc.unary_unary_rpc_method_handler(self._taking(path))}
            name = f"opentelemetry.proto.collector.{service}"
            self._grpc.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, taking),))
        self.address = f"http://127.0.0.1:{self._grpc.add_insecure_port('127.0.0.1:0')}"
        self._grpc.start()

    def _taking(self, path: str) -> Any:
        def export(body: bytes, context: Any) -> bytes:
            self.take(path, body, dict(context.invocation_metadata()))
            return b""  # an answer without any fields: all of it was taken

        return export

    def __exit__(self, *exception_info: Any) -> None:
        self._grpc.stop(None).wait()
        super().__exit__(*exception_info)


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture
def collector() -> Iterator[GrpcCollector]:
    with GrpcCollector() as new_collector:
        yield new_collector


async def test_a_run_is_a_tree_and_its_metrics_come_too(
    collector: GrpcCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=looms")
    telemetry = Telemetry(collector.address, "grpc")
    steps = ScriptedModel([Call("look"), Say("Done.")])
    async with Agent(model=steps, tools=[look], builtin=False, telemetry=telemetry) as agent:
        await agent.chat().ask("Look around.")
        assert agent.warnings == []
    assert collector.problems() == []
    assert collector.tree() == [
        "invoke_agent treadle",
        "  turn 1",
        "    chat script",
        "    execute_tool look",
        "  turn 2",
        "    chat script",
    ]
    assert [n for _, _, n in collector.points("treadle.tool.duration")] == [1]
    assert {headers["x-team"] for headers in collector.headers} == {"looms"}


def test_a_command_joins_the_trace_of_its_job_by_the_usual_variables(
    cli: CommandLine, collector: GrpcCollector
) -> None:
    model = cli.script('[[turn]]\ntext = "Hello."\n')
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    run_result = cli("run", "--model", model, "Say hello.", env={**variables, "TRACEPARENT": OUTSIDE})
    assert (run_result.code, "collector" in run_result.err) == (0, False), run_result.err
    assert collector.problems(OUTSIDE.split("-")[2]) == []
    assert collector.one("invoke_agent treadle").trace == OUTSIDE.split("-")[1]
    assert collector.points("gen_ai.client.token.usage")


def test_a_command_whose_collector_is_away_says_so_and_ends(cli: CommandLine) -> None:
    with GrpcCollector() as absent_collector:
        pass
    model = cli.script('[[turn]]\ntext = "Hello."\n')
    away = {
        "TREADLE_OTEL_ENDPOINT": absent_collector.address,
        "TREADLE_OTEL_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
    }
    run_result = cli("run", "--model", model, "Say hello.", env=away)
    assert run_result.code == 0
    (line,) = [line for line in run_result.err.splitlines() if absent_collector.address in line]
    assert line.startswith(f"traces do not reach the collector ({absent_collector.address})")
    assert "Traceback" not in run_result.err


def test_a_run_that_was_killed_and_resumed_is_one_tree(
    collector: GrpcCollector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with FakeOpenAI(SCENARIOS["work"]) as fake:
        case = Case(tmp_path, fake, collector=collector.address)
        assert case.go(faults="kill@append.after:tool.execution_start#1") < 0
        while (code := case.go()) == WAITING:
            pass
    assert code == IDLE, case.errors()
    assert collector.problems() == []
    assert len({span.trace for span in collector.spans}) == 1
    tenures = {one.epoch for one in case.log() if one.epoch}
    assert collector.one("invoke_agent treadle").moments.count("treadle.worker") == len(tenures) > 1
