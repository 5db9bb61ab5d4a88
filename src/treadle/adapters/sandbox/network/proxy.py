"""The proxy of one command: HTTP CONNECT, plain HTTP and SOCKS5 on a listening socket that lies in the command's own
network, connections to allowed hosts from the network of the machine, and a log of both.

A name is resolved here, every address that it has is checked, and the connection goes to the checked address itself: a
name that points to a private address, or does so the second time, leads nowhere."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from treadle.adapters.sandbox.network.proxy_requests import (
    HEAD_SIZE,
    BadRequest,
    Request,
    accepted,
    declined,
    read_request,
)
from treadle.base.host_patterns import expand, is_address, matches, refused_address

_PIECE = 1 << 16
_MOST_REACHED = 10_000

Endpoint = tuple[str, int]


class ProxyLimits(NamedTuple):
    connections: int = 256
    head_s: float = 20.0
    """How long a program may take to say what it wants."""
    connect_s: float = 20.0
    idle_s: float = 300.0
    """How long a connection may carry nothing."""
    log_lines: int = 10_000


LIMITS = ProxyLimits()


class Journal:
    """The log: a line of JSON for each connection, written when it ends, and one when a host is first reached, so that
    neither a kill nor a flood of connections hides it."""

    def __init__(self, path: str, most: int = LIMITS.log_lines) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._left = most
        self._reached: set[Endpoint] = set()

    def write_reached(self, host: str, port: int) -> None:
        if (host, port) not in self._reached and len(self._reached) < _MOST_REACHED:
            self._reached.add((host, port))
            self._append({"host": host[:255], "port": port, "refused": "", "reached": True})

    def write(self, host: str, port: int, sent_bytes: int = 0, received: int = 0, refused: str = "") -> None:
        if self._left <= 0:
            return
        self._left -= 1
        self._append({"host": host[:255], "port": port, "sent": sent_bytes, "received": received, "refused": refused})

    def _append(self, entry: Mapping[str, object]) -> None:
        with suppress(OSError):  # a full disk costs the log, not the connection
            os.write(self._file, json.dumps(entry).encode() + b"\n")


class Refusal(Exception):
    """Why a host is not connected to."""


class Unreachable(Exception):
    """An allowed host that does not answer."""


class Proxy:
    """`fixed` says where hosts of a name are, without any look or check: tests have no public hosts of their own."""

    def __init__(
        self,
        patterns: Sequence[str],
        journal: Journal,
        limits: ProxyLimits = LIMITS,
        fixed: Mapping[str, Endpoint] | None = None,
    ) -> None:
        self._patterns = expand(patterns)
        self._journal = journal
        self._limits = limits
        self._fixed = fixed or {}
        self._open: set[asyncio.Task[None]] = set()

    async def serve(self, listener: socket.socket) -> None:
        """Take connections until cancelled; then end those that are open and log them."""
        server = await asyncio.start_server(self._take, sock=listener, limit=HEAD_SIZE)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            server.close()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= self._limits.connections:
            self._journal.write("", 0, refused=f"more than {self._limits.connections} connections at a time")
            writer.transport.abort()
            return
        self._open.add(task)
        try:
            await self._answer(reader, writer)
        except (
            OSError,
            asyncio.CancelledError,
        ):  # the program is gone, or the command has ended, and so does this task
            return
        finally:
            self._open.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._limits.head_s):
                request = await read_request(reader, writer)
        except (BadRequest, TimeoutError) as error:
            reason = str(error) or f"no request within {self._limits.head_s:g} s"
            self._journal.write("", 0, refused=reason)
            writer.write(declined("plain", "refused", reason))
            return await self._flush(writer)
        try:
            upstream = await self._connect(request)
        except Refusal as error:
            self._journal.write(request.host, request.port, refused=str(error))
            writer.write(declined(request.kind, "refused", str(error)))
            return await self._flush(writer)
        except Unreachable as error:
            self._journal.write(request.host, request.port, refused=f"unreachable: {error}")
            writer.write(declined(request.kind, "unreachable", str(error)))
            return await self._flush(writer)
        await self._relay(request, (reader, writer), upstream)

    async def _flush(self, writer: asyncio.StreamWriter) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.connect_s):
                await writer.drain()
                if writer.can_write_eof():
                    writer.write_eof()
                await asyncio.sleep(0)

    async def _connect(self, request: Request) -> "tuple[asyncio.StreamReader, asyncio.StreamWriter]":
        host, port = request.host.lower().rstrip("."), request.port
        if not matches(self._patterns, host, port):
            raise Refusal(f"{host}:{port} is not among the hosts that this command may reach")
        try:
            async with asyncio.timeout(self._limits.connect_s):
                return await _first_of(await self._addresses(host, port))
        except OSError as error:  # the time limit is one, too
            raise Unreachable(f"{host}:{port} cannot be reached: {error.strerror or 'no answer in time'}") from error

    async def _addresses(self, host: str, port: int) -> list[Endpoint]:
        """Where to connect to. Refusal if one of a name's addresses is not public: then no part of the answer is
        trusted."""
        if host in self._fixed:
            return [self._fixed[host]]
        if is_address(host):
            addresses = [host]
        else:
            rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(str(row[4][0]) for row in rows))
        for address in addresses:
            if address_kind := refused_address(address) or _own_address(address):
                raise Refusal(f"{host} is at {address}, which is {address_kind}")
        return [(address, port) for address in addresses]

    async def _relay(
        self,
        request: Request,
        program: "tuple[asyncio.StreamReader, asyncio.StreamWriter]",
        upstream: "tuple[asyncio.StreamReader, asyncio.StreamWriter]",
    ) -> None:
        """Copy both ways until the host has said everything, the program is gone, or nothing came for too long."""
        self._journal.write_reached(request.host.lower().rstrip("."), request.port)
        up, down = _Flow(program[0], upstream[1]), _Flow(upstream[0], program[1])
        upstream[1].write(request.head)
        program[1].write(accepted(request.kind))
        sending, receiving = asyncio.ensure_future(up.run()), asyncio.ensure_future(down.run())
        try:
            while not receiving.done() and not (sending.done() and not up.ended):
                progress = up.size + down.size, sending.done()
                waited = {task for task in (sending, receiving) if not task.done()}
                await asyncio.wait(waited, timeout=self._limits.idle_s, return_when=asyncio.FIRST_COMPLETED)
                if progress == (up.size + down.size, sending.done()) and not receiving.done():
                    break
        finally:
            for task in (sending, receiving):
                task.cancel()
            await asyncio.gather(sending, receiving, return_exceptions=True)
            upstream[1].close()
            self._journal.write(request.host, request.port, up.size + len(request.head), down.size)


class _Flow:
    """One direction of a connection."""

    def __init__(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        self._source = source
        self._target = target
        self.size = 0
        self.ended = False

    async def run(self) -> None:
        while data := await self._source.read(_PIECE):
            self.size += len(data)
            self._target.write(data)
            await self._target.drain()
        await self._target.drain()
        self.ended = True
        if self._target.can_write_eof():
            self._target.write_eof()


async def _first_of(places: "list[Endpoint]") -> "tuple[asyncio.StreamReader, asyncio.StreamWriter]":
    """A connection to the first place that takes one."""
    last = OSError(0, "it has no address")
    for address, port in places:
        try:
            return await asyncio.open_connection(address, port, limit=_PIECE)
        except OSError as error:
            last = error
    raise last


def _own_address(address: str) -> str:
    """Return a name if a public address is one of this machine, else nothing: only then can a socket be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return ""
    return "this machine"


def run(listener: int, spec: "dict[str, object]") -> None:
    """Be the proxy of a command until SIGTERM. `told`: patterns, log, and for tests fixed addresses."""
    patterns, fixed = spec["patterns"], spec.get("fixed", {})
    assert isinstance(patterns, list)
    assert isinstance(fixed, dict)
    proxy = Proxy(patterns, Journal(str(spec["log"])), fixed=fixed)
    asyncio.run(_until_told(proxy, socket.socket(fileno=listener)))


async def _until_told(proxy: Proxy, listener: socket.socket) -> None:
    listener.setblocking(False)
    serving = asyncio.ensure_future(proxy.serve(listener))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    with suppress(asyncio.CancelledError):
        await serving
