"""The operator limits the requests of users."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle.adapters.workspace.paths.resolve import identify
from treadle.errors import InvalidInput
from treadle.frontends.server.admission import Admission
from treadle.protocol.http_requests import OptionChanges
from treadle.protocol.options import ChatOptions

OPTIONS = ChatOptions(model="openai:gpt-4.1", root="/srv/mine")


def test_every_option_of_a_chat_can_be_sent_or_is_left_out_on_purpose() -> None:
    assert set(ChatOptions.__struct_fields__) - set(OptionChanges.__struct_fields__) == {
        "instructions",
        "archived",
        "root_id",
        "world",  # when it begins
        # Of the machine that a chat was made on: what its own files say, and what a program asks an answer to be.
        "agent",
        "agent_prompt",
        "own_servers",
        "skills",
        "output_schema",
        # The operator's: how many chats one chat may begin.
        "subagents",
        "subagent_depth",
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"root": "/"},
        {"root": "relative"},
        {"sandbox": "none"},
        {"network": True},
        {"command_view": False},
        {"model": "local:/etc/passwd.gguf"},
        {"model": "local:~/weights.gguf"},
        {"model": "gh:--org=mine"},
        {"model": "gemini:../../upload"},
        {"model": "openai:a b"},
        {"model": "ollama:http://10.0.0.1/x"},
        {"model": "command:rm -rf"},
        {"model": "scripted:/etc/passwd"},
        {"model": "recorded:/etc/passwd"},
        {"rules": [{"effect": "allow", "tool": "run_command", "scope": "user"}]},
    ],
)
def test_what_others_may_not(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Admission(OPTIONS).resolve_changes("bob", changes)
    with pytest.raises(InvalidInput):
        Admission(OPTIONS).resolve_changes("bob", {"root": str(tmp_path)})


def test_folders_that_are_open(tmp_path: Path) -> None:
    (tmp_path / "bob" / "app").mkdir(parents=True)
    (tmp_path / "bobby").mkdir()
    (tmp_path / "bob" / "out").symlink_to(tmp_path / "bobby")
    admission = Admission(OPTIONS, roots=(f"{tmp_path}/{{user}}",))
    assert admission.resolve_changes("bob", {"root": f"{tmp_path}/bob/app"})["root"] == f"{tmp_path}/bob/app"
    assert admission.resolve_changes("bob", {"root": f"{tmp_path}/bob/app/"})["root"] == f"{tmp_path}/bob/app"
    for outside in ("bobby", "bob/../bobby", "bob/out", "alice", ""):
        with pytest.raises(InvalidInput):
            admission.resolve_changes("bob", {"root": f"{tmp_path}/{outside}"})
    with pytest.raises(InvalidInput):
        admission.resolve_changes("bob", {"root": f"{tmp_path}/bob/missing"})
    elsewhere = Admission(OPTIONS, roots=(f"{tmp_path}/{{user}}",), shared=True)
    assert elsewhere.resolve_changes("bob", {"root": f"{tmp_path}/bob/missing"})["root"] == f"{tmp_path}/bob/missing"


def test_the_user_of_this_machine(tmp_path: Path) -> None:
    changes = {"root": str(tmp_path), "sandbox": "none", "model": "scripted:x.toml"}
    assert Admission(OPTIONS).resolve_changes("local", changes) == {**changes, "root_id": identify(str(tmp_path))}
    for folder in ("/", str(Path.home())):
        with pytest.raises(InvalidInput):
            Admission(OPTIONS).resolve_changes("local", {"root": folder})


def test_what_a_chat_begins_with() -> None:
    assert Admission(OPTIONS).begin("local", {}).root == "/srv/mine"
    assert Admission(OPTIONS).begin("bob", {}).root == ""
    assert Admission(OPTIONS).begin("bob", {"mode": "ask"}).mode == "ask"
    with pytest.raises(InvalidInput):
        Admission().begin("local", {})


def test_models_that_are_open() -> None:
    admission = Admission(OPTIONS, models=("openai:*", "scripted:demo"))
    assert admission.resolve_changes("bob", {"model": "scripted:demo"})
    for ref in ("anthropic:x", "scripted:demo2"):
        with pytest.raises(InvalidInput):
            admission.resolve_changes("local", {"model": ref})


@pytest.mark.parametrize(
    ("pattern", "ref", "is_admitted"),
    [
        ("*", "openai:gpt-4.1", True),
        ("*", "command:sh", False),
        ("*:*", "local:/weights/a.gguf", False),
        ("local:*", "local:smollm2", True),
        ("local:*", "local:/weights/a.gguf", False),
        ("local:/weights/*.gguf", "local:/weights/a.gguf", True),
        ("command:*", "command:sh", True),
        ("gh:*", "gh:openai/gpt-4.1", True),
        ("gh:*", "gh:--org=mine", False),
        ("ollama:*", "ollama:library/llama3.2:3b", True),
    ],
)
def test_a_program_is_opened_by_its_name_only(pattern: str, ref: str, is_admitted: bool) -> None:  # S-13
    admission = Admission(OPTIONS, models=(pattern,))
    if is_admitted:
        assert admission.resolve_changes("bob", {"model": ref})
    else:
        with pytest.raises(InvalidInput):
            admission.resolve_changes("bob", {"model": ref})


def test_users_reach_what_was_opened_to_them() -> None:  # S-13
    admission = Admission(ChatOptions(network=("github",)), network=("registries", "*.x.org"))
    for hosts in (False, ("github",), ("pypi", "a.x.org"), ("registries", "github.com"), ["npm"]):
        assert admission.resolve_changes("bob", {"network": hosts})["network"] in (hosts, tuple(hosts or ()))
    rule = {"effect": "allow", "tool": "network", "pattern": "example.org"}
    for refused in ({"network": True}, {"network": ("example.org",)}, {"network": ("x.org",)}, {"rules": [rule]}):
        with pytest.raises(InvalidInput, match="serve_network"):
            admission.resolve_changes("bob", refused)
    assert admission.resolve_changes("local", {"network": True}) == {"network": True}
    with pytest.raises(InvalidInput, match="no host"):
        admission.resolve_changes("local", {"network": ("make",)})


def test_commands_may_be_confined_more_and_not_less() -> None:
    loose = Admission(ChatOptions(network=True, command_view=False, strict_paths=False))
    for change in ({"network": False}, {"strict_paths": True}, {"command_view": True}, {"network": True}):
        assert loose.resolve_changes("bob", change) == change
    strict = Admission(ChatOptions(strict_paths=True))
    with pytest.raises(InvalidInput):
        strict.resolve_changes("bob", {"strict_paths": False})


def test_a_preset_is_a_name_for_options_and_what_is_named_beside_it_wins() -> None:  # S-15
    body = msgspec.json.decode(b'{"preset": "strict", "mode": "review"}', type=OptionChanges)
    assert body.to_changes() == {"mode": "review", "max_turns": 20, "strict_paths": True}
