"""The way to a server and one HTTP/1.1 connection: its address taken apart, the proxy before it (HTTP, HTTPS or
SOCKS5), TLS; then a request is sent as bytes, and the head and the body of the answer are received as they arrive.
httptools parses; this module adds limits, back-pressure, and the rule when a connection may be used again. Knows
nothing of the content."""

import asyncio
import os
import socket
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache
from itertools import zip_longest
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote, unquote, urlsplit

from httptools import HttpParserError, HttpResponseParser

if TYPE_CHECKING:
    import ssl


HEAD_CAP = 64 * 1024
HINTS = 20  # how many answers may say that the answer is still to come (100 Continue, 103 Early Hints)
LINE_CAP = 4 * 1024  # the most bytes between two chunks: the line of a chunk size, trailers
BUFFERED = 256 * 1024  # the most bytes of a body that are buffered for the reader before the server has to wait


class CutOff(ConnectionError):
    """The connection ended, or turned into nonsense, in the middle of an answer."""


class Head(NamedTuple):
    status: int
    reason: str
    headers: dict[str, str]  # by names in lower case


class ClientConnection(asyncio.Protocol):
    """Carries one exchange after another: `send`, then `read` to the end, or `close` to stop earlier."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.ended = True  # True if the answer is complete; parts of it may still be unread
        self.has_answer = False  # True if at least one byte of the answer has arrived
        self._parser: HttpResponseParser | None = None
        self._head: Head | None = None
        self._headers: dict[str, str] = {}
        self._reason = b""
        self._hints = self._overhead = self._buffered = 0
        self._body: list[bytes] = []
        self.on_body: Callable[[bytes], None] = self._body.append  # by the parser: no Python code runs for a chunk
        self._keeps = True
        self._closed = self._paused = self._tunnels = self._to_close = False
        self._error: OSError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_lost(self) -> bool:
        return self._closed or self.transport.is_closing()

    @property
    def at_eof(self) -> bool:
        return self.ended and not self._body

    @property
    def is_reusable(self) -> bool:
        """True if the connection can carry another exchange: this one is complete and completely read."""
        return self.at_eof and self._keeps and not self.is_lost

    async def send(self, request: bytes, *, tunnels: bool = False) -> Head:
        """The head of the answer to a whole request; one that `tunnels` (CONNECT) is answered without a body."""
        if self.is_lost:  # no callback of the transport would ever say so
            raise ConnectionError("the server closed the connection")
        self._begin(tunnels)
        self.transport.write(request)
        while self._head is None:
            if self._error is not None:
                raise self._error
            await self._wait_for_data()
        return self._head

    def _begin(self, tunnels: bool) -> None:
        if self._parser is None or self._tunnels:  # in a tunnel the parser would go on reading a body
            self._parser = HttpResponseParser(self)
            # Both are unambiguous. A connection whose answer has a length and chunks is not used again.
            self._parser.set_dangerous_leniencies(lenient_chunked_length=True, lenient_spaces_after_chunk_size=True)
        self.ended = self.has_answer = self._to_close = False
        self._tunnels, self._head, self._hints, self._overhead, self._buffered = tunnels, None, 0, 0, 0

    async def read(self) -> bytes:
        """Return the new part of the body; empty at its end. CutOff if the body will never be complete."""
        body = self._body
        while not body:
            if self.ended:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait_for_data()
        data = body[0] if len(body) == 1 else b"".join(body)
        body.clear()
        self._buffered = 0
        if self._paused:
            self._paused = False
            if not self._closed:
                self.transport.resume_reading()
        return data

    def close(self) -> None:
        """At once, without a TLS or TCP shutdown."""
        self._closed = True
        self.transport.abort()

    async def _wait_for_data(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, reason: str) -> None:
        if self._error is None:
            self._error = ConnectionError(reason) if self._head is None else CutOff(reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        plain = transport.get_extra_info("socket")
        if plain is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # an answer may be silent for long

    def data_received(self, data: bytes) -> None:
        self.has_answer = True
        if self.ended or self._parser is None:
            self._keeps = False  # bytes without a request could pass for the next answer
            return
        before = (self._head, len(self._body))
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            if self.ended:
                self._keeps = False  # bytes after a complete answer
            else:
                self._fail(f"the answer is not valid HTTP/1.1: {error}")
        if (self._head, len(self._body)) != before:
            self._overhead = 0
        elif not self.ended:
            self._overhead += len(data)
            if self._overhead > (HEAD_CAP if self._head is None else LINE_CAP):
                self._fail("the answer has a head without an end, or too much between two chunks")
        self._buffered += len(data)
        if self._error is not None:
            self.close()
        elif self._buffered > BUFFERED and not self._paused and not self._closed:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self._parser = None  # it refers to this object
        if not self.ended:
            if self._to_close and exc is None and self._error is None:
                self.ended = True
            else:
                self._fail(str(exc) if exc is not None else "the server closed the connection")
        self._wake()

    # Callbacks of the parser: any exception ends the parsing.

    def on_message_begin(self) -> None:
        if self.ended:
            raise ValueError("a second answer to one request")

    def on_status(self, text: bytes) -> None:
        self._reason += text

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is None:  # others are trailers
            key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
            self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        headers, self._headers = self._headers, {}
        reason, self._reason = self._reason.decode("latin-1"), b""
        status, version = self._parser.get_status_code(), self._parser.get_http_version()
        if 100 <= status < 200 and status != 101:
            self._hints += 1
            if self._hints > HINTS:
                self._refuse(f"the answer does not begin: more than {HINTS} interim answers came")
            return
        coding, length = headers.get("transfer-encoding", "").lower(), headers.get("content-length", "")
        if coding not in ("", "chunked"):
            self._refuse(f"the answer has the transfer encoding {coding[:40]!r}; only 'chunked' is supported")
        if not version.startswith("1."):
            self._refuse(f"the answer is HTTP/{version}, not HTTP/1.1")
        self._keeps = self._parser.should_keep_alive() and not (coding and length)
        self._to_close = not coding and not length and status not in (101, 204, 304)
        self._head = Head(status, reason, headers)
        self.ended = self._tunnels and 200 <= status < 300

    def on_message_complete(self) -> None:
        self.ended = self._head is not None  # it is None after an interim answer

    def _refuse(self, reason: str) -> None:
        self._fail(reason)
        raise ValueError(reason)


CONNECT_S = 30.0
NEXT_ADDRESS_S = 0.25  # after so long another of a host's addresses is tried beside the first
CLIENT_CERT, CLIENT_KEY = "TREADLE_CLIENT_CERT", "TREADLE_CLIENT_KEY"
"""The variables that name the PEM files of a client certificate and its key."""
_KEPT_IN_PATHS = "/:@!$&'()*+,;=~-._%"
_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_TLS_LOCK = Lock()


class InvalidAddress(ValueError):
    """A URL that is no address of a server."""


class Address(NamedTuple):
    scheme: str
    host: str
    port: int
    host_header: str  # host and port as in the Host header
    path: str  # with the query
    user: str = ""
    password: str = ""

    @property
    def login(self) -> str:
        """The value of an Authorization header for the name and password in the address, or nothing."""
        if not self.user and not self.password:
            return ""
        return f"Basic {b64encode(f'{self.user}:{self.password}'.encode()).decode()}"


@lru_cache(256)
def parse_address(url: str, schemes: tuple[str, ...] = ("http", "https")) -> Address:
    """InvalidAddress if it is no address of a server."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in schemes or not parts.hostname:
            raise InvalidAddress(f"{url!r} is no address of a server")
        host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
        port = parts.port or _PORTS[parts.scheme]
    except InvalidAddress:
        raise
    except ValueError as error:
        raise InvalidAddress(f"{url!r} is no address of a server: {error}") from error
    host_text = f"[{host}]" if ":" in host else host
    path = quote(parts.path or "/", _KEPT_IN_PATHS)
    query = f"?{quote(parts.query, _KEPT_IN_PATHS + '/?')}" if parts.query else ""
    host_header = host_text if port == _PORTS[parts.scheme] else f"{host_text}:{port}"
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return Address(parts.scheme, host, port, host_header, path + query, user, password)


