"""Cases that say how a run ends are played through the real command line: exit code and last words (L-11, M-11)."""

import msgspec
import pytest

from tests.scenario.command_line import CommandLine
from tests.wires.case import Case, Reply, all_cases, encode_reply, reach
from treadle.testing.fake_http import FakeResponse, Headers, ThreadedServer, json_answer

RUNS = [(model, case) for model, case in all_cases() if case.run is not None]


@pytest.mark.parametrize(("model", "case"), [pytest.param(model, case, id=case.name) for model, case in RUNS])
def test_run(cli: CommandLine, model: str, case: Case) -> None:
    lines = model.startswith("ollama:")

    def answer(method: str, path: str, _headers: Headers, _body: bytes) -> FakeResponse:
        if path.endswith("/api/show"):
            return json_answer(404, {"error": "unknown"})
        reply: Reply = case.all_replies[0]
        return encode_reply(reply, lines=lines)

    with ThreadedServer(answer) as server:
        environment = reach(model, f"{server.url}/v1")
        ended = cli("run", "Hi.", "--model", model, "--json", env=environment)
        shown = cli("run", "Hi.", "--model", model, env=environment)
    assert case.run is not None
    assert (ended.code, shown.code) == (case.run.exit, case.run.exit), ended.err + shown.err
    assert case.run.says in shown.out + shown.err
    (end,) = ended.of("session.run_end")
    assert end["reason"] == ("incomplete" if case.run.exit == 54 else "error"), msgspec.json.encode(end)
