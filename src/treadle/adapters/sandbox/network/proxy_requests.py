"""Requests to the proxy: the head of an HTTP request or the greeting of SOCKS5, read with a limit on size. Nothing is
decided here; the result is a `Request`."""

import asyncio
import socket
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

HEAD_SIZE = 16 * 1024
_TUNNELED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_HOP = (b"connection:", b"proxy-connection:", b"proxy-authorization:", b"keep-alive:", b"upgrade:", b"host:")
"""Headers between the program and the proxy; and the host, which is written anew, so that it is the one allowed."""
_SOCKS = 5
_REPLIES = {"refused": 2, "unreachable": 4}

Kind = Literal["tunnel", "plain", "socks"]


class Request(NamedTuple):
    kind: Kind
    host: str
    port: int
    head: bytes = b""
    """Of a plain request: the head that goes to the server."""


class BadRequest(Exception):
    """The program sent bytes that are not a request that the proxy knows."""


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
    """The first request of a connection. BadRequest if it is none; the connection's end counts as that."""
    try:
        first = await reader.readexactly(1)
        return await (_socks(reader, writer) if first[0] == _SOCKS else _http(first, reader))
    except asyncio.IncompleteReadError as error:
        raise BadRequest("the connection ended before a request was complete") from error
    except asyncio.LimitOverrunError as error:
        raise BadRequest(f"a request head of more than {HEAD_SIZE} bytes") from error
    except (ValueError, UnicodeError) as error:
        raise BadRequest("a request that cannot be read") from error


async def _http(first: bytes, reader: asyncio.StreamReader) -> Request:
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
    kept_headers = [each for each in headers.split(b"\r\n") if each and not each.lower().startswith(_HOP)]
    lines = [
        b" ".join((method, path.encode("ascii"), version)),
        b"Host: " + host_header,
        b"Connection: close",
        *kept_headers,
    ]
    return Request("plain", url.hostname, url.port or 80, b"\r\n".join(lines) + b"\r\n\r\n")


async def _socks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
    methods = await reader.readexactly((await reader.readexactly(1))[0])
    if 0 not in methods:
        writer.write(bytes((_SOCKS, 0xFF)))
        raise BadRequest("SOCKS5 with a way to sign in that the proxy does not have")
    writer.write(bytes((_SOCKS, 0)))
    version, command, _, kind = await reader.readexactly(4)
    if version != _SOCKS or command != 1:
        writer.write(_socks_reply(7))
        raise BadRequest("SOCKS5 for something else than a connection")
    match kind:
        case 1:
            host = socket.inet_ntop(socket.AF_INET, await reader.readexactly(4))
        case 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode("ascii")
        case 4:
            host = socket.inet_ntop(socket.AF_INET6, await reader.readexactly(16))
        case _:
            writer.write(_socks_reply(8))
            raise BadRequest("SOCKS5 with an address of an unknown kind")
    return Request("socks", host, int.from_bytes(await reader.readexactly(2), "big"))


def accepted(kind: Kind) -> bytes:
    """Return the reply to the program before its data flows."""
    match kind:
        case "tunnel":
            return _TUNNELED
        case "socks":
            return _socks_reply(0)
        case "plain":
            return b""


def declined(kind: Kind, failure: Literal["refused", "unreachable"], text: str) -> bytes:
    """Return the reply to the program that refuses its request."""
    if kind == "socks":
        return _socks_reply(_REPLIES[failure])
    status = b"403 Forbidden" if failure == "refused" else b"502 Bad Gateway"
    body = f"treadle: {text}\n".encode(errors="replace")
    fields = (b"HTTP/1.1 " + status, b"Content-Type: text/plain; charset=utf-8", b"Connection: close")
    return b"\r\n".join((*fields, b"Content-Length: %d" % len(body), b"", body))


def _socks_reply(code: int) -> bytes:
    return bytes((_SOCKS, code, 0, 1, 0, 0, 0, 0, 0, 0))
