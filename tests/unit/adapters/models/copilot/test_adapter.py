"""GitHub Copilot: tokens are exchanged, kept, renewed and shown nowhere; the service gets the headers it wants (M-01,
M-11, M-13)."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from tests.fake_copilot import GITHUB_TOKEN, FakeCopilot, Reply
from treadle.adapters.models.copilot import (
    BASE_URL,
    GITHUB_API_URL,
    CopilotEndpoint,
    ask_gh,
    choose_base_url,
    list_models,
    make_model,
)
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.registry import ModelRegistry
from treadle.adapters.models.wire.http import Http
from treadle.base.types import make_call_key
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.errors import ConfigError, ModelError
from treadle.ports.model import Memo, Model, ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, ToolResult, UserEntry
from treadle.protocol.tools import ToolSpec

INFO = ModelInfo("copilot", "gpt-4.1")
HELLO = [Reply(text="hello")] * 9
CALL = Reply(thinking="hm", calls=[("read_file", {"path": "a"})])
TOOLS = (ToolSpec("read_file"),)


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)


async def ask(model: Model, request: ModelRequest | None = None) -> ModelAnswer:
    assembler = Assembler(1)
    async for deltas in model.stream(request or ModelRequest("s", [UserEntry("hi")])):
        assembler.feed(deltas)
    return assembler.finish(model.info.ref)


class Service:
    """A client of the fake, with a clock that stands still until it is set."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.time = 0.0
        self.http = Http()
        self.endpoint = CopilotEndpoint(env, self.http, now=lambda: self.time)
        self.model = make_model(INFO, self.endpoint, self.http)

    async def failing(self) -> ModelError:
        with pytest.raises(ModelError) as caught:
            await ask(self.model)
        return caught.value


async def test_a_token_is_exchanged_once_and_used_until_it_ends() -> None:  # M-01
    with FakeCopilot(HELLO, in_order=True, refresh_in=1500) as fake:
        client = Service(fake.env)
        for time, exchanges in [(0, 1), (1499, 1), (1500, 2), (1501, 2), (2999, 2), (3000, 3)]:
            client.time = time
            assert (await ask(client.model)).text == "hello"
            assert fake.exchanges == exchanges
        await client.http.close()
    assert fake.service.exchange_headers[0]["authorization"] == f"Bearer {GITHUB_TOKEN}"
    first = fake.headers[0]
    assert first["authorization"].startswith("Bearer tid=fake1;")
    assert first["editor-version"].startswith("Treadle/")
    assert first["editor-plugin-version"].startswith("treadle/")
    assert (first["copilot-integration-id"], first["openai-intent"]) == ("vscode-chat", "conversation-agent")
    assert fake.paths[0] == "/chat/completions"


async def test_an_end_in_the_past_and_no_end_at_all() -> None:
    with FakeCopilot(HELLO, in_order=True, refresh_in=0) as fake:  # its expires_at lies in the past
        client = Service(fake.env)
        await ask(client.model)
        await ask(client.model)
        assert fake.exchanges == 2
        await client.http.close()


async def test_a_refused_token_is_renewed_once() -> None:  # M-11
    with FakeCopilot(HELLO, in_order=True) as fake:
        client = Service(fake.env)
        await ask(client.model)
        fake.expire()
        assert (await ask(client.model)).text == "hello"
        assert fake.exchanges == 2
        await client.http.close()


async def test_a_service_that_refuses_every_token_is_an_error_after_one_more_try() -> None:  # M-11
    with FakeCopilot(HELLO) as fake:
        fake.service.refuses_all = True
        client = Service(fake.env)
        error = await client.failing()
        await client.http.close()
    assert (error.kind, error.status, fake.exchanges) == ("auth", 401, 2)
    assert "token expired" in str(error)


async def test_many_calls_at_once_exchange_once_and_renew_once() -> None:
    with FakeCopilot(lambda _: Reply(text="hello")) as fake:
        client = Service(fake.env)
        await asyncio.gather(*(ask(client.model) for _ in range(20)))
        assert fake.exchanges == 1
        fake.expire()
        await asyncio.gather(*(ask(client.model) for _ in range(20)))
        assert fake.exchanges == 2
        await client.http.close()


