"""The real command line in processes of its own, with a home, a project and scripts in a temporary folder."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests import forked
from tests.forked import SOURCES, Forked
from tests.homes import seed

TIMEOUT_S = 180
NO_LOCAL_SERVER = {
    "OLLAMA_HOST": "127.0.0.1:9",
    "LMSTUDIO_BASE_URL": "http://127.0.0.1:9/v1",
    "LLAMACPP_BASE_URL": "http://127.0.0.1:9/v1",
    "VLLM_BASE_URL": "http://127.0.0.1:9/v1",
}
"""No model server of the machine that runs the tests is found."""


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The printed JSON objects, one per line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def events(self) -> list[dict[str, Any]]:
        return self.lines

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event["data"] for event in self.events if event["type"] == kind]


class CommandLine:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = seed(folder / "home")
        self.project = folder / "project"
        self.project.mkdir()
        (folder / "user").mkdir()
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "user"),
            "PYTHONPATH": SOURCES,
            "TREADLE_HOME": str(self.home),
            "TREADLE_RETRY_BASE_S": "0",
            "TREADLE_TITLES": "off",  # fake providers count their requests
            "LANG": "C.UTF-8",
        }

    def script(self, text: str, name: str = "script.toml") -> str:
        """Write a script; the model that plays it."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return f"scripted:{path}"

    def __call__(
        self, *arguments: str, env: Mapping[str, str] | None = None, input: str = "", fresh: bool = False
    ) -> CommandResult:
        """Run a command to its end, in the project; `fresh`: in an interpreter of its own."""
        environment = self.environment | dict(env or {})
        process = forked.run(
            self.words(*arguments), cwd=self.project, env=environment, input=input, timeout=TIMEOUT_S, fresh=fresh
        )
        return CommandResult(process.returncode, process.stdout, process.stderr)

    def start(self, *arguments: str, env: Mapping[str, str] | None = None, **more: Any) -> "subprocess.Popen[str]":
        """Start a command, in the project. `more`: as for `Forked`."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | more
        return Forked(self.words(*arguments), cwd=self.project, env=self.environment | dict(env or {}), **pipes)

    @staticmethod
    def words(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "treadle", *arguments]

    def files(self) -> Iterator[Path]:
        """Everything below Treadle's home."""
        return (path for path in self.home.rglob("*") if path.is_file())


def until(process: "subprocess.Popen[str]", kind: str) -> list[dict[str, Any]]:
    """Read the events of a process up to the first of this type."""
    assert process.stdout is not None
    events: list[dict[str, Any]] = []
    for line in process.stdout:
        events.append(json.loads(line))
        if events[-1]["type"] == kind:
            return events
    raise AssertionError(f"no {kind} in {[event['type'] for event in events]}")


def end(process: "subprocess.Popen[str]") -> CommandResult:
    out, err = process.communicate(timeout=TIMEOUT_S)
    return CommandResult(process.returncode, out, err)
