"""Real processes that use the same database as the test."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

import treadle
from treadle.adapters.stores.sqlite import SqliteStore

PRELUDE = """
import asyncio, os, signal, sys, time
from pathlib import Path
from treadle.base import file_system
from treadle.errors import *
from treadle.ports.store import Commit
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.testing.store_contract.helpers import A, B, add, begin, claim_lease, record, make_summary

def say(*words):
    print(*words, flush=True)

def hear():
    return sys.stdin.readline().strip()

def text(words):
    return b'{"turn":1,"model":"%s"}' % words.encode()

async def main(store):
"""


def text(words: str) -> bytes:
    """The body of a real event, as long as one likes; processes have it, too."""
    return b'{"turn":1,"model":"%s"}' % words.encode()


class Process:
    """A process that runs `body` with a store of its own, talks by lines, and is never left behind."""

    def __init__(self, path: Path, body: str) -> None:
        script = PRELUDE + textwrap.indent(textwrap.dedent(body), "    ")
        script += "\n    await store.close()\n\nasyncio.run(main(SqliteStore(Path(sys.argv[1]))))\n"
        env = os.environ | {"PYTHONPATH": str(Path(treadle.__file__).parent.parent)}
        self.popen = subprocess.Popen(
            [sys.executable, "-c", script, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )

    def hear(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def say(self, line: str = "") -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def finish(self) -> int:
        return self.popen.wait(timeout=60)

    def close(self) -> None:
        self.kill()
        for pipe in (self.popen.stdin, self.popen.stdout):
            assert pipe is not None
            pipe.close()


Spawn = Callable[[str], Process]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "treadle.db"


@pytest.fixture
def spawn(path: Path) -> Iterator[Spawn]:
    processes: list[Process] = []

    def start(body: str) -> Process:
        processes.append(Process(path, body))
        return processes[-1]

    yield start
    for process in processes:
        process.close()


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    await store.close()
