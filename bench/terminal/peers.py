"""Apps of others, from npm and PyPI at pinned versions, each in a folder of its own, and how each is pointed at the
fake server."""

import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.processes import Failed, last_line
from treadle.testing.fake_model import Reply

ROUNDS = 10


class Peer(msgspec.Struct, frozen=True):
    name: str
    packages: Sequence[str]
    program: str
    """Below the folder that it is installed into."""
    word: str
    """Stands on its first frame."""
    headless: Sequence[str]
    """Arguments of one run without a screen; empty: there is none with tools."""
    settings: Callable[[Path, str], Mapping[str, str]]
    """Files of its home are written, and variables given, for a home and the URL of the fake server."""
    responses: bool = False
    """Whether it speaks the Responses API, not Chat Completions."""


def _codex(home: Path, url: str) -> Mapping[str, str]:
    (home / "config.toml").write_text(
        'model = "bench"\nmodel_provider = "fake"\napproval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
        f'[model_providers.fake]\nname = "fake"\nbase_url = "{url}"\nwire_api = "responses"\nenv_key = "FAKE_KEY"\n'
        f'[projects."{home.parent / "project"}"]\ntrust_level = "trusted"\n'
    )
    return {"CODEX_HOME": str(home), "FAKE_KEY": "none"}


def _opencode(home: Path, url: str) -> Mapping[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": url, "apiKey": "none"},
        "models": {"bench": {"name": "bench"}},
    }
    config = {"provider": {"fake": provider}, "model": "fake/bench", "small_model": "fake/bench", "autoupdate": False}
    (home / "opencode.json").write_bytes(msgspec.json.encode({**config, "share": "disabled"}))
    return {"OPENCODE_CONFIG": str(home / "opencode.json"), "OPENCODE_DISABLE_AUTOUPDATE": "1"}


def _aider(home: Path, url: str) -> Mapping[str, str]:
    return {
        "OPENAI_API_BASE": url,
        "OPENAI_API_KEY": "none",
        "AIDER_MODEL": "openai/bench",
        "AIDER_ANALYTICS": "false",
        "AIDER_CHECK_UPDATE": "false",
        "AIDER_SHOW_MODEL_WARNINGS": "false",
        "AIDER_GIT": "false",
        "AIDER_SHOW_RELEASE_NOTES": "false",
    }


PEERS = (
    Peer(
        "codex", ("@openai/codex@0.166.0",), "node_modules/.bin/codex", "Codex",
        ("exec", "--skip-git-repo-check", "Go on."), _codex, responses=True,
    ),
    Peer(
        "opencode", ("opencode-ai@1.18.18", "opencode-linux-{arch}@1.18.18"), "node_modules/.bin/opencode", "Ask",
        ("run", "Go on."), _opencode,
    ),
    Peer("aider", ("aider-chat==0.86.2",), "bin/aider", ">", (), _aider),
)  # fmt: skip


def install(peer: Peer, folder: Path) -> Path:
    """Its program; installed if it is not there."""
    program = folder / peer.program
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    packages = [each.format(arch=_architecture()) for each in peer.packages]
    if peer.program.startswith("bin/"):
        _run([sys.executable, "-m", "venv", str(folder)], folder, peer)
        _run([str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *packages], folder, peer)
    elif npm := shutil.which("npm"):
        (folder / "package.json").write_text("{}")
        _run([npm, "install", "--no-audit", "--no-fund", *packages], folder, peer)
    else:
        raise Failed(f"{peer.name} needs npm")
    return program


def _architecture() -> str:
    return {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def _run(command: Sequence[str], folder: Path, peer: Peer) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{peer.name} cannot be installed here: {last_line(done.stderr)}")


# -- the fake server --------------------------------------------------------------------------------------------------

_TOOLS: Mapping[str, Callable[[int, str], dict[str, Any]]] = {
    "read_file": lambda number, root: {"path": f"file-{number}.txt"},
    "read": lambda number, root: {"filePath": f"{root}/file-{number}.txt"},
    "exec_command": lambda number, root: {"cmd": f"cat file-{number}.txt"},
    "shell": lambda number, root: {"command": ["cat", f"file-{number}.txt"]},
    "shell_command": lambda number, root: {"command": f"cat file-{number}.txt"},
}
"""How each app's tool for looking at a file is called, and with what."""


def script(root: str) -> Callable[[Mapping[str, Any]], Reply]:
    """Ten rounds, each a look at a file with whatever tool the app has for that; then an answer."""

    def reply(request: Mapping[str, Any]) -> Reply:
        tools = [(each.get("function") or each).get("name", "") for each in request.get("tools") or ()]
        tool = next((name for name in _TOOLS if name in tools), "")
        said = request.get("messages") or request.get("input") or ()
        done = sum(each.get("role") == "tool" or each.get("type") == "function_call_output" for each in said)
        if not tool or done >= ROUNDS:
            return Reply(text="All is read.")
        return Reply(calls=[(tool, _TOOLS[tool](done, root))])

    return reply
