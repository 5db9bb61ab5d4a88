"""The way to a server: its address taken apart, the proxy before it, TLS, and the connections that are kept open for
the next request. Knows nothing of what is said on them."""

import asyncio
import os
import time
from base64 import b64encode
from collections import defaultdict, deque
from functools import cache, lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from treadle.adapters.models.wire.connection import ServerConnection

if TYPE_CHECKING:
    import ssl

CONNECT_S = 30.0
KEEPALIVE_S = 60.0
NEXT_ADDRESS_S = 0.25
"""After so long another of a host's addresses is tried beside the first."""
_KEPT_IN_PATHS = "/:@!$&'()*+,;=~-._%"
_PORTS = {"http": 80, "https": 443}
_MAKING = Lock()


class Address(NamedTuple):
    tls: bool
    host: str
    port: int
    host_header: str
    """Host and port as in the Host header."""
    path: str
    """With the query."""
    login: str
    """The value of an Authorization header for the name and password in the address, or nothing."""


@lru_cache(256)
def address_of(url: str) -> Address:
    """ValueError if it is no address of a server."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{url!r} is no address of a server")
    host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
    port = parts.port or _PORTS[parts.scheme]
    host_text = f"[{host}]" if ":" in host else host
    path = quote(parts.path or "/", _KEPT_IN_PATHS)
    query = f"?{quote(parts.query, _KEPT_IN_PATHS + '/?')}" if parts.query else ""
    login = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        login = f"Basic {b64encode(pair.encode()).decode()}"
    host_and_port = host_text if port == _PORTS[parts.scheme] else f"{host_text}:{port}"
    return Address(parts.scheme == "https", host, port, host_and_port, path + query, login)


def proxy_of(host: str, scheme: str) -> str | None:
    """The proxy that the user's environment names for a host (HTTPS_PROXY, NO_PROXY …); this machine needs none."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

    name = host.rpartition("@")[2]
    bare = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    if bare in ("localhost", "::1") or bare.startswith("127.") or proxy_bypass_environment(name):
        return None
    proxies = getproxies_environment()
    proxy = proxies.get(scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def tls_context() -> "ssl.SSLContext":
    """Return the TLS context of all connections. Creating it is slow, because the certificates of this machine are
    read, but releases the interpreter lock: create it in a thread if possible."""
    with _MAKING:  # a second caller waits for the first
        return _tls_context()


@cache
def _tls_context() -> "ssl.SSLContext":
    import ssl

    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class Route(NamedTuple):
    """Where requests to an address go."""

    to: Address
    proxy: Address | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for requests that can share a connection."""
        return (self.to.tls, self.to.host, self.to.port, self.proxy)

    def head(self, method: str, headers: dict[str, str]) -> bytes:
        """The request up to its body. ValueError if a header has a line break in it."""
        to, proxy = self
        target = to.path
        all_headers = {"Host": to.host_header, **headers}
        if to.login:
            all_headers.setdefault("Authorization", to.login)
        if proxy is not None and not to.tls:
            target = f"http://{to.host_header}{to.path}"
            if proxy.login:
                all_headers["Proxy-Authorization"] = proxy.login
        return _head(f"{method} {target} HTTP/1.1", all_headers)

    async def connect(self) -> ServerConnection:
        """A new connection. OSError if there is none to be had, TimeoutError if not in time."""
        to, proxy = self
        async with asyncio.timeout(CONNECT_S):
            connection = await _connect(to if proxy is None else proxy)
            if proxy is not None and to.tls:
                try:
                    await _tunnel(connection, to, proxy)
                except BaseException:
                    connection.close()
                    raise
            return connection


async def _connect(to: Address) -> ServerConnection:
    loop = asyncio.get_running_loop()
    context = await loop.run_in_executor(None, tls_context) if to.tls else None
    more: dict[str, Any] = {}
    if isinstance(loop, asyncio.BaseEventLoop):  # others try one address after the other
        more["happy_eyeballs_delay"] = NEXT_ADDRESS_S
    _, connection = await loop.create_connection(ServerConnection, to.host, to.port, ssl=context, **more)
    return connection


async def _tunnel(connection: ServerConnection, to: Address, proxy: Address) -> None:
    """Ask the proxy for the server behind it, and speak TLS with that."""
    place = f"{to.host_header.removesuffix(f':{to.port}')}:{to.port}"
    login = {"Proxy-Authorization": proxy.login} if proxy.login else {}
    loop = asyncio.get_running_loop()
    context = await loop.run_in_executor(None, tls_context)
    answer = await connection.send(_head(f"CONNECT {place} HTTP/1.1", {"Host": place, **login}), tunnels=True)
    if answer.status != 200:
        raise ConnectionError(f"{answer.status} {answer.reason}, says the proxy {proxy.host_header}")
    # A transport that is closed would never tell that there is no TLS on it. From here to the end of `start_tls` its
    # loss is noticed: nothing else runs in between, and then it is the business of TLS.
    if connection.is_lost:
        raise ConnectionError(f"the proxy {proxy.host_header} closed the connection to {place}")
    inner = await loop.start_tls(connection.transport, connection, context, server_hostname=to.host)
    assert inner is not None
    connection.transport = inner


def _head(first: str, headers: dict[str, str]) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in headers.items())]
    head = "\r\n".join(lines)
    if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1 or "\0" in head:
        raise ValueError("a header has a line break in it")
    return f"{head}\r\n\r\n".encode()


class Pool:
    """The idle open connections."""

    def __init__(self) -> None:
        self._idle: dict[tuple[object, ...], deque[tuple[float, ServerConnection]]] = defaultdict(deque)
        self._sweep: asyncio.TimerHandle | None = None

    def take(self, route: Route) -> ServerConnection | None:
        """The one that was used last: servers close those that rest."""
        idle = self._idle[route.key]
        while idle:
            since, connection = idle.pop()
            if connection.is_reusable and time.monotonic() - since < KEEPALIVE_S:
                return connection
            connection.close()
        return None

    def give_back(self, route: Route, connection: ServerConnection) -> None:
        if not connection.is_reusable:
            connection.close()
            return
        self._idle[route.key].append((time.monotonic(), connection))
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(KEEPALIVE_S, self._drop_old)

    def _drop_old(self) -> None:
        """Close the connections that were idle too long, and repeat as long as some are left."""
        self._sweep = None
        for key, idle in list(self._idle.items()):
            while idle and (time.monotonic() - idle[0][0] >= KEEPALIVE_S or not idle[0][1].is_reusable):
                idle.popleft()[1].close()
            if not idle:
                del self._idle[key]
        if self._idle:
            self._sweep = asyncio.get_running_loop().call_later(KEEPALIVE_S / 2, self._drop_old)

    async def close(self) -> None:
        for idle in self._idle.values():
            for _, connection in idle:
                connection.close()
        self._idle.clear()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        await asyncio.sleep(0)  # that is how long the sockets need