def find_proxy(host: str, scheme: str) -> Address | None:
    """The proxy that the user's environment names for a host (HTTPS_PROXY, NO_PROXY …); this machine needs none.
    OSError if it is a proxy of an unknown kind."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

    bare = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if bare in ("localhost", "::1") or bare.startswith("127."):
        return None
    proxies = getproxies_environment()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or proxy_bypass_environment(host) or _is_in_networks(bare, proxies.get("no", "")):
        return None
    url = proxy if "://" in proxy else f"http://{proxy}"
    kind = url.partition(":")[0]
    if kind not in _PORTS:
        raise ConnectionError(f"a proxy must be http://, https://, socks5:// or socks5h://, not {kind}://")
    try:
        return parse_address(url, tuple(_PORTS))
    except InvalidAddress:
        raise ConnectionError(f"the address of the {kind} proxy in the environment is not valid") from None


def _is_in_networks(host: str, no_proxy: str) -> bool:
    """True if the host is an IP address in one of the networks (10.0.0.0/8, fd00::/8) that NO_PROXY lists."""
    from ipaddress import ip_address, ip_network

    for entry in no_proxy.split(","):
        with suppress(ValueError):  # the name of a host
            if ip_address(host) in ip_network(entry.strip().strip("[]"), strict=False):
                return True
    return False


def get_tls_context() -> "ssl.SSLContext":
    """The TLS context of all connections. Creating it is slow, but releases the interpreter lock: do it in a thread."""
    with _TLS_LOCK:  # a second caller waits for the first
        return _make_tls_context()


@cache
def _make_tls_context() -> "ssl.SSLContext":
    import ssl

    context = ssl.create_default_context()
    if not _has_authorities(context):
        import certifi

        context.load_verify_locations(certifi.where())
    if certificate := os.environ.get(CLIENT_CERT):
        try:  # with an empty password an encrypted key is an error, and no question on the terminal
            context.load_cert_chain(certificate, os.environ.get(CLIENT_KEY) or None, password="")
        except OSError as error:
            raise OSError(f"the client certificate {certificate} ({CLIENT_CERT}) cannot be used: {error}") from error
    context.set_alpn_protocols(["http/1.1"])
    return context


def _has_authorities(context: "ssl.SSLContext") -> bool:
    """False if this machine has no store of certificates. A store that the user chose is never replaced."""
    import ssl

    if os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR") or context.cert_store_stats()["x509"]:
        return True
    folder = ssl.get_default_verify_paths().capath  # OpenSSL reads its files when it needs them
    return folder is not None and bool(os.listdir(folder))


class ServerRoute(NamedTuple):
    to: Address
    proxy: Address | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for requests that can share a connection."""
        return (*self.to[:3], self.proxy)

    def encode_head(self, method: str, headers: dict[str, str]) -> bytes:
        """The request up to its body. ValueError if a header has a line break in it."""
        to, proxy = self
        target = to.path
        all_headers = {"Host": to.host_header, **headers}
        if to.login:
            all_headers.setdefault("Authorization", to.login)
        if proxy is not None and to.scheme == "http" and proxy.scheme in ("http", "https"):
            target = f"http://{to.host_header}{to.path}"
            if proxy.login:
                all_headers["Proxy-Authorization"] = proxy.login
        return _encode_head(f"{method} {target} HTTP/1.1", all_headers)

    async def connect(self) -> ClientConnection:
        """A new connection. OSError if there is none to be had, TimeoutError if not in time."""
        to, proxy = self
        async with asyncio.timeout(CONNECT_S):
            if proxy is None:
                return await _connect(to)
            if proxy.scheme.startswith("socks5"):
                return await _connect_by_socks(to, proxy)
            connection = await _connect(proxy)
            if to.scheme == "https":
                try:
                    await _tunnel(connection, to, proxy)
                except BaseException:
                    connection.close()
                    raise
            return connection


