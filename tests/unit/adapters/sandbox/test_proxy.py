"""The proxy of a command: real sockets on loopback. Hosts get their places by the constructor, as no setting can."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from treadle.adapters.sandbox.proxy import HEAD_SIZE, LIMITS, Journal, Proxy, ProxyLimits
from treadle.adapters.tools.builtin.command.network import read_reached_hosts
from treadle.base.stream_server import start_stream_server

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
GREETING = b"\x05\x01\x00"


class Bench:
    def __init__(self, port: int, log: Path) -> None:
        self.port = port
        self._log = log

    async def connect(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, data: bytes) -> bytes:
        reader, writer = await self.connect()
        writer.write(data)
        answer = await asyncio.wait_for(reader.read(), 60)
        await _close(writer)
        return answer

    async def wait_for_entries(self, count: int = 1) -> list[dict[str, Any]]:
        """The connections that have ended."""
        while len(entries := [each for each in self.entries() if "reached" not in each]) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return entries

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]


@asynccontextmanager
async def _run_proxy(tmp_path: Path, patterns: tuple[str, ...], limits: ProxyLimits = LIMITS) -> AsyncIterator[Bench]:
    """A proxy, and a host `web.test` behind it that echoes what it is sent."""
    host = await start_stream_server(_echo, "127.0.0.1", 0)
    place = host.sockets[0].getsockname()[:2]
    log = tmp_path / "network"
    fixed = {"web.test": place, "gone.test": ("127.0.0.1", _free())}
    proxy = Proxy(patterns, Journal(str(log), 100), limits, fixed)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    serving = asyncio.ensure_future(proxy.serve(listener))
    try:
        yield Bench(listener.getsockname()[1], log)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        host.close()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(b"<" + data + b">")
            if b"Connection: close" in data or b"bye" in data:
                break
    finally:
        writer.close()


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _socks(host: str, port: int) -> bytes:
    return GREETING + b"\x05\x01\x00\x03" + bytes((len(host),)) + host.encode() + port.to_bytes(2, "big")


async def test_a_tunnel_carries_both_ways_and_is_logged(tmp_path: Path) -> None:  # S-03
    async with _run_proxy(tmp_path, ("web.test",)) as bench:
        answer = await bench.ask(b"CONNECT web.test:443 HTTP/1.1\r\nHost: web.test:443\r\n\r\nbye")
        assert answer == b"HTTP/1.1 200 Connection established\r\n\r\n<bye>"
        assert await bench.wait_for_entries() == [
            {"host": "web.test", "port": 443, "sent": 3, "received": 5, "refused": ""}
        ]


async def test_a_host_is_logged_when_it_is_reached_whatever_comes_after(tmp_path: Path) -> None:  # S-17
    async with _run_proxy(tmp_path, ("web.test",)) as bench:
        for _ in range(110):  # more lines than the log has room for
            await bench.ask(b"CONNECT evil.test:443 HTTP/1.1\r\n\r\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", bench.port)
        writer.write(b"CONNECT WEB.test:443 HTTP/1.1\r\n\r\n")
        assert b"200" in await reader.readline()
        assert read_reached_hosts(str(tmp_path / "network"), ("web.test",)) == ("web.test",)  # while it is open
        await _close(writer)


async def test_plain_http_goes_to_the_named_host_alone(tmp_path: Path) -> None:  # S-03
    async with _run_proxy(tmp_path, ("web.test",)) as bench:
        headers = b"Host: other.test\r\nProxy-Connection: keep-alive\r\nAccept: */*\r\n\r\n"
        answer = await bench.ask(b"GET http://web.test/a?b=c HTTP/1.1\r\n" + headers)
    assert answer == b"<GET /a?b=c HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\nAccept: */*\r\n\r\n>"


async def test_socks_with_a_name(tmp_path: Path) -> None:  # S-03
    async with _run_proxy(tmp_path, ("web.test",)) as bench:
        answer = await bench.ask(_socks("web.test", 443) + b"bye")
        assert answer[:4] == b"\x05\x00\x05\x00"
        assert answer.endswith(b"<bye>")
        assert (await bench.ask(_socks("evil.test", 443)))[2:4] == b"\x05\x02"
        assert (await bench.ask(_socks("127.0.0.1\0.web.test", 443)))[2:4] == b"\x05\x02"
        assert [each["refused"] for each in await bench.wait_for_entries(2)][1].startswith("evil.test:443 is not among")


@pytest.mark.parametrize(
    ("patterns", "target", "reason"),
    [
        (("web.test",), "evil.test:443", "not among the hosts"),
        (("web.test",), "web.test:22", "not among the hosts"),
        ((), "web.test:443", "not among the hosts"),
        (("localhost.",), "127.0.0.1:443", "not among the hosts"),
        (("127.0.0.1",), "127.0.0.1:443", "this machine"),
        (("localhost",), "localhost:443", "this machine"),
        (("gone.test",), "gone.test:443", "cannot be reached"),
        (("no-such-name.invalid",), "no-such-name.invalid:443", "cannot be reached"),
    ],
)
async def test_what_is_not_reached(
    tmp_path: Path, patterns: tuple[str, ...], target: str, reason: str
) -> None:  # S-03: by a name that leads to this machine, too
    async with _run_proxy(tmp_path, patterns) as bench:
        answer = await bench.ask(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
        assert answer.startswith((b"HTTP/1.1 403", b"HTTP/1.1 502"))
        assert reason in answer.decode()
        (entry,) = await bench.wait_for_entries()
    assert reason in entry["refused"]
    assert entry["host"] == target.rpartition(":")[0]


@pytest.mark.parametrize(
    ("addresses", "why"),
    [
        (("203.0.113.7", "10.0.0.1"), "10.0.0.1, which is a private network"),
        (("203.0.113.7", "203.0.113.8", "::1"), "::1, which is this machine"),
        (("203.0.113.7", "169.254.169.254"), "169.254.169.254, which is the local link"),
    ],
)
async def test_every_address_of_a_name_is_checked(  # S-03
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...], why: str
) -> None:
    """One that is not public stands behind public ones in the answer of the name server."""
    rows = [(socket.AF_INET6 if ":" in each else socket.AF_INET, 1, 6, "", (each, 443)) for each in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: rows)
    async with _run_proxy(tmp_path, ("mixed.test",), ProxyLimits(connect_s=2.0)) as bench:
        answer = await bench.ask(b"CONNECT mixed.test:443 HTTP/1.1\r\n\r\n")
        (entry,) = await bench.wait_for_entries()
    assert answer.startswith(b"HTTP/1.1 403")
    assert f"mixed.test is at {why}" in entry["refused"]


OWN_ADDRESS = """\
import asyncio, fcntl, socket, struct, sys
from treadle.adapters.sandbox.proxy import Journal, Proxy
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 1))
    for name, address in ((b"lo", "127.0.0.1"), (b"lo:1", "203.0.113.7")):
        packed = struct.pack("16sH2x4s8x", name, socket.AF_INET, socket.inet_aton(address))
        fcntl.ioctl(control, 0x8916, packed)

