"""Real software: llama.cpp's own server with a real model behind it, through the command line, on each of the three
wires that it speaks (M-01, M-02, M-05). The model is tiny and often wrong: the tests check how runs end."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenario.command_line import CommandLine, CommandResult
from tests.unit.adapters.models.local import real

pytestmark = pytest.mark.thorough(one_of=12)

SCRIPT = Path(__file__).parent / "llama_server.py"
WIRES = {
    "llamacpp:smollm2": ("LLAMACPP_BASE_URL", "/v1"),
    "openai:smollm2": ("OPENAI_BASE_URL", "/v1"),
    "openai-responses:smollm2": ("OPENAI_BASE_URL", "/v1"),
    "anthropic:smollm2": ("ANTHROPIC_BASE_URL", ""),
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    weights = real.weights()
    path = os.pathsep.join(filter(None, [*real.import_path(), os.environ.get("PYTHONPATH", "")]))
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), str(weights)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as server:
        assert server.stdout is not None
        try:
            line = server.stdout.readline().strip()
            assert line.startswith("http://"), "the server did not start"
            yield line
        finally:
            server.kill()


@pytest.fixture
def llama(tmp_path: Path, address: str) -> CommandLine:
    cli = CommandLine(tmp_path)
    (cli.folder / "system.txt").write_text("You are brief.")
    cli.environment |= {"TREADLE_SUMMARIZE": "false", "TREADLE_TEMPERATURE": "0", "TREADLE_CONTEXT_WINDOW": "2048"}
    cli.environment |= {variable: address + path for variable, path in WIRES.values()}
    return cli


def run(llama: CommandLine, model: str, text: str, *options: str) -> CommandResult:
    words = ("--system", str(llama.folder / "system.txt"), "--tools", ",", "--json", *options)
    return llama("run", text, "--model", model, *words)


@pytest.mark.parametrize("model", WIRES)
def test_an_answer_that_is_cut_at_the_limit(llama: CommandLine, model: str) -> None:
    llama.environment["TREADLE_MAX_TOKENS"] = "16"
    run_result = run(llama, model, "Tell me a long story about a dog.")
    assert run_result.code == 54, run_result.err
    (message,) = run_result.of("assistant.message")
    assert message["content"]
    (turn,) = run_result.of("assistant.turn_end")
    assert (turn["finish_reason"], turn["usage"]["output"]) == ("length", 16)
    assert turn["usage"]["input"] > 10


@pytest.mark.parametrize("model", WIRES)
def test_a_question_that_does_not_fit(llama: CommandLine, model: str) -> None:
    run_result = run(llama, model, "word " * 4_000)
    assert run_result.code == 1
    assert run_result.of("session.error")[0]["class"] == "context_limit", run_result.out


@pytest.mark.parametrize("effort", ["none", "low"])
def test_the_server_takes_a_reasoning_effort(llama: CommandLine, effort: str) -> None:  # M-16
    llama.environment["TREADLE_MAX_TOKENS"] = "4"
    run_result = run(llama, "llamacpp:smollm2", "Hi.", "--reasoning-effort", effort)
    assert run_result.code in (0, 54), run_result.err
    assert not [notice for notice in run_result.of("model.notice") if notice["kind"] == "effort"]


def test_a_chat_goes_from_wire_to_wire(llama: CommandLine) -> None:  # M-10
    llama.environment["TREADLE_MAX_TOKENS"] = "8"
    assert run(llama, "llamacpp:smollm2", "Hi.").code in (0, 54)
    for model in WIRES:
        run_result = run(llama, model, "Go on.", "--chat", "last")
        assert run_result.code in (0, 54), run_result.out


def test_tools_by_the_protocol(llama: CommandLine) -> None:
    """The model may call a tool or not; the request with tools is taken, and every call is answered."""
    llama.environment["TREADLE_MAX_TOKENS"] = "64"
    words = ("--system", str(llama.folder / "system.txt"), "--tools", "list_directory", "--max-turns", "2", "--json")
    run_result = llama("run", "List the files.", "--model", "llamacpp:smollm2", *words)
    assert run_result.code in (0, 1, 53, 54), run_result.err
    assert not run_result.of("session.error"), run_result.out
    calls = [call["call"] for message in run_result.of("assistant.message") for call in message["tool_requests"]]
    assert calls == [result["call"] for result in run_result.of("tool.execution_complete")]


def test_the_server_lists_its_models(llama: CommandLine) -> None:  # M-12
    listed = llama("models", "--remote", "--json")
    assert listed.code == 0, listed.err
    (document,) = listed.lines
    assert document["providers"]["llamacpp"]["state"] == "ready"
    assert any(model["model"].startswith("llamacpp:") for model in document["models"])


def test_the_server_tells_its_window(llama: CommandLine) -> None:  # M-12
    """Known after the first run, for any name: the server was started with 2,048 tokens."""
    del llama.environment["TREADLE_CONTEXT_WINDOW"]
    llama.environment["TREADLE_MAX_TOKENS"] = "4"
    assert run(llama, "llamacpp:any-name", "Hi.").code in (0, 54)
    (document,) = llama("models", "--json").lines
    (window,) = (model["window"] for model in document["models"] if model["model"] == "llamacpp:any-name")
    assert window == 2_048
    (document,) = llama("models", "--remote", "--json").lines
    assert {model["window"] for model in document["models"] if model["model"].endswith(".gguf")} == {2_048}
