"""Which model a chat begins with when none is named (U-10)."""

import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.scenario.command_line import NO_LOCAL_SERVER
from treadle.adapters.models.catalog.table import PREFERRED
from treadle.adapters.models.keys import CUSTOM_KEY, FILE_NAME, read_stored_access, store_key, store_server
from treadle.adapters.models.registry import ModelRegistry
from treadle.library.model_choice import (
    PROBE_S,
    LastModel,
    LocalServer,
    choose_model,
    describe_missing_model,
    find_local_servers,
    find_server,
)
from treadle.testing.fake_http import FakeResponse, Headers, ThreadedServer, make_json_answer
from treadle.testing.fake_ollama import FakeOllama
from treadle.testing.fake_openai import FakeOpenAI

KEY = "sk-0123456789abcdef"


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "keyring", None)


async def choose(env: Mapping[str, str], home: Path) -> tuple[str, str]:
    registry = ModelRegistry({**NO_LOCAL_SERVER, **env}, home=home)
    try:
        choice = await choose_model(registry, {**NO_LOCAL_SERVER, **env}, home)
    finally:
        await registry.close()
    return ("", "") if choice is None else (choice.model, choice.reason)


async def servers_at(env: Mapping[str, str]) -> list[LocalServer]:
    registry = ModelRegistry({**NO_LOCAL_SERVER, **env})
    try:
        return await find_local_servers(registry, {**NO_LOCAL_SERVER, **env})
    finally:
        await registry.close()


@pytest.mark.parametrize(
    ("variable", "model"),
    [
        ("ANTHROPIC_API_KEY", f"anthropic:{PREFERRED['anthropic']}"),
        ("OPENAI_API_KEY", f"openai:{PREFERRED['openai']}"),
        ("GOOGLE_API_KEY", f"gemini:{PREFERRED['gemini']}"),
        ("DEEPSEEK_API_KEY", f"deepseek:{PREFERRED['deepseek']}"),
    ],
)
async def test_the_only_key_decides(tmp_path: Path, variable: str, model: str) -> None:
    assert await choose({variable: KEY}, tmp_path) == (model, f"{variable} is the only key that is set")


async def test_a_github_token_is_no_sign_of_copilot(tmp_path: Path) -> None:
    assert await choose({"GITHUB_TOKEN": KEY, "GH_TOKEN": KEY}, tmp_path) == ("", "")
    assert (await choose({"GITHUB_TOKEN": KEY, "XAI_API_KEY": KEY}, tmp_path))[0] == f"xai:{PREFERRED['xai']}"


