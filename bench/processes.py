"""Starts what is measured: the fake provider, a contestant, a command. Each in a process of its own, and each ended."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import msgspec

REPOSITORY = Path(__file__).parent.parent
TIME_LIMIT_S = 600


class Failed(Exception):
    """A measurement that could not be made; the text says why."""


class Unsound(Failed):
    """A measurement that was made, but not of what it was meant to measure."""


class Spent(msgspec.Struct, frozen=True):
    """What one process took from start to end."""

    wall_s: float
    cpu_s: float
    memory_mb: float


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, with Treadle importable and bytecode caches in use as they are for users."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    path = os.pathsep.join(filter(None, [str(REPOSITORY / "src"), kept.get("PYTHONPATH", "")]))
    return {**kept, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore", **(extra or {})}


def fake_provider() -> AbstractContextManager[str]:
    """The base URL of a server for whole chats, for as long as it runs."""
    return _server("treadle.testing.fake_openai", "--bench", "--until-eof")


def fake_streams() -> AbstractContextManager[str]:
    """The address of a server for single answers of all providers, for as long as it runs."""
    return _server("bench.streams")


@contextmanager
def _server(*module: str) -> Iterator[str]:
    """What a server prints first, which is its address. It ends with its standard input."""
    command = [sys.executable, "-m", *module]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), cwd=REPOSITORY, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        if not url:
            raise Failed(f"{module[0]} did not start")
        try:
            yield url
        finally:
            server.stdin.close()


def contestant_command(python: Path, file: str, scenario: str, parameters: Mapping[str, object]) -> list[str]:
    return [str(python), str(REPOSITORY / "bench" / "contestants" / file), scenario, json.dumps(parameters)]


def run_contestant(python: Path, file: str, scenario: str, parameters: Mapping[str, object]) -> dict[str, float]:
    """Run one scenario of one contestant; its figures."""
    command = contestant_command(python, file, scenario, parameters)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment(), timeout=TIME_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{scenario} took more than {TIME_LIMIT_S} s") from error
    if done.returncode:
        raise Failed(f"{scenario} failed: {last_line(done.stderr)}")
    return msgspec.json.decode(last_line(done.stdout), type=dict[str, float])


def run_command(command: Sequence[str], cwd: Path, extra: Mapping[str, str] | None = None) -> Spent:
    """Run a command to its end and take its time, its CPU and its peak of memory."""
    log = cwd / ".bench-output"
    with log.open("wb") as output:
        begun = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=cwd, env=environment(extra))
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        said = last_line(log.read_text(errors="replace"))
        raise Failed(f"{' '.join(command[-3:])!r} ended with {process.returncode}: {said}")
    return Spent(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
