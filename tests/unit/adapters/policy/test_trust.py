"""A file of a repository counts for nothing until a person trusted its content (S-09); and consent (S-10)."""

import os
from pathlib import Path

import pytest

from treadle.adapters.models.providers import SERVERS, describe_recipient
from treadle.adapters.models.registry import PROVIDERS
from treadle.adapters.policy.trust import MAX_BYTES, Consent, Trust, read
from treadle.errors import InvalidInput, NotFound


@pytest.fixture
def hooks(tmp_path: Path) -> Path:
    path = tmp_path / "project" / ".treadle" / "hooks.toml"
    path.parent.mkdir(parents=True)
    path.write_text("[[hooks]]\n")
    return path


def test_trust_is_bound_to_the_content(tmp_path: Path, hooks: Path) -> None:
    trust = Trust(tmp_path / "home")
    assert not trust.is_trusted(str(hooks), hooks.read_bytes())
    trust.add(str(hooks), read(str(hooks)))
    assert Trust(tmp_path / "home").is_trusted(str(hooks), b"[[hooks]]\n")
    assert not trust.is_trusted(str(hooks), b"[[hooks]] \n")
    assert not trust.is_trusted(str(hooks.with_name("other.toml")), b"[[hooks]]\n")
    trust.add(str(hooks), b"new")
    assert not trust.is_trusted(str(hooks), b"[[hooks]]\n")
    trust.remove(str(hooks))
    assert not trust.is_trusted(str(hooks), b"new")
    with pytest.raises(NotFound):
        trust.remove(str(hooks))


def test_a_copy_elsewhere_is_not_trusted(tmp_path: Path, hooks: Path) -> None:
    trust = Trust(tmp_path / "home")
    trust.add(str(hooks), b"x")
    other_folder = tmp_path / "other" / ".treadle"
    other_folder.mkdir(parents=True)
    assert not trust.is_trusted(str(other_folder / "hooks.toml"), b"x")
    (other_folder / "link.toml").symlink_to(hooks)  # it is the trusted file
    assert trust.is_trusted(str(other_folder / "link.toml"), b"x")


def test_a_project_cannot_trust_itself(tmp_path: Path, hooks: Path) -> None:
    trust = Trust(tmp_path / "project" / "home")
    with pytest.raises(InvalidInput):
        trust.add(str(hooks), b"x")
    outside = Trust(tmp_path / "home")
    outside.add(str(hooks), b"x")
    (tmp_path / "home").rename(tmp_path / "project" / "home")
    assert not trust.is_trusted(str(hooks), b"x")


def test_only_ordinary_files_of_a_size_to_be_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * (MAX_BYTES + 1))
    for name in ("pipe", "large", "missing", "."):
        with pytest.raises(InvalidInput):
            read(str(tmp_path / name))


# -- consent ----------------------------------------------------------------------------------------------------------


def test_consent_is_remembered_by_recipient(tmp_path: Path) -> None:
    consent = Consent(tmp_path / "home")
    assert not consent.is_given("OpenAI", "openai")
    consent.give("OpenAI")
    assert Consent(tmp_path / "home").is_given("OpenAI", "openai-responses")
    assert not consent.is_given("the server example.com", "openai")


@pytest.mark.parametrize("accepted", ["openai", "OpenAI", "*"])
def test_a_setting_accepts_beforehand(tmp_path: Path, accepted: str) -> None:
    assert Consent(tmp_path / "home", (accepted,)).is_given("OpenAI", "openai")


@pytest.mark.parametrize(
    ("ref", "env", "expected"),
    [
        ("openai:gpt-4.1", {}, "OpenAI"),
        ("openai:x", {"OPENAI_BASE_URL": "http://127.0.0.1:8000/v1"}, ""),
        ("openai:x", {"OPENAI_BASE_URL": "http://localhost/v1"}, ""),
        ("openai:x", {"OPENAI_BASE_URL": "https://llm.example.com/v1"}, "the server llm.example.com"),
        ("anthropic:claude", {}, "Anthropic"),
        ("ollama:qwen", {}, ""),
        ("ollama:qwen", {"OLLAMA_HOST": "192.168.0.7:11434"}, "the server 192.168.0.7"),
        ("ollama:qwen", {"OLLAMA_HOST": "0.0.0.0"}, ""),
        ("vllm:x", {}, ""),
        ("vllm:x", {"VLLM_BASE_URL": "http://[2001:db8::1]:80"}, "the server 2001:db8::1"),
        ("vllm:x", {"VLLM_BASE_URL": "http://[::1]:80"}, ""),
        ("deepseek:chat", {}, "DeepSeek"),
        ("copilot:gpt", {}, "GitHub Copilot"),
        ("scripted:x.toml", {}, ""),
        ("recorded:x", {}, ""),
        ("local:smollm2", {}, ""),
        ("command:mine", {}, "the program behind command:mine"),
        ("acme:x", {}, ""),
        ("", {}, ""),
    ],
)
def test_who_gets_to_see_it(ref: str, env: dict[str, str], expected: str) -> None:
    assert describe_recipient(ref, env) == expected


def test_every_provider_is_judged() -> None:
    here = {"local", "recorded", "scripted", "ollama", "llamacpp", "lmstudio", "vllm"}
    for provider in (*PROVIDERS, *SERVERS):
        assert bool(describe_recipient(f"{provider}:x", {})) is (provider not in here), provider
