"""`treadle models` lists the models that the keys at hand allow, and the settings that the others lack (M-12, M-13)."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.command_line import CommandLine
from treadle import Agent
from treadle.errors import ConfigError
from treadle.testing.fake_http import FakeResponse, Headers, ThreadedServer, make_json_answer
from treadle.testing.fake_openai import FakeOpenAI, Reply

pytestmark = pytest.mark.thorough(one_of=8)

KEY = "sk-test-very-secret-indeed"


@pytest.fixture
def alone(cli: CommandLine) -> CommandLine:
    """Without the programs of this machine, so that `gh` is not found."""
    cli.environment["PATH"] = str(cli.folder)
    cli.environment["PYTHONEXECUTABLE"] = sys.executable
    return cli


def by_name(listing: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {model["model"]: model for model in listing["models"]}


def listed_under(title: str, out: str) -> list[str]:
    """The names of one paragraph, without models that happen to be on this machine."""
    lines = [line for part in out.split("\n\n") if part.startswith(title) for line in part.splitlines()[1:]]
    return [line.split()[0] for line in lines if not line.startswith("  local:")]


def has_google_auth() -> bool:
    """It belongs to the extra `vertex`."""
    try:
        return importlib.util.find_spec("google.auth") is not None
    except ModuleNotFoundError:
        return False


def test_what_can_be_used_and_what_to_set_for_the_rest(alone: CommandLine) -> None:
    models_result = alone("models", env={"ANTHROPIC_API_KEY": KEY})
    assert (models_result.code, models_result.err) == (0, "")
    lines = models_result.out.splitlines()
    (opus,) = [line for line in lines if line.startswith("anthropic:claude-opus-5-5 ")]
    assert opus.split() == ["anthropic:claude-opus-5-5", "1M", "33k", "4", "0.2", "20", "tools", "thinking", "vision"]
    assert not any(line.startswith("openai:") for line in lines)
    (openai,) = [line for line in lines if line.split()[:1] == ["openai"]]
    assert "set OPENAI_API_KEY, or OPENAI_BASE_URL" in openai
    (unasked,) = [line for line in lines if line.startswith("Not asked: ")]
    assert {"anthropic", "lmstudio"} <= set(unasked.removeprefix("Not asked: ").partition(" (")[0].split(", "))
    assert listed_under("Ready:", models_result.out) == []  # a key that is set may be wrong, and a server down
    (vertex,) = [line for line in lines if line.split()[:1] == ["vertex"]]
    assert ("GOOGLE_CLOUD_PROJECT" if has_google_auth() else "print-access-token") in vertex
    assert KEY not in models_result.out


@pytest.mark.thorough(one_of=8)
def test_all_of_them_as_json(alone: CommandLine) -> None:
    usable = json.loads(alone("models", "--json", env={"GROQ_API_KEY": KEY}).out)
    everything = json.loads(alone("models", "--json", "--all", env={"GROQ_API_KEY": KEY}).out)
    assert {model["model"].partition(":")[0] for model in usable["models"]} - {"local"} == {"groq"}
    assert all(model["usable"] for model in usable["models"])
    models = by_name(everything)
    assert models["groq:llama-3.3-70b-versatile"]["price_input"] == 0.59
    mistral = models["mistral:mistral-large-latest"]
    assert (mistral["usable"], mistral["window"], mistral["temperature"]) == (False, 262_144, 0.1)
    assert "MISTRAL_API_KEY" in mistral["why"]
    assert models["openai-responses:gpt-5"]["temperature"] is False
    groq = {"usable": True, "why": "", "asked": False, "failure": "", "state": "not asked"}
    assert usable["providers"]["groq"] == groq
    assert models["groq:llama-3.3-70b-versatile"]["state"] == "not asked"
    assert (mistral["state"], usable["providers"]["deepseek"]["state"]) == ("missing", "missing")
    assert "DEEPSEEK_API_KEY" in usable["providers"]["deepseek"]["why"]
    assert not {"scripted", "recorded", "command"} & set(everything["providers"])


def test_models_on_this_machine_are_there_one_by_one(alone: CommandLine) -> None:
    models = by_name(json.loads(alone("models", "--json", "--all").out))
    assert models["local:qwen-coder"]["window"] == 8_192
    assert not models["local:qwen-coder"]["usable"]
    assert models["local:qwen-coder"]["why"]
    assert models["local:qwen-coder"]["state"] == "missing"


@pytest.mark.thorough(one_of=8)
def test_the_users_own_file(alone: CommandLine) -> None:
    alone.home.mkdir(exist_ok=True)
    file = alone.home / "models.toml"
    file.write_text('["vllm:mine"]\nwindow = 65536\nprice_input = 0.5\nprice_output = 1\nnative_tools = false\nx = 1\n')
    models_result = alone("models")
    assert "models.toml: [\"vllm:mine\"] has the unknown key 'x'" in models_result.err
    (mine,) = [line for line in models_result.out.splitlines() if line.startswith("vllm:mine")]
    assert mine.split() == ["vllm:mine", "66k", "4k", "0.5", "0.5", "1"]
    with FakeOpenAI([Reply(text="Yes.")]) as fake:
        env = {"VLLM_BASE_URL": fake.base_url}
        run = alone("run", "Hi.", "--model", "vllm:mine", "--json", env=env)
        assert run.code == 0
        assert run.of("assistant.turn_end")[0]["usage"]["usd"] == pytest.approx(0.00001)
        assert "unknown key 'x'" in run.err
        file.write_text('["vllm:mine"]\nwindow = "big"\n')
        broken = alone("run", "Hi.", "--model", "vllm:mine", env=env)
    assert broken.code == 2
    assert "models.toml: [\"vllm:mine\"] window = 'big' does not fit" in broken.err
    assert len(fake.requests) == 1
    assert alone("chats").code == 0


async def test_the_library_reads_it_too(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text('["openai:x"]\nwindow = 1000\nodd = 1\n')
    env = {"TREADLE_HOME": str(tmp_path), "OPENAI_API_KEY": KEY}
    async with Agent(env=env) as agent:
        assert agent.deps.models.get("openai:x").info.window == 1_000
        assert len(agent.warnings) == 1
        assert "unknown key 'odd'" in agent.warnings[0]
    (tmp_path / "models.toml").write_text('["openai:x"]\nwindow = -1\n')
    with pytest.raises(ConfigError, match="window = -1 does not fit"):
        Agent(env=env)


@pytest.mark.thorough(one_of=8)
def test_servers_are_asked_and_their_failures_told(alone: CommandLine) -> None:
    def route(method: str, path: str, headers: Headers, body: bytes) -> FakeResponse:
        if headers["authorization"] != f"Bearer {KEY}":
            return make_json_answer(401, {"error": {"message": f"Incorrect API key: {headers['authorization']}"}})
        listed = [{"id": "new-model\x1b[31m", "context_length": 100_000}, {"id": "text-embedding-3"}]
        return make_json_answer(200, {"data": listed})

    with ThreadedServer(route) as server, FakeOpenAI() as fake:
        nowhere = {f"{name}_BASE_URL": "http://127.0.0.1:9/v1" for name in ("LLAMACPP", "LMSTUDIO")}
        env = {
            **nowhere,
            "GROQ_BASE_URL": server.url,
            "GROQ_API_KEY": KEY,
            "OLLAMA_HOST": "http://127.0.0.1:9",
            "XAI_BASE_URL": server.url,
            "XAI_API_KEY": "sk-another-secret-key",
            "VLLM_BASE_URL": fake.base_url,
        }
        models_result = alone("models", "--remote", env=env)
        listing = json.loads(alone("models", "--remote", "--json", env=env).out)
    assert models_result.code == 0
    assert "vllm:fake " in models_result.out
    assert "groq:new-model\\x1b[31m " in models_result.out
    assert "embedding" not in models_result.out
    assert "\x1b" not in models_result.out
    assert "sk-" not in models_result.out + models_result.err
    models, providers = by_name(listing), listing["providers"]
    assert models["groq:new-model\x1b[31m"]["window"] == 100_000
    assert "groq:llama-3.3-70b-versatile" not in models
    assert "xai:grok-4.5" in models  # known models stay when a server does not answer
    assert (providers["groq"]["asked"], providers["xai"]["asked"]) == (True, False)
    assert "Incorrect API key" in providers["xai"]["failure"]
    assert "cannot be reached" in providers["lmstudio"]["failure"]
    states = {name: provider["state"] for name, provider in providers.items()}
    assert [states[name] for name in ("groq", "vllm", "xai", "lmstudio", "ollama")] == [
        "ready",
        "ready",
        "failed",
        "failed",
        "failed",
    ]
    assert (models["vllm:fake"]["state"], models["xai:grok-4.5"]["state"]) == ("ready", "failed")
    assert listed_under("Ready:", models_result.out) == ["groq", "vllm"]
    assert {"xai", "lmstudio", "ollama"} <= set(listed_under("Failed when asked:", models_result.out))
    (grok,) = [line for line in models_result.out.splitlines() if line.startswith("xai:grok-4.5 ")]
    assert grok.endswith("(failed when asked)")


@pytest.mark.thorough(one_of=8)
def test_a_list_that_anybody_gets_says_nothing_of_the_key(alone: CommandLine) -> None:
    def route(method: str, path: str, headers: Headers, body: bytes) -> FakeResponse:
        if path == "/key" and headers["authorization"] != f"Bearer {KEY}":
            return make_json_answer(401, {"error": {"message": "User not found."}})
        return make_json_answer(200, {"data": [{"id": "open/model"}]} if path == "/models" else {"data": {}})

    with ThreadedServer(route) as server:
        env = {"OPENROUTER_BASE_URL": server.url}
        good = json.loads(alone("models", "--remote", "--json", env={**env, "OPENROUTER_API_KEY": KEY}).out)
        bad = json.loads(alone("models", "--remote", "--json", env={**env, "OPENROUTER_API_KEY": "sk-wrong-key"}).out)
    assert good["providers"]["openrouter"]["state"] == "ready"
    assert by_name(good)["openrouter:open/model"]["state"] == "ready"
    assert bad["providers"]["openrouter"]["state"] == "failed"
    assert "User not found" in bad["providers"]["openrouter"]["failure"]


def test_nothing_is_asked_unless_it_is_wanted(alone: CommandLine) -> None:
    request_paths: list[str] = []

    def route(method: str, path: str, headers: Headers, body: bytes) -> FakeResponse:
        request_paths.append(path)
        return make_json_answer(200, {"data": []})

    with ThreadedServer(route) as server:
        env = {"GROQ_BASE_URL": server.url, "OPENAI_BASE_URL": server.url, "OLLAMA_HOST": server.url}
        assert alone("models", env=env).code == 0
        assert request_paths == []