@pytest.mark.parametrize(
    ("refusal", "kind", "words"),
    [
        ((401, "Bad credentials"), "auth", "Bad credentials.*COPILOT_GITHUB_TOKEN"),
        ((403, "No access to GitHub Copilot found"), "auth", "No access to GitHub Copilot"),
        ((429, "slow down"), "rate_limit", "slow down"),
        ((502, "unicorn"), "overloaded", "unicorn"),
        ((200, "no token in here"), "auth", "no Copilot token"),
    ],
)
async def test_a_refused_exchange_says_why(refusal: tuple[int, str], kind: str, words: str) -> None:
    with FakeCopilot(HELLO) as fake:
        fake.service.exchange_refusal = refusal
        client = Service(fake.env)
        with pytest.raises(ModelError, match=words) as caught:
            await ask(client.model)
        assert caught.value.kind == kind
        fake.service.exchange_refusal = None
        assert (await ask(client.model)).text == "hello"  # a refusal is not remembered
        await client.http.close()


@pytest.mark.parametrize(
    "refusal", [(404, "Not Found"), (403, "Resource not accessible by personal access token")], ids=["gh", "pat"]
)
async def test_tokens_that_are_not_exchanged_are_used_as_they_are(refusal: tuple[int, str]) -> None:
    with FakeCopilot(HELLO, in_order=True) as fake:
        fake.service.exchange_refusal = refusal
        fake.service.good.add(GITHUB_TOKEN)
        client = Service({**fake.env, "COPILOT_BASE_URL": fake.url})
        assert (await ask(client.model)).text == "hello"
        fake.expire()
        assert (await client.failing()).kind == "auth"
        assert len(fake.service.exchange_headers) == 1  # there is no other token to be had
        await client.http.close()


@pytest.mark.parametrize(
    ("api", "endpoint", "expected"),
    [
        (GITHUB_API_URL, "https://api.business.githubcopilot.com/", "https://api.business.githubcopilot.com"),
        (GITHUB_API_URL, "http://evil.example", BASE_URL),
        (GITHUB_API_URL, "evil", BASE_URL),
        (GITHUB_API_URL, "", BASE_URL),
        ("http://127.0.0.1:9", "http://127.0.0.1:8", "http://127.0.0.1:8"),
    ],
)
def test_where_the_models_are(api: str, endpoint: str, expected: str) -> None:
    assert choose_base_url(api, endpoint) == expected


async def test_who_asks_is_said() -> None:
    results = ResultsEntry(1, (ToolResult(make_call_key(1, 0), "r"),))
    with FakeCopilot([Reply(calls=[("read_file", {})]), Reply(text="done")] * 5, in_order=True) as fake:
        client = Service(fake.env)
        first = await ask(client.model)
        assistant_entry = AssistantEntry(1, "", (), first.requests)
        for entries, purpose in [
            ([UserEntry("go"), assistant_entry, results], "turn"),
            ([UserEntry("go"), assistant_entry, results, UserEntry("and?")], "turn"),
            ([UserEntry("go"), assistant_entry, results, UserEntry("go on", source="autopilot")], "turn"),
            ([UserEntry("go"), assistant_entry, results, UserEntry("sum up")], "summary"),
        ]:
            await ask(client.model, ModelRequest("", entries, TOOLS, purpose=purpose))  # type: ignore[arg-type]
        await client.http.close()
    assert [headers["x-initiator"] for headers in fake.headers] == ["user", "agent", "user", "agent", "agent"]


async def test_a_model_that_speaks_only_responses() -> None:  # M-05, M-10
    with FakeCopilot([CALL, Reply(text="done")], only_responses=["gpt-5.3-codex"]) as fake:
        registry = ModelRegistry(fake.env)
        model = registry.get("copilot:gpt-5.3-codex")
        memo = Memo()
        entries: list[Entry] = [UserEntry("go")]
        answer = await ask(model, ModelRequest("s", entries, TOOLS, memo=memo))
        entries += [
            AssistantEntry(1, answer.text, answer.thinking, answer.requests),
            ResultsEntry(1, (ToolResult(make_call_key(1, 0), "r"),)),
        ]
        assert (await ask(model, ModelRequest("s", entries, TOOLS, memo=memo))).text == "done"
        await registry.close()
    assert fake.paths == ["/responses", "/responses"]
    assert fake.requests[1]["input"][1]["type"] == "reasoning"
    assert fake.requests[1]["input"][0] == fake.requests[0]["input"][0]


