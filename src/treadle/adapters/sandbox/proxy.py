"""The proxy of one command: HTTP CONNECT, plain HTTP and SOCKS5 on a listening socket that lies in the command's own
network, connections to allowed hosts from the network of the machine, and a log of both.

A name is resolved here, every address that it has is checked, and the connection goes to the checked address itself: a
name that points to a private address, or does so the second time, leads nowhere. The proxy is a process of its own,
which uses the standard library and `treadle.base.host_patterns` alone."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from treadle.base.host_patterns import expand, find_refusal_reason, is_address, matches_host

_PIECE = 1 << 16
_MOST_REACHED = 10_000
HEAD_SIZE = 16 * 1024
_HOP = (b"connection:", b"proxy-connection:", b"proxy-authorization:", b"keep-alive:", b"upgrade:", b"host:")
"""Headers between the program and the proxy; and the host, which is written anew, so that it is the one allowed."""
_SOCKS = 5
Kind = Literal["tunnel", "plain", "socks"]
Failure = Literal["refused", "unreachable"]
Endpoint = tuple[str, int]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


# -- requests: the head of an HTTP request or the greeting of SOCKS5, read with a limit on size ----------------------


class Request(NamedTuple):
    kind: Kind
    host: str
    port: int
    head: bytes = b""  # Of a plain request: the head that goes to the server


class BadRequest(Exception):
    """The program sent bytes that are not a request that the proxy knows."""


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
    """The first request of a connection. BadRequest if it is none; the connection's end counts as that."""
    try:
        first = await reader.readexactly(1)
        return await (_read_socks_request(reader, writer) if first[0] == _SOCKS else _read_http_request(first, reader))
    except asyncio.IncompleteReadError as error:
        raise BadRequest("the connection ended before a request was complete") from error
    except asyncio.LimitOverrunError as error:
        raise BadRequest(f"a request head of more than {HEAD_SIZE} bytes") from error
    except (ValueError, UnicodeError) as error:
        raise BadRequest("a request that cannot be read") from error


async def _read_http_request(first: bytes, reader: asyncio.StreamReader) -> Request:
    head = first + await reader.readuntil(b"\r\n\r\n")
    line, _, headers = head[:-4].partition(b"\r\n")
    method, target, version = line.split(b" ")
    if not version.startswith(b"HTTP/1."):
        raise BadRequest("a request in another protocol than HTTP/1 and SOCKS5")
    if method == b"CONNECT":
        parts = urlsplit(f"//{target.decode('ascii')}")
        if not parts.hostname or not parts.port or parts.path:
            raise BadRequest("CONNECT without a host and a port")
        return Request("tunnel", parts.hostname, parts.port)
    url = urlsplit(target.decode("ascii"))
    if url.scheme.lower() != "http" or not url.hostname:
        raise BadRequest("a request that names no http:// address: this is a proxy")
    host_header = url.netloc.rpartition("@")[2].encode("ascii")
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    lines = [b" ".join((method, path.encode("ascii"), version)), b"Host: " + host_header, b"Connection: close"]
    lines += [each for each in headers.split(b"\r\n") if each and not each.lower().startswith(_HOP)]
    return Request("plain", url.hostname, url.port or 80, b"\r\n".join(lines) + b"\r\n\r\n")


async def _read_socks_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
    methods = await reader.readexactly((await reader.readexactly(1))[0])
    if 0 not in methods:
        writer.write(bytes((_SOCKS, 0xFF)))
        raise BadRequest("SOCKS5 with a way to sign in that the proxy does not have")
    writer.write(bytes((_SOCKS, 0)))
    version, command, _, kind = await reader.readexactly(4)
    if version != _SOCKS or command != 1:
        writer.write(_encode_socks_reply(7))
        raise BadRequest("SOCKS5 for something else than a connection")
    match kind:
        case 1:
            host = socket.inet_ntop(socket.AF_INET, await reader.readexactly(4))
        case 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode("ascii")
        case 4:
            host = socket.inet_ntop(socket.AF_INET6, await reader.readexactly(16))
        case _:
            writer.write(_encode_socks_reply(8))
            raise BadRequest("SOCKS5 with an address of an unknown kind")
    return Request("socks", host, int.from_bytes(await reader.readexactly(2), "big"))


def _encode_socks_reply(code: int) -> bytes:
    return bytes((_SOCKS, code, 0, 1, 0, 0, 0, 0, 0, 0))


_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
# The reply to the program before its data flows.
_ACCEPTED: Mapping[Kind, bytes] = {"tunnel": _ESTABLISHED, "socks": _encode_socks_reply(0), "plain": b""}


# -- the proxy --------------------------------------------------------------------------------------------------------