async def _connect(to: Address) -> ClientConnection:
    loop = asyncio.get_running_loop()
    context = await loop.run_in_executor(None, get_tls_context) if to.scheme == "https" else None
    return await _begin_connection(await _connect_socket(to), to, context)


async def _begin_connection(sock: socket.socket, to: Address, context: "ssl.SSLContext | None") -> ClientConnection:
    loop, name = asyncio.get_running_loop(), to.host if context is not None else None
    try:
        _, connection = await loop.create_connection(ClientConnection, sock=sock, ssl=context, server_hostname=name)
    except BaseException:
        sock.close()
        raise
    return connection


async def _connect_socket(to: Address) -> socket.socket:
    """Connect to the address of the host that answers first. The next one is tried when one fails, or beside it after
    NEXT_ADDRESS_S. asyncio's `happy_eyeballs_delay` does the same, but loses a connected socket if it is cancelled."""
    try:  # numbers need no look-up and no thread
        rows = socket.getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        rows = await asyncio.get_running_loop().getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM)
    families = [[row for row in rows if row[0] == family] for family in dict.fromkeys(row[0] for row in rows)]
    untried = [row for in_turn in zip_longest(*families) for row in in_turn if row is not None]
    running: set[asyncio.Task[socket.socket]] = set()
    error = OSError(f"{to.host} has no address")
    try:
        while untried or running:
            if untried:
                running.add(asyncio.create_task(_try_address(*untried.pop(0))))
            delay_s = NEXT_ADDRESS_S if untried else None
            finished, _ = await asyncio.wait(running, timeout=delay_s, return_when=asyncio.FIRST_COMPLETED)
            for attempt in finished:
                running.remove(attempt)
                try:
                    return attempt.result()
                except OSError as failure:
                    error = failure
        raise error
    finally:
        for attempt in running:
            attempt.cancel()
            attempt.add_done_callback(_close_unused)


