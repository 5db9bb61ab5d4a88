"""Models by name, keys from where they belong, and no key anywhere else (M-12, M-13)."""

import copy
import pickle
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.unit.adapters.models.loopback import DONE, Exchange, build_chunk, serving
from treadle.adapters.models.keys import Secret, find_key
from treadle.adapters.models.registry import ModelRegistry, list_offers
from treadle.adapters.models.scripted import Say, ScriptedModel
from treadle.errors import ConfigError
from treadle.ports.model import ModelRequest, Models
from treadle.protocol.content import UserEntry
from treadle.protocol.deltas import Delta

KEY = "sk-very-secret-key"


def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)


async def test_finds_models_and_keeps_them(tmp_path: Path) -> None:
    script = tmp_path / "s.toml"
    script.write_text('[[turn]]\ntext = "hi"\n')
    registry = ModelRegistry({"OPENAI_API_KEY": KEY})
    models: Models = registry
    assert models.get("openai:gpt-4.1").info.window == 1_047_576
    assert models.get("openai:gpt-4.1") is models.get("openai:gpt-4.1")
    assert models.get(f"scripted:{script}").info.provider == "scripted"
    registry.register("scripted:demo", lambda name: ScriptedModel([Say(name)]))
    registry.register("acme", lambda name: ScriptedModel([Say(name), Say(name)]))
    assert len(registry.get("scripted:demo").inner.script.turns) == 1  # type: ignore[attr-defined]
    assert len(registry.get("acme:any:thing").inner.script.turns) == 2  # type: ignore[attr-defined]
    await models.close()


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ("acme:x", r"no provider 'acme'.*known are .*groq, .*openai, .*scripted"),
        ("gpt-4.1", "write provider:name"),
        ("openai:", "write provider:name"),
        ("", "write provider:name"),
        ("anthropic:claude-opus-5-5", "set ANTHROPIC_API_KEY"),
        ("openai:gpt-4.1", "set OPENAI_API_KEY"),
        ("scripted:absent.toml", "absent.toml cannot be read"),
        ("recorded:absent.jsonl", "absent.jsonl cannot be read"),
    ],
)
def test_what_is_missing_is_said(ref: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    no_keyring(monkeypatch)
    with pytest.raises(ConfigError, match=words):
        ModelRegistry({}).get(ref)


def test_a_base_url_needs_no_key_but_a_scheme() -> None:
    assert ModelRegistry({"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}).get("openai:any").info.window == 32_768
    with pytest.raises(ConfigError, match="must begin with http"):
        ModelRegistry({"OPENAI_BASE_URL": "localhost:9"}).get("openai:any")
    assert ModelRegistry({"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}).get("anthropic:any").info.window == 32_768
    with pytest.raises(ConfigError, match="ANTHROPIC_BASE_URL is 'localhost:9'; it must begin with http"):
        ModelRegistry({"ANTHROPIC_BASE_URL": "localhost:9"}).get("anthropic:any")


async def test_one_session_for_all_models_and_close_ends_it() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.stream(build_chunk("stop", content="hi"), DONE)

    async with serving(handler) as server:
        registry = ModelRegistry({"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY})
        for name in ("a", "b"):
            async for _ in registry.get(f"openai:{name}").stream(ModelRequest("", [UserEntry("x")])):
                pass
        await registry.close()
        await registry.close()
    assert [(request.connection, request.json["model"]) for request in server.seen] == [(1, "a"), (1, "b")]
    assert server.seen[0].headers["authorization"] == f"Bearer {KEY}"


async def test_a_key_is_never_shown_or_written() -> None:  # M-13
    registry = ModelRegistry({"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY})
    for ref in ("openai:gpt-4.1", "anthropic:claude-opus-5-5"):
        model = registry.get(ref)
        assert KEY not in f"{registry!r} {model!r} {model.info!r} {vars(model)}"
    secret = Secret(KEY)
    assert KEY not in f"{secret} {secret!r} {[secret]}"
    for write in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="not written"):
            write(secret)
    await registry.close()


STORED = (("treadle", "OPENAI_API_KEY"), ("treadle", "GROQ_API_KEY"))


async def test_the_key_store_is_asked_for_a_providers_own_host_only(monkeypatch: pytest.MonkeyPatch) -> None:  # M-13
    store = types.ModuleType("keyring")
    store.get_password = lambda service, name: KEY if (service, name) in STORED else None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", store)
    assert find_key({}, "OPENAI_API_KEY").reveal() == KEY
    assert find_key({"OPENAI_API_KEY": "from-env"}, "OPENAI_API_KEY").reveal() == "from-env"
    elsewhere = ModelRegistry({"GROQ_BASE_URL": "http://127.0.0.1:9"}).get("groq:any")
    access = elsewhere.inner._access  # type: ignore[attr-defined]
    assert not access.key
    store.get_password = lambda service, name: KEY  # type: ignore[attr-defined]
    elsewhere = ModelRegistry({"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}).get("anthropic:any")
    access = elsewhere.inner._access  # type: ignore[attr-defined]
    assert not access.key

    def refuse_password(service: str, name: str) -> str:
        raise RuntimeError("no backend")

    store.get_password = refuse_password  # type: ignore[attr-defined]
    assert not find_key({}, "OPENAI_API_KEY")


def test_a_registry_costs_no_import_of_the_network() -> None:
    unwanted = ("aiohttp", "asyncio", "httptools", "ssl")
    code = f"import sys, treadle.adapters.models.registry; print([m for m in {unwanted} if m in sys.modules])"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


def test_deltas_are_one_closed_union() -> None:
    from treadle.adapters.models.recorded import _WORDS

    assert set(_WORDS.values()) == set(Delta.__args__)


@pytest.mark.parametrize("variable", ["GOOGLE_CLOUD_PROJECT", ""])
def test_google_cloud_is_looked_for_in_the_environment_of_the_registry(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    monkeypatch.delenv("GOOGLE_ACCESS_TOKEN", raising=False)
    env = {variable: "p", "GOOGLE_ACCESS_TOKEN": "t"} if variable else {}
    (vertex,) = [offer for offer in list_offers(ModelRegistry(env)) if offer.provider == "vertex"]
    assert bool(vertex.unusable_reason) is not bool(variable)
