"""Vertex AI: where its models are, and the tokens that open the door (M-03, M-11, M-13)."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle.adapters.models.gemini import vertex
from treadle.adapters.models.gemini.vertex import build_address
from treadle.adapters.models.registry import ModelRegistry
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.errors import ConfigError, ModelError
from treadle.ports.model import Model, ModelRequest
from treadle.protocol.content import UserEntry
from treadle.testing.fake_gemini import FakeGemini, Reply
from treadle.testing.fake_http import FakeResponse, Headers, ThreadedServer, make_json_answer

TOKEN = "ya29.very-secret-token-0123456789"
PROJECT = {"GOOGLE_CLOUD_PROJECT": "p-1"}


async def ask(model: Model) -> ModelAnswer:
    assembler = Assembler(1)
    async for deltas in model.stream(ModelRequest("", [UserEntry("hi")])):
        assembler.feed(deltas)
    return assembler.finish(model.info.ref)


def printer(path: Path, *tokens: str, code: int = 0) -> str:
    """A command that prints these tokens, one a call, and counts its calls."""
    script = path / "token.py"
    script.write_text(
        "import pathlib\n"
        f"seen = pathlib.Path({str(path / 'calls')!r})\n"
        "calls = int(seen.read_text()) if seen.exists() else 0\n"
        "seen.write_text(str(calls + 1))\n"
        f"print({list(tokens)!r}[calls])\n"
        f"raise SystemExit({code})\n"
    )
    return f"'{sys.executable}' '{script}'"


@pytest.mark.parametrize(
    ("location", "address"),
    [
        ("global", "https://aiplatform.googleapis.com"),
        ("us", "https://aiplatform.us.rep.googleapis.com"),
        ("europe-west4", "https://europe-west4-aiplatform.googleapis.com"),
    ],
)
def test_addresses(location: str, address: str) -> None:
    assert build_address(location) == address


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        ("gemini-3.8-flash", "publishers/google/models/gemini-3.8-flash"),
        ("meta/llama-4", "publishers/meta/models/llama-4"),
        ("publishers/google/models/x", "publishers/google/models/x"),
    ],
)
async def test_a_given_token_and_the_names_of_models(name: str, resource: str) -> None:
    with FakeGemini([Reply(text="hello")]) as fake:
        env = {"GOOGLE_ACCESS_TOKEN": TOKEN, "GOOGLE_VERTEX_BASE_URL": fake.base_url, **PROJECT}
        registry = ModelRegistry(env)
        model = registry.get(f"vertex:{name}")
        assert (await ask(model)).text == "hello"
        assert TOKEN not in f"{model!r} {vars(model)}"  # M-13
        await registry.close()
    assert fake.paths == [f"/v1beta1/projects/p-1/locations/global/{resource}:streamGenerateContent?alt=sse"]
    assert fake.headers[0]["authorization"] == f"Bearer {TOKEN}"
    assert "x-goog-api-key" not in fake.headers[0]


async def test_the_location_is_chosen() -> None:
    with FakeGemini([Reply(text="hello")]) as fake:
        env = {"GOOGLE_ACCESS_TOKEN": TOKEN, "GOOGLE_VERTEX_BASE_URL": fake.base_url, **PROJECT}
        registry = ModelRegistry({**env, "GOOGLE_CLOUD_LOCATION": "us-east5"})
        await ask(registry.get("vertex:gemini-2.5-pro"))
        await registry.close()
    assert "/locations/us-east5/" in fake.paths[0]


async def test_a_given_token_that_is_refused_is_not_tried_again() -> None:
    with FakeGemini([Reply(status=401)], in_order=True) as fake:
        env = {"GOOGLE_ACCESS_TOKEN": TOKEN, "GOOGLE_VERTEX_BASE_URL": fake.base_url, **PROJECT}
        registry = ModelRegistry(env)
        with pytest.raises(ModelError) as caught:
            await ask(registry.get("vertex:gemini-2.5-pro"))
        await registry.close()
    assert (caught.value.kind, len(fake.requests)) == ("auth", 1)


async def test_a_commands_token_is_kept_until_it_is_refused(tmp_path: Path) -> None:  # M-11
    command = printer(tmp_path, "first-token", "second-token")
    with FakeGemini([Reply(text="a"), Reply(status=401), Reply(text="b"), Reply(text="c")], in_order=True) as fake:
        env = {"GOOGLE_ACCESS_TOKEN_COMMAND": command, "GOOGLE_VERTEX_BASE_URL": fake.base_url, **PROJECT}
        registry = ModelRegistry(env)
        one, other_model = registry.get("vertex:gemini-3.8-flash"), registry.get("vertex:gemini-2.5-pro")
        assert [(await ask(model)).text for model in (one, one, other_model)] == ["a", "b", "c"]
        await registry.close()
    tokens = [headers["authorization"].removeprefix("Bearer ") for headers in fake.headers]
    assert tokens == ["first-token", "first-token", "second-token", "second-token"]
    assert (tmp_path / "calls").read_text() == "2"


async def test_a_fresh_token_that_is_refused_ends_it(tmp_path: Path) -> None:
    command = printer(tmp_path, "first-token", "second-token")
    with FakeGemini([Reply(status=401)] * 2, in_order=True) as fake:
        env = {"GOOGLE_ACCESS_TOKEN_COMMAND": command, "GOOGLE_VERTEX_BASE_URL": fake.base_url, **PROJECT}
        registry = ModelRegistry(env)
        with pytest.raises(ModelError) as caught:
            await ask(registry.get("vertex:gemini-2.5-pro"))
        await registry.close()
    assert (caught.value.kind, len(fake.requests)) == ("auth", 2)


@pytest.mark.parametrize("command", ["/nowhere/gcloud print", "false", "true"])
async def test_commands_that_print_no_token(command: str) -> None:
    registry = ModelRegistry({"GOOGLE_ACCESS_TOKEN_COMMAND": command, "PATH": "/usr/bin:/bin", **PROJECT})
    with pytest.raises(ModelError, match=f"{command.split()[0]}.*(cannot be run|printed no token)") as caught:
        await ask(registry.get("vertex:gemini-2.5-pro"))
    assert caught.value.kind == "auth"
    await registry.close()


async def test_a_command_that_fails_shows_nothing_of_what_it_printed(tmp_path: Path) -> None:  # M-13
    registry = ModelRegistry({"GOOGLE_ACCESS_TOKEN_COMMAND": printer(tmp_path, TOKEN, code=3), **PROJECT})
    with pytest.raises(ModelError, match="ended with 3") as caught:
        await ask(registry.get("vertex:gemini-2.5-pro"))
    assert TOKEN not in str(caught.value)
    await registry.close()


async def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vertex, "COMMAND_S", 0.05)
    registry = ModelRegistry({"GOOGLE_ACCESS_TOKEN_COMMAND": "sleep 600", "PATH": "/usr/bin:/bin", **PROJECT})
    with pytest.raises(ModelError, match="printed nothing within"):
        await ask(registry.get("vertex:gemini-2.5-pro"))
    await registry.close()


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"GOOGLE_ACCESS_TOKEN": TOKEN}, "set GOOGLE_CLOUD_PROJECT"),
        ({"GOOGLE_ACCESS_TOKEN_COMMAND": "a 'b", **PROJECT}, "is no command line"),
        ({"GOOGLE_ACCESS_TOKEN": TOKEN, "GOOGLE_VERTEX_BASE_URL": "localhost", **PROJECT}, "must begin with http"),
    ],
)
def test_what_is_missing_is_said(env: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ModelRegistry(env).get("vertex:gemini-2.5-pro")


def test_without_the_library_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(ConfigError, match="install the extra `vertex`"):
        ModelRegistry({**PROJECT}).get("vertex:gemini-2.5-pro")


class TokenServer:
    """Where service accounts get their tokens."""

    def __init__(self) -> None:
        self.asked = 0
        self.status = 200

    def route(self, method: str, path: str, headers: Headers, body: bytes) -> FakeResponse:
        self.asked += 1
        if self.status != 200:
            return make_json_answer(
                self.status, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
            )
        return make_json_answer(
            200, {"access_token": f"ya29.token-{self.asked}", "expires_in": 3600, "token_type": "Bearer"}
        )


def account(path: Path, token_url: str) -> str:
    """The file of a service account, with a key of its own."""
    serialization: Any = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    rsa: Any = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key = rsa.generate_private_key(65537, 2048).private_bytes(pem, pkcs8, serialization.NoEncryption())
    info = {
        "type": "service_account",
        "project_id": "p-of-the-account",
        "private_key_id": "1",
        "private_key": key.decode(),
        "client_email": "a@p.iam.gserviceaccount.com",
        "token_uri": token_url,
    }
    file = path / "account.json"
    file.write_bytes(msgspec.json.encode(info))
    return str(file)


async def test_the_credentials_of_a_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("google.auth.transport.requests")
    tokens = TokenServer()
    replies = [Reply(text="a"), Reply(status=401), Reply(text="b")]
    with ThreadedServer(tokens.route) as giver, FakeGemini(replies, in_order=True) as fake:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", account(tmp_path, f"{giver.url}/token"))
        registry = ModelRegistry({"GOOGLE_VERTEX_BASE_URL": fake.base_url})
        model = registry.get("vertex:gemini-2.5-pro")
        assert [(await ask(model)).text for _ in range(2)] == ["a", "b"]
        await registry.close()
    assert "/projects/p-of-the-account/" in fake.paths[0]
    authorizations = [headers["authorization"] for headers in fake.headers]
    assert authorizations == ["Bearer ya29.token-1", "Bearer ya29.token-1", "Bearer ya29.token-2"]


@pytest.mark.thorough(one_of=8)
async def test_credentials_that_are_refused_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("google.auth.transport.requests")
    tokens = TokenServer()
    tokens.status = 400
    with ThreadedServer(tokens.route) as giver:
        for file, words in (
            (account(tmp_path, f"{giver.url}/token"), "invalid_grant"),
            (str(tmp_path / "x"), "x was not"),
        ):
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
            registry = ModelRegistry({})
            with pytest.raises(ModelError, match=words) as caught:
                await ask(registry.get("vertex:gemini-2.5-pro"))
            assert caught.value.kind == "auth"
            assert "gcloud auth application-default login" in str(caught.value)
            await registry.close()
