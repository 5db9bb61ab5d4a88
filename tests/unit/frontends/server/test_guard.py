"""What every request passes first, without a server around it: what the library of the server would filter out by
itself today is refused all the same (S-13, fault 29)."""

from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from treadle.frontends.server.guard import Guard
from treadle.frontends.server.tokens import Tokens
from treadle.frontends.server.usage import Metrics

OURS, THEIRS = b"localhost:8700", b"evil.example"


async def answer(home: Path, *headers: tuple[bytes, bytes]) -> int:
    tokens = Tokens(home / "tokens.json")
    token = (b"authorization", b"Bearer " + tokens.add("local")[1].encode())
    statuses: list[int] = []

    async def inside(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def spend(_ticket: str) -> bool:
        return True

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {"type": "http", "method": "GET", "path": "/api/me", "query_string": b"", "headers": [token, *headers]}
    await Guard(inside, tokens, Metrics(), spend)(scope, receive, send)
    (status,) = statuses
    return status


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        ([OURS], 200),
        ([THEIRS], 403),
        ([], 403),
        ([OURS, THEIRS], 403),
        ([THEIRS, OURS], 403),
        ([OURS, OURS], 403),
        ([OURS, THEIRS, OURS], 403),
        ([OURS + b"," + THEIRS], 403),
        ([THEIRS + b"@localhost"], 403),
        ([b"localhost/" + THEIRS], 403),
        ([b"localhost"], 200),
        ([b"[::1]:8700"], 200),
    ],
)
async def test_one_host_is_named_and_it_is_ours(tmp_path: Path, hosts: list[bytes], status: int) -> None:
    assert await answer(tmp_path, *((b"host", host) for host in hosts)) == status


@pytest.mark.parametrize(
    "origins", [[b"http://evil.example", b"http://localhost:8700"], [b"http://localhost:8700", b"null"]]
)
async def test_every_origin_is_ours(tmp_path: Path, origins: list[bytes]) -> None:
    headers = [(b"host", OURS), *((b"origin", origin) for origin in origins)]
    assert await answer(tmp_path, *headers) == 403


async def test_one_token_is_sent(tmp_path: Path) -> None:
    assert await answer(tmp_path, (b"host", OURS), (b"authorization", b"Bearer wrong")) == 401