class ProxyLimits(NamedTuple):
    connections: int = 256
    head_s: float = 20.0  # How long a program may take to say what it wants
    connect_s: float = 20.0
    idle_s: float = 300.0  # How long a connection may carry nothing
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
        self, patterns: Sequence[str], journal: Journal, limits: ProxyLimits = LIMITS,
        fixed: Mapping[str, Endpoint] | None = None,
    ) -> None:  # fmt: skip
        self._patterns, self._journal, self._limits, self._fixed = expand(patterns), journal, limits, fixed or {}
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
        except (OSError, asyncio.CancelledError):
            return  # the program is gone, or the command has ended, and so does this task
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
            return await self._decline(writer, "plain", "refused", reason)
        try:
            upstream = await self._connect(request)
        except (Refusal, Unreachable) as error:
            failure: Failure = "refused" if isinstance(error, Refusal) else "unreachable"
            reason = str(error) if failure == "refused" else f"unreachable: {error}"
            self._journal.write(request.host, request.port, refused=reason)
            return await self._decline(writer, request.kind, failure, str(error))
        await self._relay(request, (reader, writer), upstream)

    async def _decline(self, writer: asyncio.StreamWriter, kind: Kind, failure: Failure, text: str) -> None:
        if kind == "socks":
            writer.write(_encode_socks_reply(2 if failure == "refused" else 4))
        else:
            status = b"403 Forbidden" if failure == "refused" else b"502 Bad Gateway"
            body = f"treadle: {text}\n".encode(errors="replace")
            fields = (b"HTTP/1.1 " + status, b"Content-Type: text/plain; charset=utf-8", b"Connection: close")
            writer.write(b"\r\n".join((*fields, b"Content-Length: %d" % len(body), b"", body)))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.connect_s):
                await writer.drain()
                if writer.can_write_eof():
                    writer.write_eof()
                await asyncio.sleep(0)

    async def _connect(self, request: Request) -> Streams:
        host, port = request.host.lower().rstrip("."), request.port
        if not matches_host(self._patterns, host, port):
            raise Refusal(f"{host}:{port} is not among the hosts that this command may reach")
        failure = OSError(0, "it has no address")
        try:
            async with asyncio.timeout(self._limits.connect_s):
                for endpoint in await self._resolve_addresses(host, port):
                    try:
                        return await asyncio.open_connection(*endpoint, limit=_PIECE)
                    except OSError as error:
                        failure = error
                raise failure
        except OSError as error:  # the time limit is one, too
            raise Unreachable(f"{host}:{port} cannot be reached: {error.strerror or 'no answer in time'}") from error

    async def _resolve_addresses(self, host: str, port: int) -> list[Endpoint]:
        """Where to connect to. Refusal if one address of a name is not public: then no part of the answer is
        trusted."""
        if host in self._fixed:
            return [self._fixed[host]]
        if is_address(host):
            addresses = [host]
        else:
            rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(str(row[4][0]) for row in rows))
        for address in addresses:
            if address_kind := find_refusal_reason(address) or _describe_own_address(address):
                raise Refusal(f"{host} is at {address}, which is {address_kind}")
        return [(address, port) for address in addresses]

    async def _relay(self, request: Request, program: Streams, upstream: Streams) -> None:
        """Copy both ways until the host has said everything, the program is gone, or nothing came for too long."""
        self._journal.write_reached(request.host.lower().rstrip("."), request.port)
        up, down = _Flow(program[0], upstream[1]), _Flow(upstream[0], program[1])
        upstream[1].write(request.head)
        program[1].write(_ACCEPTED[request.kind])
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
        self._source, self._target = source, target
        self.size, self.ended = 0, False

    async def run(self) -> None:
        while data := await self._source.read(_PIECE):
            self.size += len(data)
            self._target.write(data)
            await self._target.drain()
        await self._target.drain()
        self.ended = True
        if self._target.can_write_eof():
            self._target.write_eof()


def _describe_own_address(address: str) -> str:
    """Return a name if a public address is one of this machine, else nothing: only then can a socket be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return ""
    return "this machine"


def run_proxy(listener: int, spec: "dict[str, object]") -> None:
    """Be the proxy of a command until SIGTERM. `spec`: patterns, log, and for tests fixed addresses."""
    patterns, fixed = spec["patterns"], spec.get("fixed", {})
    assert isinstance(patterns, list)
    assert isinstance(fixed, dict)
    proxy = Proxy(patterns, Journal(str(spec["log"])), fixed=fixed)

    async def serve() -> None:
        server = socket.socket(fileno=listener)
        server.setblocking(False)
        serving = asyncio.ensure_future(proxy.serve(server))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
        with suppress(asyncio.CancelledError):
            await serving

    asyncio.run(serve())
