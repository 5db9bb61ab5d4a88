"""The way to a server: its address taken apart, the proxy before it (HTTP, HTTPS or SOCKS5), TLS, and a new connection.
Knows nothing of what is said on it."""

import asyncio
import os
from base64 import b64encode
from functools import cache, lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from treadle.base.http.connection import ClientConnection

if TYPE_CHECKING:
    import ssl

CONNECT_S = 30.0
NEXT_ADDRESS_S = 0.25
"""After so long another of a host's addresses is tried beside the first."""
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
    host_header: str
    """Host and port as in the Host header."""
    path: str
    """With the query."""
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
        kinds = "http://, https://, socks5:// or socks5h://"
        raise ConnectionError(f"a proxy must be {kinds}, not {kind}://")
    try:
        return parse_address(url, tuple(_PORTS))
    except InvalidAddress:
        raise ConnectionError(f"the address of the {kind} proxy in the environment is not valid") from None


def _is_in_networks(host: str, no_proxy: str) -> bool:
    """True if the host is an IP address in one of the networks (10.0.0.0/8, fd00::/8) that NO_PROXY lists."""
    from ipaddress import ip_address, ip_network

    try:
        address = ip_address(host)
    except ValueError:
        return False
    for entry in no_proxy.split(","):
        try:
            if address in ip_network(entry.strip().strip("[]"), strict=False):
                return True
        except ValueError:  # the name of a host
            continue
    return False


def tls_context() -> "ssl.SSLContext":
    """Return the TLS context of all connections. Creating it is slow, because the certificates of this machine are
    read, but releases the interpreter lock: create it in a thread if possible."""
    with _TLS_LOCK:  # a second caller waits for the first
        return _tls_context()


@cache
def _tls_context() -> "ssl.SSLContext":
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
    """Where requests to an address go."""

    to: Address
    proxy: Address | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for requests that can share a connection."""
        return (*self.to[:3], self.proxy)

    def head(self, method: str, headers: dict[str, str]) -> bytes:
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
    context = await loop.run_in_executor(None, tls_context) if to.scheme == "https" else None
    more: dict[str, Any] = {}
    if isinstance(loop, asyncio.BaseEventLoop):  # others try one address after the other
        more["happy_eyeballs_delay"] = NEXT_ADDRESS_S
    _, connection = await loop.create_connection(ClientConnection, to.host, to.port, ssl=context, **more)
    return connection


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
    context = await loop.run_in_executor(None, tls_context) if to.scheme == "https" else None
    try:
        sock = await socks.connect(to.host, to.port, timeout=CONNECT_S)
    except (ProxyError, ProxyTimeoutError, OSError) as error:
        raise ConnectionError(f"{error}, says the proxy {proxy.host_header}") from error
    try:
        server_name = to.host if context is not None else None
        _, connection = await loop.create_connection(
            ClientConnection, sock=sock, ssl=context, server_hostname=server_name
        )
    except BaseException:
        sock.close()
        raise
    return connection


async def _tunnel(connection: ClientConnection, to: Address, proxy: Address) -> None:
    """Ask the proxy for the server behind it, and speak TLS with that."""
    place = f"{to.host_header.removesuffix(f':{to.port}')}:{to.port}"
    login = {"Proxy-Authorization": proxy.login} if proxy.login else {}
    loop = asyncio.get_running_loop()
    context = await loop.run_in_executor(None, tls_context)
    answer = await connection.send(_encode_head(f"CONNECT {place} HTTP/1.1", {"Host": place, **login}), tunnels=True)
    if not 200 <= answer.status < 300:
        raise ConnectionError(f"{answer.status} {answer.reason}, says the proxy {proxy.host_header}")
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
