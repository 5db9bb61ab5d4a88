"""Addresses as people write them, connections that are kept, TLS that checks whom it speaks to, proxies before it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.unit.adapters.models.loopback import Exchange, listening, serving
from treadle.adapters.models.keys import Secret
from treadle.adapters.models.wire.http import Http
from treadle.base.http import client, connection
from treadle.base.http.connection import Address, ServerRoute, parse_address
from treadle.errors import ModelError

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://a.test", Address("http", "a.test", 80, "a.test", "/")),
        ("https://a.test/v1?x=1", Address("https", "a.test", 443, "a.test", "/v1?x=1")),
        ("https://A.test:8443/v1/", Address("https", "a.test", 8443, "a.test:8443", "/v1/")),
        ("http://[::1]:8080/v1", Address("http", "::1", 8080, "[::1]:8080", "/v1")),
        (
            "http://a.test:80/a b/ü%20?q=ü z",
            Address("http", "a.test", 80, "a.test", "/a%20b/%C3%BC%20?q=%C3%BC%20z"),
        ),
        ("https://bücher.test/", Address("https", "xn--bcher-kva.test", 443, "xn--bcher-kva.test", "/")),
        ("http://me:p%40ss@a.test/", Address("http", "a.test", 80, "a.test", "/", "me", "p@ss")),
    ],
)
def test_an_address_is_taken_apart(url: str, address: Address) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize("url", ["", "a.test", "ftp://a.test", "http://", "http://a.test:99999/", "http://a.test:x/"])
async def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ModelError, match="no address of a server") as caught:
        await Http().post(url, {}, b"{}", Secret(""))
    assert caught.value.kind == "bad_request"


@pytest.mark.parametrize("value", ["a\r\nX: 1", "a\nb", "a\0b"])
async def test_no_header_brings_another_one(value: str) -> None:
    async with serving(lambda exchange: exchange.reply(200, b"{}")) as server:
        with pytest.raises(ModelError, match="line break"):
            await Http().post(server.url, {"X-Y": value}, b"{}", Secret(""))
    assert server.seen == []


async def test_a_login_in_an_address_is_sent_unless_there_is_a_key() -> None:
    http = Http()
    async with serving(lambda exchange: exchange.reply(200, b"{}")) as server:
        url = server.url.replace("://", "://me:word@")
        for key in ("", "secret"):
            with await http.post(url, {}, b"{}", Secret(key)) as reply:
                await reply.read()
        await http.close()
    assert [each.headers["authorization"] for each in server.seen] == ["Basic bWU6d29yZA==", "Bearer secret"]
    assert [each.headers["host"] for each in server.seen] == [server.url.split("/")[2]] * 2


async def test_connections_are_kept_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    http = Http()

    async def ask() -> None:
        with await http.post(server.url, {}, b"{}", Secret("")) as reply:
            while await reply.read():
                pass

    async with serving(lambda exchange: exchange.reply(200, b"{}")) as server:
        await ask()
        await ask()
        await asyncio.gather(ask(), ask())
        monkeypatch.setattr(client, "KEEPALIVE_S", 0.0)
        await ask()
        await http.close()
    assert [each.connection for each in server.seen] == [1, 1, 1, 2, 3]


async def test_a_refusal_leaves_its_connection_to_the_next_request() -> None:
    http = Http()
    async with serving(lambda exchange: exchange.reply(429, b"{}")) as server:
        for _ in range(2):
            with pytest.raises(ModelError):
                await http.post(server.url, {}, b"{}", Secret(""))
        await http.close()
    assert [each.connection for each in server.seen] == [1, 1]


async def test_who_leaves_early_takes_the_connection_along() -> None:
    http = Http()

    async def answer(exchange: Exchange) -> None:
        await exchange.stream(b"one", end=False)
        await exchange.hung_up()

    async with serving(answer) as server:
        with await http.post(server.url, {}, b"{}", Secret("")) as reply:
            assert await reply.read() == b"one"
        with await http.post(server.url, {}, b"{}", Secret("")) as reply:
            assert await reply.read() == b"one"
        await http.close()
    assert [each.connection for each in server.seen] == [1, 2]


async def test_an_answer_that_was_left_unread_is_not_the_next_one() -> None:
    http, count = Http(), iter(range(9))
    async with serving(lambda exchange: exchange.reply(200, b"%d" % next(count))) as server:
        with await http.post(server.url, {}, b"{}", Secret("")):
            pass  # the whole answer is here, and nobody has read it
        with await http.post(server.url, {}, b"{}", Secret("")) as reply:
            assert await reply.read() == b"1"
        await http.close()
    assert [each.connection for each in server.seen] == [1, 2]


async def test_a_connection_that_rests_is_closed_though_nobody_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "KEEPALIVE_S", 0.05)
    http, gone = Http(), asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.reply(200, b"{}")
        await exchange.hung_up()
        gone.set()

    async with serving(answer) as server:
        with await http.post(server.url, {}, b"{}", Secret("")) as reply:
            assert await reply.read() == b"{}"
        await asyncio.wait_for(gone.wait(), 30)
        await http.close()


def certify(folder: Path, host: str) -> tuple[Path, Path]:
    """A certificate for a host that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1))
        .not_valid_after(datetime.now() + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, secret = folder / f"{host}.crt", folder / f"{host}.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    pem = serialization.PrivateFormat.PKCS8
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, pem, plain))
    return certificate, secret


