"""Servers are reached by the proxy that the user's environment names, and servers on this machine without it."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.unit.adapters.models.loopback import listening
from treadle.adapters.models.keys import Secret
from treadle.adapters.models.wire.http import Http
from treadle.base.http.client import HttpClient
from treadle.base.http.connection import CONNECT_S, _make_tls_context, find_proxy
from treadle.errors import ModelError

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


@pytest.fixture(autouse=True)
def _none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def proxy_for(host: str, scheme: str = "https") -> str:
    proxy = find_proxy(host, scheme)
    return f"{proxy.scheme}://{proxy.host_header}" if proxy is not None else ""


def test_which_proxy_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proxy_for("api.openai.com") == ""
    monkeypatch.setenv("https_proxy", "proxy.corp:3128")
    monkeypatch.setenv("NO_PROXY", "inside.corp,.lan")
    assert proxy_for("api.openai.com") == "http://proxy.corp:3128"
    assert proxy_for("api.openai.com", "http") == ""
    for host in ("localhost:11434", "127.0.0.1:8080", "[::1]:80", "inside.corp", "models.lan:443", "a.inside.corp"):
        assert proxy_for(host) == ""
    for host in ("outside.corp", "notinside.corp", "lan.corp"):
        assert proxy_for(host) != ""


def test_networks_that_need_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://proxy.corp:3128")
    monkeypatch.setenv("NO_PROXY", "models.lan, 10.0.0.0/8,192.168.7.9 ,fd00::/8,172.16.0.1/12, nonsense/99")
    for host in ("10.1.2.3", "10.1.2.3:8080", "192.168.7.9:80", "[fd12::1]:443", "172.31.255.255", "models.lan"):
        assert proxy_for(host) == "", host
    for host in ("11.1.2.3", "192.168.7.10", "[fe80::1]", "172.32.0.1", "10.example.org", "a.test"):
        assert proxy_for(host) != "", host
    monkeypatch.setenv("NO_PROXY", "*")
    assert proxy_for("a.test") == ""


async def test_a_request_goes_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    request_lines: list[str] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        request_lines.append(head.decode().split("\r\n")[0])
        writer.write(ANSWER)
        await writer.drain()

    async with listening(proxy) as port:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
        http = Http()
        assert await http.get("http://models.invalid/v1/models", {}, Secret("")) == b"{}"
        await http.close()
    assert request_lines == ["GET http://models.invalid/v1/models HTTP/1.1"]


@pytest.mark.parametrize(
    "ending", ["reset with the answer", "reset after a moment", "end of the stream", "in the handshake"]
)
async def test_a_proxy_that_hangs_up_after_its_answer_fails_at_once(
    monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """Fault 8: CONNECT is answered with 200, and then there is nothing."""

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        match ending:
            case "reset with the answer":
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                writer.transport.abort()
            case "reset after a moment":
                await asyncio.sleep(0.02)
                writer.transport.abort()
            case "end of the stream":
                writer.write_eof()
            case _:
                await reader.read(1)
                writer.transport.abort()

    http = Http()
    async with listening(proxy) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        for _ in range(5):
            _make_tls_context.cache_clear()  # it is made while the proxy hangs up
            async with asyncio.timeout(CONNECT_S / 2):
                with pytest.raises(ModelError) as failed:
                    await http.get("https://models.invalid/v1/models", {}, Secret(""))
            assert failed.value.kind == "network"
    await http.close()


class SocksServer:
    """A SOCKS5 proxy that leads every connection to one port of this machine."""

    def __init__(self, port: int = 0, *, login: tuple[str, str] | None = None, reply: int = 0) -> None:
        self._port = port
        self._login = login
        self._reply = reply
        self.asked: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        await reader.readexactly(count)
        writer.write(b"\5\2" if self._login else b"\5\0")
        if self._login:
            (_, size) = await reader.readexactly(2)
            user = (await reader.readexactly(size)).decode()
            (size,) = await reader.readexactly(1)
            correct = (user, (await reader.readexactly(size)).decode()) == self._login
            writer.write(b"\1\0" if correct else b"\1\1")
        *_, kind = await reader.readexactly(4)
        if kind == 3:
            (size,) = await reader.readexactly(1)
            host = (await reader.readexactly(size)).decode()
        else:
            host = socket.inet_ntoa(await reader.readexactly(4))
        self.asked.append(f"{host}:{int.from_bytes(await reader.readexactly(2), 'big')}")
        writer.write(bytes([5, self._reply, 0, 1, 0, 0, 0, 0, 0, 0]))
        if self._reply:
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await asyncio.gather(self._pass_on(reader, far_writer), self._pass_on(far_reader, writer))
        finally:
            far_writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(ANSWER)
    await writer.drain()


@asynccontextmanager
async def socks(login: tuple[str, str] | None = None, reply: int = 0) -> AsyncIterator[tuple[SocksServer, str]]:
    async with listening(_answer) as port:
        server = SocksServer(port, login=login, reply=reply)
        async with listening(server.serve) as socks_port:
            yield server, f"127.0.0.1:{socks_port}"


async def fetch(url: str) -> bytes:
    client = HttpClient()
    with await client.request("GET", url, {}) as response:
        body = await response.read_all()
    await client.close()
    return body


async def test_a_socks_proxy_looks_the_name_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with socks(login=("me", "w@rd")) as (server, place):
        monkeypatch.setenv("ALL_PROXY", f"socks5h://me:w%40rd@{place}")
        assert await fetch("http://models.invalid/v1") == b"{}"
    assert server.asked == ["models.invalid:80"]


async def test_a_socks_proxy_gets_the_address_of_a_name_that_is_looked_up_here(monkeypatch: pytest.MonkeyPatch) -> None:
    async with socks() as (server, place):
        monkeypatch.setenv("HTTP_PROXY", f"socks5://{place}")
        assert await fetch("http://10.9.8.7:8000/v1") == b"{}"
    assert server.asked == ["10.9.8.7:8000"]


async def test_a_socks_proxy_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with socks(reply=2) as (_, place):
        monkeypatch.setenv("ALL_PROXY", f"socks5h://me:word@{place}")
        with pytest.raises(ModelError, match=f"models.invalid cannot be reached: .*says the proxy {place}") as caught:
            await Http().get("http://models.invalid/v1", {}, Secret(""))
    assert "word" not in str(caught.value)
    assert caught.value.kind == "network"


async def test_a_socks_proxy_needs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://me:word@127.0.0.1:1080")
    monkeypatch.setitem(sys.modules, "python_socks", None)
    with pytest.raises(ModelError, match=r"socks5://127\.0\.0\.1 needs .*pip install 'treadle\[socks\]'") as caught:
        await Http().get("https://a.test/v1", {}, Secret(""))
    assert "word" not in str(caught.value)


@pytest.mark.parametrize("kind", ["socks4", "ftp"])
async def test_a_proxy_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("ALL_PROXY", f"{kind}://me:word@127.0.0.1:1080")
    with pytest.raises(ModelError, match=f"must be http://, .* or socks5h://, not {kind}://") as caught:
        await Http().get("https://a.test/v1", {}, Secret(""))
    assert "word" not in str(caught.value)
    monkeypatch.setenv("ALL_PROXY", "http://me:word@a.test:nonsense")
    with pytest.raises(ModelError, match="the http proxy in the environment is not valid") as caught:
        await Http().get("https://a.test/v1", {}, Secret(""))
    assert "word" not in str(caught.value)