async def main():
    listener, host = socket.create_server(("127.0.0.1", 0)), socket.create_server(("203.0.113.7", 443))
    listener.setblocking(False)
    serving = asyncio.ensure_future(Proxy(("203.0.113.7",), Journal(sys.argv[1])).serve(listener))
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    writer.write(b"CONNECT 203.0.113.7:443 HTTP/1.1\\r\\n\\r\\n")
    print((await reader.readuntil(b"\\r\\n")).decode().strip())
    writer.close()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)

asyncio.run(main())
"""


def test_a_public_address_of_this_machine_is_refused(tmp_path: Path) -> None:  # S-03
    """In a network of its own, in which the machine has such an address and a server listens there."""
    command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", OWN_ADDRESS]
    process = subprocess.run([*command, str(tmp_path / "network")], capture_output=True, text=True, check=False)
    if process.stderr.startswith("unshare:"):
        pytest.skip("namespaces cannot be had here")
    assert process.stdout == "HTTP/1.1 403 Forbidden\n", process.stderr
    (entry,) = map(json.loads, (tmp_path / "network").read_text().splitlines())
    assert entry["refused"] == "203.0.113.7 is at 203.0.113.7, which is this machine"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: web.test\r\n\r\n",
        b"CONNECT web.test HTTP/1.1\r\n\r\n",
        b"CONNECT web.test:443/x HTTP/1.1\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET https://web.test/ HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
        b"GET http://web.test:99999/ HTTP/1.1\r\n\r\n",
        b"GET http://w\xffb.test/ HTTP/1.1\r\n\r\n",
        b"CONNECT web.test:443 HTTP/1.1\r\n" + b"X: " + b"x" * HEAD_SIZE * 2 + b"\r\n\r\n",
    ],
)
async def test_what_is_no_request(tmp_path: Path, data: bytes) -> None:
    async with _run_proxy(tmp_path, ("web.test",)) as bench:
        reader, writer = await bench.connect()
        writer.write(data)
        with_answer = await asyncio.wait_for(_all(reader), 60)
        assert with_answer.startswith(b"HTTP/1.1 403") or not with_answer
        assert (await bench.wait_for_entries())[0]["refused"]
        await _close(writer)
        assert b"<bye>" in await bench.ask(b"CONNECT web.test:443 HTTP/1.1\r\n\r\nbye")


async def _all(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:  # reset: it had sent more than was read
        return b""


async def test_a_hundred_connections_at_once(tmp_path: Path) -> None:
    async with _run_proxy(tmp_path, ("web.test",)) as bench:
        connect: Callable[[int], Awaitable[bytes]] = lambda n: bench.ask(  # noqa: E731
            b"CONNECT web.test:443 HTTP/1.1\r\n\r\n%d bye" % n
        )
        answers = await asyncio.gather(*(connect(number) for number in range(100)))
        assert [answer.endswith(b"<%d bye>" % number) for number, answer in enumerate(answers)] == [True] * 100


async def test_more_connections_than_allowed_are_refused(tmp_path: Path) -> None:
    async with _run_proxy(tmp_path, ("web.test",), ProxyLimits(connections=2)) as bench:
        connections = [await bench.connect() for _ in range(2)]
        for _, writer in connections:
            writer.write(b"CONNECT web.test:443 HTTP/1.1\r\n\r\n")
        for reader, _ in connections:
            await reader.readuntil(b"\r\n\r\n")
        reader, writer = await bench.connect()
        assert await _all(reader) == b""
        writer.close()
        assert "more than 2 connections" in (await bench.wait_for_entries())[0]["refused"]
        for _, writer in connections:
            writer.close()


async def test_a_slow_program_and_an_idle_connection_are_let_go(tmp_path: Path) -> None:
    async with _run_proxy(tmp_path, ("web.test",), ProxyLimits(head_s=2.0, idle_s=0.1)) as bench:
        reader, writer = await bench.connect()
        writer.write(b"CONN")
        assert b"no request within" in await asyncio.wait_for(reader.read(), 60)
        writer.close()
        reader, writer = await bench.connect()
        writer.write(b"CONNECT web.test:443 HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        assert await asyncio.wait_for(reader.read(), 60) == b""
        assert (await bench.wait_for_entries(2))[1]["host"] == "web.test"
        writer.close()


async def test_connections_that_are_open_at_the_end_are_logged(tmp_path: Path) -> None:
    async with _run_proxy(tmp_path, ("web.test",)) as bench:
        reader, writer = await bench.connect()
        writer.write(b"CONNECT web.test:443 HTTP/1.1\r\n\r\nhello")
        await reader.readuntil(b"<hello>")
    assert (await bench.wait_for_entries())[0]["sent"] == 5
    writer.close()
