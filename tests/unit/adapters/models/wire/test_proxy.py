"""Models are reached by the proxy that the user's environment names, and servers on this machine without it."""

import asyncio
import socket

import pytest

from tests.unit.adapters.models.loopback import listening
from treadle.adapters.models.keys import Secret
from treadle.adapters.models.wire.http import Http
from treadle.adapters.models.wire.route import CONNECT_S, _tls_context, proxy_of
from treadle.errors import ModelError


@pytest.fixture(autouse=True)
def _none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def test_which_proxy_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proxy_of("api.openai.com", "https") is None
    monkeypatch.setenv("https_proxy", "proxy.corp:3128")
    monkeypatch.setenv("NO_PROXY", "inside.corp,.lan")
    assert proxy_of("api.openai.com", "https") == "http://proxy.corp:3128"
    assert proxy_of("api.openai.com", "http") is None
    for host in ("localhost:11434", "127.0.0.1:8080", "[::1]:80", "inside.corp", "models.lan:443"):
        assert proxy_of(host, "https") is None


async def test_a_request_goes_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.decode().split("\r\n")[0])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await writer.drain()

    async with listening(proxy) as port:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
        http = Http()
        assert await http.get("http://models.invalid/v1/models", {}, Secret("")) == b"{}"
        await http.close()
    assert asked == ["GET http://models.invalid/v1/models HTTP/1.1"]


@pytest.mark.parametrize(
    "how", ["reset with the answer", "reset after a moment", "end of the stream", "in the handshake"]
)
async def test_a_proxy_that_hangs_up_after_its_answer_fails_at_once(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Fault 8: CONNECT is answered with 200, and then there is nothing."""

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        match how:
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
            _tls_context.cache_clear()  # it is made while the proxy hangs up
            async with asyncio.timeout(CONNECT_S / 2):
                with pytest.raises(ModelError) as failed:
                    await http.get("https://models.invalid/v1/models", {}, Secret(""))
            assert failed.value.kind == "network"
    await http.close()
