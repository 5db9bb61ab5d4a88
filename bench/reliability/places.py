"""The processes of a deployment on one machine: servers, workers, and what is done to them. Workers have the homes of
two machines: what one of the first leaves behind the others there can collect, the last one's nobody can."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.processes import environment

MARK = "TREADLE_RELIABILITY_MARK"
READY_S = 60.0


class Process:
    """A command of Treadle that can be ended and started again."""

    def __init__(self, name: str, arguments: Sequence[str], env: dict[str, str], folder: Path) -> None:
        self.name = name
        self._arguments = [sys.executable, "-m", "treadle", *arguments]
        self._env = env
        self._log = folder / f"{name}.log"
        self._folder = folder
        self._began = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._began = log.tell()
            self.process = subprocess.Popen(
                self._arguments, env=self._env, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def said(self, words: str) -> str:
        """The line with these words, as soon as there is one since the start."""
        deadline = time.monotonic() + READY_S
        while True:
            lines = self._log.read_bytes()[self._began :].decode(errors="replace").splitlines()
            for line in lines:
                if words in line:
                    return line
            if time.monotonic() > deadline or (self.process is not None and self.process.poll() is not None):
                raise RuntimeError(f"{self.name} never said {words!r}: {lines[-20:]}")
            time.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def ended(self) -> int:
        return self.process.wait(READY_S) if self.process is not None else 0


class Deployment:
    """Two servers and three workers on one store."""

    def __init__(self, folder: Path, store: str, seed: Callable[[Path], object], *, lease_s: float, concurrency: int):
        self.folder = folder
        self.mark = f"{os.getpid()}.{time.monotonic_ns()}"
        homes = [folder / "machine1", folder / "machine2"]
        for home in homes:
            home.mkdir(mode=0o700)
            seed(home)
        tokens = str(folder / "tokens.json")
        envs = [
            environment(
                {"TREADLE_HOME": str(home), "TREADLE_STORE": store, "TREADLE_LEASE_S": str(lease_s), MARK: self.mark}
                | {"TREADLE_TITLES": "off"}
            )
            for home in homes
        ]
        self.token = _token(envs[0], tokens)
        serve = ("serve", "--port", "0", "--no-worker", "--token-file", tokens)
        work = ("worker", "--concurrency", str(concurrency))
        self.servers = [Process(f"server{n}", serve, envs[0], folder) for n in (1, 2)]
        self.workers = [Process(f"worker{n}", work, envs[n // 3], folder) for n in (1, 2, 3)]

    def start(self) -> list[str]:
        """The addresses of the servers."""
        for process in (*self.servers, *self.workers):
            process.start()
        return [server.said("serving").split()[1].partition("/#")[0].rstrip("/") for server in self.servers]

    def end(self) -> list[int]:
        """Everybody drains; their exit codes."""
        for worker in self.workers:
            worker.said("takes up to")
        for process in (*self.workers, *self.servers):
            process.send(signal.SIGTERM)
        return [process.ended() for process in (*self.workers, *self.servers)]

    def kill(self) -> None:
        for process in (*self.workers, *self.servers):
            process.send(signal.SIGKILL)
            process.ended()


def _token(env: dict[str, str], file: str) -> str:
    command = [sys.executable, "-m", "treadle", "tokens", "--file", file, "add", "local"]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.strip()


class Chaos:
    """Kills and pauses workers at random; a killed one is started again, a paused one goes on, at times past its lease.
    In the middle the database is restarted."""

    def __init__(self, place: Deployment, restart: Callable[[], None] | None, lease_s: float, seed: int) -> None:
        self._place = place
        self._restart = restart
        self._lease_s = lease_s
        self._random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.over = False

    def rage(self, seconds: float) -> None:
        began = time.monotonic()
        paused: dict[str, float] = {}
        while (now := time.monotonic() - began) < seconds and not self.over:
            if self._restart is not None and now > seconds / 2 and not self.done["database restarted"]:
                self._restart()
                self.done["database restarted"] += 1
            self._wake(paused, now)
            self._strike(paused, now)
            time.sleep(self._random.uniform(0.3, 1.2) * min(1.0, self._lease_s / 5))
        self._wake(paused, float("inf"))

    def _strike(self, paused: dict[str, float], now: float) -> None:
        worker = self._random.choice(self._place.workers)
        if worker.name in paused:
            return
        if self._random.random() < 0.5:
            worker.send(signal.SIGKILL)
            worker.ended()
            worker.start()
            self.done["killed"] += 1
        else:
            worker.send(signal.SIGSTOP)
            paused[worker.name] = now + self._random.uniform(0.2, 1.6) * self._lease_s
            self.done["paused"] += 1

    def _wake(self, paused: dict[str, float], now: float) -> None:
        for worker in self._place.workers:
            if worker.name in paused and paused[worker.name] <= now:
                del paused[worker.name]
                worker.send(signal.SIGCONT)
