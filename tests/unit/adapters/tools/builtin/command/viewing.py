"""A chat whose commands run on copy-on-write views of a project, in the real sandbox, with real snapshots."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.homes import shared_home
from tests.unit.adapters.tools.builtin.command.commanding import Bench
from treadle.adapters.sandbox.choose import choose
from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.root import Root
from treadle.ports.sandbox import Sandbox
from treadle.ports.snapshots import Snapshots
from treadle.ports.toolset import Invocation, Outcome


@cache
def sandbox_with_views() -> Sandbox:
    sandbox = choose(shared_home()).sandbox
    if not sandbox.views:
        pytest.skip("no copy-on-write view works on this machine")
    return sandbox


class ViewBench(Bench):
    """Calls are prepared before they run, as the loop does."""

    def __init__(self, folder: Path, **context: Any) -> None:
        home = folder / "home"

        def snapshots(root: str, root_id: str = "", _world: str = "") -> Snapshots:
            return ProjectSnapshots(Root(root), home)

        sandbox = sandbox_with_views()
        super().__init__(folder, os.environ, sandbox_of=lambda _demand: sandbox, snapshots_of=snapshots, **context)
        self.snapshots = snapshots(str(self.project))

    async def prepare_call(self, command: str, **arguments: Any) -> Invocation:
        call = self.call(command=command, **arguments)
        return replace(call, plan=await self.tools["run_command"].prepare(call))

    async def __call__(self, command: str, **arguments: Any) -> Outcome:
        return await self.run(await self.prepare_call(command, **arguments))
