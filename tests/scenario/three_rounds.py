"""The task that every provider must do with the same result: read a file, write a file, run a command, answer. Run with
the real command line against a fake server."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from tests.scenario.command_line import CommandLine, CommandResult
from treadle.testing.fake_model import Reply

PROMPT = "Double the number in number.txt."
REPLIES = [
    Reply(text="I look first.", calls=[("read_file", {"path": "number.txt"})]),
    Reply(calls=[("write_file", {"path": "number.txt", "content": "42\n"})]),
    Reply(calls=[("run_command", {"command": "cat number.txt >> log.txt; wc -l < log.txt"})]),
    Reply(text="It is 42 now — doubled.", chunk_size=5),
]


class TaskOutcome(NamedTuple):
    """The outcome of the task, free of any provider."""

    code: int
    files: dict[str, str]
    calls: list[tuple[str, str, bool]]
    messages: list[str]
    streamed_text: str
    turns: list[tuple[int, int, str]]
    """Tokens in and out, and why each turn ended."""
    results: tuple[str, ...] = ()


def in_words(reply: Reply) -> Reply:
    """The same answer of a model that writes its calls into its text."""
    calls = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in reply.calls]
    blocks = [f"<tool_call>\n{call}\n</tool_call>" for call in calls]
    return replace(reply, text="\n".join(filter(None, [reply.text, *blocks])), calls=())


def prepare(cli: CommandLine) -> None:
    (cli.project / "number.txt").write_text("21\n")


def outcome(cli: CommandLine, run_result: CommandResult) -> TaskOutcome:
    names: dict[str, str] = {data["call"]: data["name"] for data in run_result.of("tool.execution_start")}
    return TaskOutcome(
        run_result.code,
        {path.name: path.read_text() for path in sorted(cli.project.iterdir()) if path.is_file()},
        [(data["call"], names[data["call"]], data["success"]) for data in run_result.of("tool.execution_complete")],
        [data["content"] for data in run_result.of("assistant.message")],
        "".join(data["text"] for data in run_result.of("assistant.message_delta")),
        [_turn(data) for data in run_result.of("assistant.turn_end")],
        tuple(data["result"] for data in run_result.of("tool.execution_complete")),
    )


def _turn(data: Mapping[str, Any]) -> tuple[int, int, str]:
    return data["usage"]["input"], data["usage"]["output"], data["finish_reason"]


def three_rounds(cli: CommandLine, model: str, env: Mapping[str, str], *options: str) -> TaskOutcome:
    prepare(cli)
    return outcome(cli, cli("run", PROMPT, "--model", model, "--json", *options, env=env))


DONE = TaskOutcome(
    code=0,
    files={"log.txt": "42\n", "number.txt": "42\n"},
    calls=[("1.0", "read_file", True), ("2.0", "write_file", True), ("3.0", "run_command", True)],
    messages=["I look first.", "", "", "It is 42 now — doubled."],
    streamed_text="I look first.It is 42 now — doubled.",
    turns=[(10, 5, "tool_calls")] * 3 + [(10, 5, "stop")],
)
"""With every provider that counts tokens. The words of the tools are left out: compare them with another provider's."""