async def test_several_keys_leave_the_choice_to_a_person(tmp_path: Path) -> None:
    assert await choose({"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}, tmp_path) == ("", "")
    text = describe_missing_model(["openai", "anthropic"])
    assert f"--model openai:{PREFERRED['openai']} or --model anthropic:{PREFERRED['anthropic']}" in text


async def test_a_server_in_the_place_of_the_provider_is_asked_for_its_models(tmp_path: Path) -> None:
    with FakeOpenAI() as fake:
        env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": fake.base_url}
        assert (await choose(env, tmp_path))[0] == "openai:fake"
    dead_server = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    assert (await choose(dead_server, tmp_path))[0] == f"openai:{PREFERRED['openai']}"


async def test_the_model_used_last_comes_first_while_it_can_be_used(tmp_path: Path) -> None:
    env = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
    LastModel(tmp_path).remember("anthropic:claude-haiku-5-5")
    assert await choose(env, tmp_path) == ("anthropic:claude-haiku-5-5", "used last")
    assert (await choose({"OPENAI_API_KEY": KEY}, tmp_path))[0] == f"openai:{PREFERRED['openai']}"


def test_models_of_tests_and_demonstrations_are_not_remembered(tmp_path: Path) -> None:
    last = LastModel(tmp_path)
    last.remember("openai:gpt-4.1")
    for model in ("scripted:demo.toml", "recorded:x", ""):
        last.remember(model)
    assert last.read() == "openai:gpt-4.1"


def test_a_damaged_memory_or_a_home_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "last-model.json").write_text("{")
    last = LastModel(tmp_path)
    assert last.read() == ""
    last.remember("openai:gpt-4.1")
    LastModel(Path("/proc/nowhere")).remember("openai:gpt-4.1")


async def test_a_server_on_this_machine_is_found_with_its_models(tmp_path: Path) -> None:
    with FakeOllama(models=["qwen3-coder:30b", "nomic-embed-text"]) as ollama, FakeOpenAI() as studio:
        env = {"OLLAMA_HOST": ollama.url, "LMSTUDIO_BASE_URL": studio.base_url}
        server_models = {server.name: [info.ref for info in server.models] for server in await servers_at(env)}
        assert server_models == {"Ollama": ["ollama:qwen3-coder:30b"], "LM Studio": ["lmstudio:fake"]}
        assert await choose(env, tmp_path) == ("ollama:qwen3-coder:30b", "Ollama runs on this machine")


def other_program(method: str, path: str, headers: Headers, body: bytes) -> FakeResponse:
    return make_json_answer(200, {"hello": "I am a development server", "data": []})


@pytest.fixture
def silent() -> Iterator[str]:
    """A port that takes connections and never answers."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"


async def test_a_program_that_is_no_model_server_is_not_offered(
    tmp_path: Path, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.library.model_choice.ASK_S", 0.3)
    with ThreadedServer(other_program) as page:
        env = {"LLAMACPP_BASE_URL": f"{page.url}/v1", "LMSTUDIO_BASE_URL": silent, "OLLAMA_HOST": page.url}
        assert await servers_at(env) == []
        assert await choose(env, tmp_path) == ("", "")


async def test_a_named_server_may_be_slow(tmp_path: Path) -> None:
    def answer_slowly(method: str, path: str, headers: Headers, body: bytes) -> FakeResponse:
        time.sleep(2 * PROBE_S)
        return make_json_answer(200, {"data": [{"id": "fake"}]})

    with ThreadedServer(answer_slowly) as server:
        assert (await choose({"LLAMACPP_BASE_URL": f"{server.url}/v1"}, tmp_path))[0] == "llamacpp:fake"


async def test_a_key_that_was_entered_counts_and_only_its_owner_can_read_it(tmp_path: Path) -> None:  # M-13
    place = store_key(tmp_path, "OPENAI_API_KEY", KEY)
    assert place == str(tmp_path / FILE_NAME)
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600
    assert (await choose({}, tmp_path))[0] == f"openai:{PREFERRED['openai']}"
    request_headers: list[Headers] = []

    def list_models(method: str, path: str, headers: Headers, body: bytes) -> FakeResponse:
        request_headers.append(headers)
        return make_json_answer(200, {"data": [{"id": "fake"}]})

    with ThreadedServer(list_models) as server:  # the key is for the provider's own address alone
        registry = ModelRegistry({"OPENAI_BASE_URL": server.url}, home=tmp_path)
        assert [info.name for info in await registry.ask("openai") or ()] == ["fake"]
        await registry.close()
    assert request_headers
    assert KEY not in str(request_headers)


async def test_a_server_by_its_address_is_the_provider_custom(tmp_path: Path) -> None:
    with FakeOpenAI() as fake:
        store_server(tmp_path, "http://127.0.0.1:9/v1", KEY)
        address, models = await find_server(f"{fake.url}/", "")
        assert address in (fake.url, fake.base_url)
        assert [info.name for info in models] == ["fake"]
        store_server(tmp_path, address, "")
        assert CUSTOM_KEY not in read_stored_access(tmp_path).keys  # the earlier server's key does not go to this one
        registry = ModelRegistry({}, home=tmp_path)
        assert [info.ref for info in await registry.ask("custom") or []] == ["custom:fake"]
        registry.get("custom:fake")
        await registry.close()