@asynccontextmanager
async def secure_server(folder: Path, host: str) -> AsyncIterator[int]:
    """The port of a server that shows a certificate of this name."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(ANSWER)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certify(folder, host))
    async with listening(serve, context) as port:
        yield port


@pytest.fixture
def certificate_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of certificates; those of localhost are trusted."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "localhost.crt"))
    connection._make_tls_context.cache_clear()
    yield tmp_path
    connection._make_tls_context.cache_clear()


async def test_tls_is_spoken_with_who_has_the_certificate(certificate_folder: Path) -> None:
    http = Http()
    async with secure_server(certificate_folder, "localhost") as port:
        assert await http.get(f"https://localhost:{port}/v1", {}, Secret("")) == b"{}"
        with pytest.raises(ModelError, match="certificate verify failed") as caught:
            await http.get(f"https://127.0.0.1:{port}/v1", {}, Secret(""))
        await http.close()
    assert caught.value.kind == "network"


async def test_tls_is_spoken_with_nobody_else(certificate_folder: Path) -> None:
    http = Http()
    certify(certificate_folder, "localhost")
    async with secure_server(certificate_folder, "other.test") as port:
        with pytest.raises(ModelError, match="certificate verify failed"):
            await http.get(f"https://localhost:{port}/v1", {}, Secret(""))
        await http.close()


def authorities() -> dict[str, int]:
    connection._make_tls_context.cache_clear()
    return connection.get_tls_context().cert_store_stats()


def test_certifi_stands_in_for_a_store_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = authorities()
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    paths = ssl.get_default_verify_paths()
    empty = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for folder in (None, str(tmp_path)):
        monkeypatch.setattr(ssl, "create_default_context", lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        monkeypatch.setattr(ssl, "get_default_verify_paths", lambda folder=folder: paths._replace(capath=folder))
        assert authorities()["x509_ca"] > 50
    (tmp_path / "0a775a30.0").touch()  # a store of which OpenSSL reads what it needs
    assert authorities() == empty.cert_store_stats()
    (tmp_path / "0a775a30.0").unlink()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "chosen.pem"))  # certifi never adds to what the user chose
    assert authorities() == empty.cert_store_stats()
    monkeypatch.undo()
    assert authorities() == own


async def test_a_server_may_ask_for_a_client_certificate(
    certificate_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = certify(certificate_folder, "client.test")
    certificate_names: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        ((((_, name),),), *_) = writer.get_extra_info("peercert")["subject"], None
        certificate_names.append(name)
        writer.write(ANSWER)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certify(certificate_folder, "localhost"))
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    async with listening(serve, context) as port:
        url = f"https://localhost:{port}/v1"
        with pytest.raises(ModelError):
            await Http().get(url, {}, Secret(""))
        both = certificate_folder / "both.pem"
        both.write_bytes(certificate.read_bytes() + key.read_bytes())
        for cert_file, key_file in ((certificate, str(key)), (both, "")):
            monkeypatch.setenv("TREADLE_CLIENT_CERT", str(cert_file))
            monkeypatch.setenv("TREADLE_CLIENT_KEY", key_file)
            connection._make_tls_context.cache_clear()
            http = Http()
            assert await http.get(url, {}, Secret("")) == b"{}"
            await http.close()
    assert certificate_names == ["client.test"] * 2


@pytest.mark.parametrize("problem", ["missing", "encrypted"])
async def test_a_client_certificate_that_cannot_be_used_is_named(
    certificate_folder: Path, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    certificate, key = certify(certificate_folder, "localhost")
    if problem == "encrypted":
        secret = serialization.load_pem_private_key(key.read_bytes(), None)
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        key.write_bytes(secret.private_bytes(pem, form, serialization.BestAvailableEncryption(b"word")))
    else:
        certificate.rename(certificate_folder / "elsewhere.crt")
    monkeypatch.setenv("TREADLE_CLIENT_CERT", str(certificate))
    monkeypatch.setenv("TREADLE_CLIENT_KEY", str(key))
    with pytest.raises(ModelError, match=r"localhost\.crt \(TREADLE_CLIENT_CERT\) cannot be used: ") as caught:
        await Http().get("https://localhost:9/v1", {}, Secret(""))
    assert caught.value.kind == "network"


class Tunnel:
    """A proxy that passes bytes on to any port of this machine, for those who know the word."""

    def __init__(self, refusal: bytes = b"", status: str = "200 Connection established") -> None:
        self.asked: list[str] = []
        self._refusal = refusal
        self._status = status

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head)
        if self._refusal:
            writer.write(self._refusal)
            return
        port = int(head.split(" ")[1].rpartition(":")[2])
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"HTTP/1.1 {self._status}\r\n\r\n".encode())
        try:
            await asyncio.gather(self._pass_on(reader, far_writer), self._pass_on(far_reader, writer))
        finally:
            far_writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()


@asynccontextmanager
async def proxy(tunnel: Tunnel) -> AsyncIterator[str]:
    async with listening(tunnel.serve) as port:
        yield f"127.0.0.1:{port}"


@pytest.mark.parametrize("status", ["200 Connection established", "201 Created", "204 No Content"])
async def test_tls_goes_through_a_proxy_to_the_server_itself(certificate_folder: Path, status: str) -> None:
    tunnel = Tunnel(status=status)
    async with secure_server(certificate_folder, "localhost") as port, proxy(tunnel) as place:
        way = ServerRoute(parse_address(f"https://localhost:{port}/v1"), parse_address(f"http://me:word@{place}"))
        connection = await way.connect()
        for _ in range(2):
            assert (await connection.send(way.encode_head("GET", {}))).status == 200
            assert await connection.read() == b"{}"
        connection.close()
        await asyncio.sleep(0)
    (head,) = tunnel.asked
    assert head.startswith(f"CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\n")
    assert "Proxy-Authorization: Basic bWU6d29yZA==" in head


async def test_a_proxy_puts_no_bytes_before_the_answer_of_the_server(certificate_folder: Path) -> None:
    tunnel = Tunnel(status="200 Connection established\r\n\r\n{}")
    async with secure_server(certificate_folder, "localhost") as port, proxy(tunnel) as place:
        way = ServerRoute(parse_address(f"https://localhost:{port}/v1"), parse_address(f"http://{place}"))
        with pytest.raises(ConnectionError, match=f"the proxy {place} sent data"):
            await way.connect()


async def test_a_proxy_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    tunnel = Tunnel(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
    async with proxy(tunnel) as place:
        monkeypatch.setenv("HTTPS_PROXY", place)
        with pytest.raises(ModelError, match=rf"a\.test cannot be reached: 407 .* proxy {place}"):
            await Http().get("https://a.test/v1", {}, Secret("key-of-the-user"))
    assert "key-of-the-user" not in tunnel.asked[0]