async def test_sealed_thinking_goes_back_and_is_left_out_when_it_is_refused() -> None:  # M-10, fault 24
    refusal = Reply(status=400, error={"message": "Invalid `signature` in `thinking` block", "code": "x"})
    opaque = "gA/=="
    script = [msgspec.structs.replace(CALL, signature=opaque), refusal, Reply(text="done"), Reply(text="more")]
    with FakeCopilot(script, in_order=True) as fake:
        client = Service(fake.env)
        memo = Memo()
        entries: list[Entry] = [UserEntry("go")]
        answer = await ask(client.model, ModelRequest("", entries, TOOLS, memo=memo))
        entries += [
            AssistantEntry(1, answer.text, answer.thinking, answer.requests),
            ResultsEntry(1, (ToolResult(make_call_key(1, 0), "r"),)),
        ]
        assert (await ask(client.model, ModelRequest("", entries, TOOLS, memo=memo))).text == "done"
        assert (await ask(client.model, ModelRequest("", entries, TOOLS, memo=memo))).text == "more"
        await client.http.close()
    (block,) = answer.thinking
    assert (block.text, block.model) == ("hm", INFO.ref)
    first, refused, again, later = fake.requests
    assert first["messages"][0] == again["messages"][0]
    assistant = refused["messages"][1]
    assert (assistant["reasoning_text"], assistant["reasoning_opaque"]) == ("hm", opaque)
    assert "reasoning_opaque" not in again["messages"][1]
    assert again["messages"] == later["messages"]  # it is remembered


async def test_all_models_share_one_token_and_no_secret_is_shown() -> None:  # M-13
    with FakeCopilot(HELLO, in_order=True) as fake:
        registry = ModelRegistry(fake.env)
        first, second = registry.get("copilot:gpt-4.1"), registry.get("copilot:claude-sonnet-4.5")
        await ask(first)
        await ask(second)
        assert fake.exchanges == 1
        model = first.inner  # type: ignore[attr-defined]
        reprs = f"{registry!r} {first!r} {vars(first)} {vars(model)} {vars(model._chat)} {vars(model._chat._endpoint)}"
        await registry.close()
    # The endpoint knows the environment, which is the user's own.
    reprs = reprs.replace(repr(dict(fake.env)), "")
    assert GITHUB_TOKEN not in reprs
    assert "tid=" not in reprs
    assert (first.info.window, first.info.usd_per_million_output) == (128_000, 0.0)


async def test_the_list_of_models() -> None:
    with FakeCopilot(only_responses=["gpt-5.3-codex"]) as fake:
        context = ProviderContext(fake.env)
        infos = await list_models(context)
        await context.close()
    assert [(info.ref, info.window, info.max_output) for info in infos] == [
        ("copilot:gpt-4.1", 200_000, 8_000),
        ("copilot:gpt-5.3-codex", 200_000, 8_000),
    ]
    assert infos[1].temperature is None


def program(folder: Path, text: str) -> dict[str, str]:
    """An environment in which `gh` is this script."""
    folder.mkdir(exist_ok=True)
    path = folder / "gh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


async def test_the_token_of_gh(tmp_path: Path) -> None:
    env = program(tmp_path, f'[ "$*" = "auth token" ] && echo {GITHUB_TOKEN}')
    with FakeCopilot(HELLO, in_order=True) as fake:
        client = Service({**env, "COPILOT_GITHUB_API_URL": fake.url})
        assert (await ask(client.model)).text == "hello"
        await client.http.close()
    assert not await ask_gh({})
    client = Service(program(tmp_path, "echo not logged in; exit 1"))
    error = await client.failing()
    assert (error.kind, "gh auth login" in str(error)) == ("auth", True)


async def test_a_gh_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.adapters.models.copilot.GH_S", 0.05)
    assert not await ask_gh(program(tmp_path, "exec sleep 60"))


def test_which_variable_comes_first(tmp_path: Path) -> None:
    async def find_token(env: Mapping[str, str]) -> tuple[str, str]:
        key, source = await CopilotEndpoint(env, Http())._require_github_key()
        return key.reveal(), source

    env = {"GITHUB_TOKEN": "c", "GH_TOKEN": "b", "COPILOT_GITHUB_TOKEN": "a", **program(tmp_path, "echo d")}
    for variable, value in [("COPILOT_GITHUB_TOKEN", "a"), ("GH_TOKEN", "b"), ("GITHUB_TOKEN", "c")]:
        assert asyncio.run(find_token(env)) == (value, variable)
        del env[variable]
    assert asyncio.run(find_token(env)) == ("d", "gh auth token")


def test_what_is_missing_is_said() -> None:
    with pytest.raises(ConfigError, match="set COPILOT_GITHUB_TOKEN"):
        ModelRegistry({}).get("copilot:gpt-4.1")
    with pytest.raises(ConfigError, match="COPILOT_BASE_URL is 'x'"):
        ModelRegistry({"GH_TOKEN": "x", "COPILOT_BASE_URL": "x"}).get("copilot:gpt-4.1")
