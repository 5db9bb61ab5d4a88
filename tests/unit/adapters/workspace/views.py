"""Real commands on real copy-on-write views of a project, without the rest of Treadle."""

import os
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.homes import shared_home
from treadle.adapters.sandbox.choose import choose
from treadle.adapters.sandbox.supervisor.removal import remove_tree
from treadle.adapters.workspace.history import effects
from treadle.adapters.workspace.root import Root
from treadle.ports.sandbox import Confinement, Sandbox, View
from treadle.ports.snapshots import Effect
from treadle.protocol.files import FileChange


@cache
def sandbox_with_views() -> Sandbox:
    sandbox = choose(shared_home()).sandbox
    if not sandbox.views:
        pytest.skip("no copy-on-write view works on this machine")
    return sandbox


class Views:
    """`root` is a project; each command runs on a view of its own."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.root.mkdir()
        self._folder = folder
        self._count = 0
        self._sandbox = sandbox_with_views()

    def view(self) -> Path:
        self._count += 1
        view = self._folder / f"view{self._count}"
        for folder in (view, view / "upper", view / "work"):
            folder.mkdir()
        (view / "upper").chmod(self.root.stat().st_mode & 0o7777)
        return view

    def run(self, command: str, meanwhile: Callable[[], object] = lambda: None, *, view: Path | None = None) -> Path:
        """The view on which it ran. `meanwhile` happens behind the command's back, after it."""
        view = view or self.view()
        (view / "began").write_text(f"{time.time_ns()} {time.clock_gettime_ns(time.CLOCK_BOOTTIME)}")
        confinement = Confinement(str(self.root), View(str(view / "upper"), str(view / "work")))
        line = self._sandbox.wrap(["/bin/bash", "-c", command], confinement, str(self.root))
        process = subprocess.run(line, cwd=self.root, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stdout + process.stderr
        self._wait_for_a_tick()
        meanwhile()
        return view

    def effect(self, command: str, meanwhile: Callable[[], object] = lambda: None) -> Effect:
        return effects.read(Root(str(self.root)), str(self.run(command, meanwhile)))

    def changes(self, command: str) -> dict[str, FileChange]:
        effect = self.effect(command)
        assert effect.conflicts == ()
        return {change.path: change for change in effect.files}

    def _wait_for_a_tick(self) -> None:
        """Wait until the clock that stamps files has moved on: only a test is quicker than that."""
        probe = self._folder / "tick"
        probe.write_text("")
        began = probe.stat().st_ctime_ns
        while probe.stat().st_ctime_ns == began:
            time.sleep(0.001)
            os.utime(probe)

    def close(self) -> None:
        for number in range(1, self._count + 1):
            remove_tree(str(self._folder / f"view{number}"))
