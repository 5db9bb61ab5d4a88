"""Random bodies for every route that takes one: refused with a clear error, or carried out; never a fault of the server
(A-06, S-20). TEST_SEED repeats a run."""

import json
import random
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from tests.faults.chance import SEED
from tests.homes import seed
from tests.scenario.http_kit import serving
from treadle.adapters.models.scripted import Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.frontends.server.admission import Admission
from treadle.frontends.server.running import ROUTES
from treadle.protocol.options import ChatOptions

pytestmark = pytest.mark.thorough(one_of=8)

TRIES = 8
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 10**30, -(10**30), 1e308, 0.5, "", " ", "x" * 3_000, "\x00", "\x1b[2J", "../..", "ä",
    "allow", "chat", "c_1", [], [[]], {}, {"": ""}, [None], ["x", "x"], {"a": {"b": [1]}},
]  # fmt: skip
RAW = [
    b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"a": 1e999}', b'{"content": "\\ud800"}', b"[" * 50_000,
    b'{"content": ' + b"[" * 50_000, b'{"content": "a", "content": 1}', b'"' + b"x" * 300_000 + b'"', b"NaN",
]  # fmt: skip


def body(chance: random.Random, kind: type) -> bytes:
    if chance.random() < 0.2:
        return chance.choice(RAW)
    names = [*get_type_hints(kind), "unknown"]
    field_names = chance.sample(names, min(len(names), chance.randrange(1, 5)))
    return json.dumps({name: chance.choice(ODD) for name in field_names}).encode()


@pytest.mark.thorough(one_of=8)
async def test_every_route_takes_every_body(tmp_path: Path) -> None:
    print(f"TEST_SEED={SEED}")
    chance = random.Random(SEED)
    options = ChatOptions(model="scripted:x", interactive=True, summarize=False, verify=False)
    admission = Admission(options, roots=(str(tmp_path / "project"),))
    (tmp_path / "project").mkdir()
    store, home = SqliteStore(tmp_path / "treadle.db"), seed(tmp_path / "home")
    async with serving(store, home, [Say("Done.")] * 500, options=options, admission=admission) as server:
        chat = await server.local.create("Go.")
        await server.local.until(chat, "session.idle")
        for route in [route for route in ROUTES if route.body is not None]:
            for _ in range(TRIES):
                assert route.body is not None
                deletes_chat = (route.method, route.path) == ("DELETE", "/api/chats/{chat}")
                is_known_chat = chance.random() < 0.8 and not deletes_chat
                path = route.path.replace("{chat}", chat if is_known_chat else "c_none")
                for name in ("action", "seq", "id", "job", "world", "queued", "name", "run"):
                    path = path.replace(f"{{{name}}}", chance.choice(["1", "1.0", "-1", "x", "9" * 30, "%00"]))
                data = body(chance, route.body)
                headers = {"content-type": "application/json"}
                if chance.random() < 0.5:
                    headers["idempotency-key"] = chance.choice(["k1", "k2", "x" * 255, "x" * 256])
                answer = await server.local(route.method, path, data=data, headers=headers)
                description = f"{route.method} {path} {data[:300]!r}: {answer.status} {answer.data[:300]!r}"
                assert answer.status < 500, description
                if answer.status >= 400:
                    assert answer.code, description
        assert (await server.local("GET", f"/api/chats/{chat}")).status == 200
