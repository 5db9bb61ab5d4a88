"""A deployment to measure: `treadle serve`, with its worker or with workers apart, as processes with a home of their
own; what they take of the machine, and requests to them."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import aiohttp

from bench.processes import Failed, environment, last_line
from treadle.frontends.server.tokens import Tokens

PER_USER = 80
"""Chats of one user: a server lets a user have a hundred streams."""
AT_ONCE = 32
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
T = TypeVar("T")


class Process:
    """A process that is measured."""

    def __init__(self, arguments: list[str], env: dict[str, str], log: Path, cores: Collection[int] = ()) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                cwd=log.parent,
            )
        if cores:
            os.sched_setaffinity(self._process.pid, cores)

    def first_line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise Failed(f"treadle did not start: {last_line(self._log.read_text(errors='replace'))}")
        return line

    @property
    def cpu_s(self) -> float:
        """CPU of all its threads so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * _TICK_S

    @property
    def resident(self) -> int:
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * _PAGE

    def end(self) -> None:
        """At once: what it leaves is thrown away."""
        self._process.kill()
        self._process.communicate()


class Site:
    """A server and the tokens of its users."""

    def __init__(self, process: Process, address: str, tokens: list[str]) -> None:
        self.process = process
        self.address = address
        self._tokens = tokens
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        # Nothing waits in the measuring process: a server under load is slow, not refused.
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(120), connector=aiohttp.TCPConnector())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    def token(self, number: int) -> str:
        """The token of whoever owns the chat of this number."""
        return self._tokens[number // PER_USER]

    async def post(self, number: int, path: str, body: dict[str, Any]) -> Any:
        """Send a request as the owner of a chat; its answer."""
        headers = {"authorization": f"Bearer {self.token(number)}"}
        async with self._session.post(self.address + path, json=body, headers=headers) as response:
            if response.status >= 300:
                raise Failed(f"POST {path}: {response.status} {(await response.text())[:200]}")
            return None if response.status == 204 else await response.json()

    async def create(self, number: int, **options: Any) -> str:
        return str((await self.post(number, "/api/chats", {"tools": [], "summarize": False, **options}))["id"])


async def each(count: int, act: Callable[[int], Awaitable[T]]) -> list[T]:
    """For every chat, some at a time."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> T:
        async with room:
            return await act(number)

    return list(await asyncio.gather(*(one(number) for number in range(count))))


@contextmanager
def site(
    folder: Path, provider: str, store: str = "", *, chats: int, apart: bool = False, cores: Collection[int] = ()
) -> Iterator[Site]:
    """A server for so many chats at once. `apart`: they are driven by a worker in a process of its own."""
    home = folder / "home"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    tokens = Tokens(home / "tokens.json")
    secrets = [tokens.add(f"user{number}")[1] for number in range(1 + chats // PER_USER)]
    env = environment(
        {
            "HOME": str(home),
            "TREADLE_HOME": str(home),
            "TREADLE_STORE": store,
            "TREADLE_CONSENT": "*",
            "OPENAI_BASE_URL": provider,
            "OPENAI_API_KEY": "none",
            "TREADLE_TITLES": "off",
        }
    )
    serve = ["treadle", "serve", "--port", "0", "--model", "openai:bench", "--workers", str(chats + 1)]
    processes = [Process([*serve, *(["--no-worker"] if apart else [])], env, folder / "serve.log", cores)]
    try:
        address = processes[0].first_line().split()[1].rstrip("/")
        if apart:
            worker = ["treadle", "worker", "--concurrency", str(chats + 1)]
            processes.append(Process(worker, env, folder / "worker.log", cores))
        yield Site(processes[0], address, secrets)
    finally:
        for process in processes:
            process.end()