async def _try_address(family: int, kind: int, protocol: int, _: str, address: Any) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def _close_unused(attempt: asyncio.Task[socket.socket]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


async def _connect_by_socks(to: Address, proxy: Address) -> ClientConnection:
    """By SOCKS5. With socks5h the proxy looks the name up, with socks5 this machine does."""
    try:
        from python_socks import ProxyError, ProxyTimeoutError, ProxyType
        from python_socks.async_.asyncio import Proxy
    except ImportError:
        missing = f"the proxy {proxy.scheme}://{proxy.host_header} needs the package python-socks"
        raise ConnectionError(f"{missing}: pip install 'treadle[socks]'") from None
    loop = asyncio.get_running_loop()
    by_proxy = proxy.scheme == "socks5h"
    socks = Proxy(ProxyType.SOCKS5, proxy.host, proxy.port, proxy.user or None, proxy.password or None, rdns=by_proxy)
    context = await loop.run_in_executor(None, get_tls_context) if to.scheme == "https" else None
    try:
        sock = await socks.connect(to.host, to.port, timeout=CONNECT_S)
    except (ProxyError, ProxyTimeoutError, OSError) as error:
        raise ConnectionError(f"{error}, says the proxy {proxy.host_header}") from error
    return await _begin_connection(sock, to, context)


async def _tunnel(connection: ClientConnection, to: Address, proxy: Address) -> None:
    """Ask the proxy for the server behind it, and speak TLS with that."""
    place = f"{to.host_header.removesuffix(f':{to.port}')}:{to.port}"
    login = {"Proxy-Authorization": proxy.login} if proxy.login else {}
    loop = asyncio.get_running_loop()
    context = await loop.run_in_executor(None, get_tls_context)
    answer = await connection.send(_encode_head(f"CONNECT {place} HTTP/1.1", {"Host": place, **login}), tunnels=True)
    if not 200 <= answer.status < 300:
        raise ConnectionError(f"{answer.status} {answer.reason}, says the proxy {proxy.host_header}")
    if not connection.at_eof:  # it would be read as the beginning of the server's answer, without TLS
        raise ConnectionError(f"the proxy {proxy.host_header} sent data of its own behind its answer")
    # A closed transport would never report that TLS cannot begin on it. From here to the end of `start_tls` its loss
    # is noticed: nothing else runs in between, and then TLS notices it.
    inner = None
    if not connection.is_lost:
        inner = await loop.start_tls(connection.transport, connection, context, server_hostname=to.host)
    if inner is None:
        raise ConnectionError(f"the proxy {proxy.host_header} closed the connection to {place}")
    connection.transport = inner


def _encode_head(first: str, headers: dict[str, str]) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in headers.items())]
    head = "\r\n".join(lines)
    if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1 or "\0" in head:
        raise ValueError("a header has a line break in it")
    return f"{head}\r\n\r\n".encode()
