"""Cases for the fault tests: a folder with a project, a canary and a store; visits to it by real processes; and the
checker at the end."""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tests.faults.driver import IDLE, MARK, Visit
from tests.forked import OURS, Forked
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base.types import ChatId
from treadle.library.replay import replay
from treadle.protocol import wire
from treadle.protocol.events import Envelope
from treadle.testing.checker import (
    Canary,
    check,
    check_effects,
    check_processes,
    check_seen,
)
from treadle.testing.fake_openai import FakeOpenAI
from treadle.testing.histories import check_messages

TOLD = ("HOME", "TREADLE_", "OTEL_")
"""How variables begin that hold for visits, too."""


class Case:
    """One chat in a folder of its own, and all that is done to it."""

    def __init__(self, folder: Path, fake: FakeOpenAI, **settings: Any) -> None:
        self.folder = folder
        self.fake = fake
        self.mark = uuid.uuid4().hex
        self.root = folder / "root"
        self.root.mkdir()
        (self.root / "notes.txt").write_text("one\ntwo\n")
        outside = folder / "outside"
        outside.mkdir()
        (outside / "canary").write_text("alive")
        self.canary = Canary(outside)
        self.visit = replace(Visit(str(folder), fake.base_url), **settings)
        self._visits: dict[int, Forked] = {}

    @property
    def counter(self) -> Path:
        return self.root / "counter"

    def errors(self) -> str:
        path = self.folder / "stderr"
        return path.read_text() if path.exists() else ""

    def start(self, *, faults: str = "", **changes: Any) -> int:
        visit = msgspec.json.encode(replace(self.visit, **changes)).decode()
        environment = {name: value for name, value in os.environ.items() if name.startswith(TOLD)}
        with open(self.folder / "stderr", "ab") as errors:
            process = Forked(
                [sys.executable, "-m", "tests.faults.driver", visit],
                env=OURS | environment | {"TREADLE_FAULTS": faults, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )
        self._visits[process.pid] = process
        return process.pid

    def end(self, pid: int) -> int:
        try:
            return self._visits[pid].wait(120.0)
        except subprocess.TimeoutExpired as hangs:
            self._visits[pid].kill()
            self._visits[pid].wait()
            raise AssertionError(f"a visit hangs\n{self.errors()}\n{self.story()}") from hangs

    def start_until(self, name: str, passing: int = 1, *, extra_faults: str = "", **changes: Any) -> int:
        """Start a visit and return when it has passed a point."""
        points_file = self.folder / f"passed.{uuid.uuid4().hex}"
        pid = self.start(faults=f"list={points_file};{extra_faults}", **changes)
        self.until(lambda: points_file.exists() and points_file.read_text().split().count(name) >= passing)
        return pid

    def go(self, **changes: Any) -> int:
        return self.end(self.start(**changes))

    def finish(self, most: int = 8, **changes: Any) -> None:
        """Visit until the chat is idle, as people do who have lost their connection."""
        codes = []
        for _ in range(most):
            codes.append(self.go(**changes))
            if codes[-1] == IDLE:
                return
        raise AssertionError(f"not idle after visits that ended with {codes}\n{self.errors()}\n{self.story()}")

    def log(self) -> list[Envelope]:
        import asyncio

        return asyncio.run(self._look())[1]

    def story(self) -> str:
        return "\n".join(wire.to_json(envelope).decode()[:200] for envelope in self.log())

    def until(self, fact: Callable[[], bool]) -> None:
        assert not eventually(lambda: [] if fact() else ["it did not happen"]), f"{self.errors()}\n{self.story()}"

    def check(self, *, is_settled: bool = True, also: Iterable[str] = ()) -> None:
        """The checker, all of it. `also`: event files of other clients, which left when they saw the chat wait."""
        import asyncio

        problems, log = asyncio.run(self._look(is_settled))
        seen_lines = (self.folder / self.visit.seen).read_bytes().splitlines()
        problems += check_seen(seen_lines, log)
        for name in also:
            lines = (self.folder / name).read_bytes().splitlines()
            problems += [f"{name}: {problem}" for problem in check_seen(lines, log[: self._last(lines)])]
        problems += check_effects(self.counter)
        problems += self.canary.find_problems()
        problems += eventually(lambda: check_processes(f"{MARK}={self.mark}"))
        for request in self.fake.requests:
            problems += check_messages(request["messages"])
        leftovers = [path.name for path in self.root.rglob("*") if path.name.startswith(".") or path.suffix == ".tmp"]
        if leftovers:
            problems.append(f"left in the project: {leftovers}")
        assert not problems, "\n".join([*problems, self.story(), self.errors()])

    @staticmethod
    def _last(lines: list[bytes]) -> int:
        return max((wire.from_json(line).seq for line in lines), default=0)

    async def _look(self, is_settled: bool = True) -> tuple[list[str], list[Envelope]]:
        store = SqliteStore(self.folder / "chats.db", lease_s=self.visit.lease_s)
        try:
            (listed,) = await store.list()
            chat = ChatId(listed.summary.chat)
            log = [wire.decode(chat, record) for record in await store.read(chat)]
            problems = await check(store, chat, is_idle=is_settled)
            if is_settled and (divergence := (await replay(store, chat)).divergence) is not None:
                problems.append(f"it cannot be replayed (D-07): {divergence.text}")
            return problems, log
        finally:
            await store.close()


def eventually(look: Callable[[], list[str]], patience_s: float = 30.0) -> list[str]:
    """All that `look` still finds when nothing more changes: a killed worker's command may take a moment to end."""
    until = time.monotonic() + patience_s
    while (problems := look()) and time.monotonic() < until:
        time.sleep(0.01)
    return problems
