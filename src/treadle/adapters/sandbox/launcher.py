"""The command lines of the programs in `launch`: which Python runs them, and how they are told what to do. And the
command line of a command without any confinement."""

import marshal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from treadle.base.file_system import find_path_below
from treadle.errors import SandboxError
from treadle.ports.sandbox import Confinement, Level, Sandbox, View, WorldMount

Spec = Mapping[str, object]
"""Plain data: text, bytes, numbers, lists. It is sent in Python's own form, since reading JSON would cost a command
more time than all the rest of its preparation."""

_BOOT = (
    "import sys;t=type(sys)('treadle');t.__path__=[sys.argv[1]];sys.modules['treadle']=t;"
    "from treadle.adapters.sandbox.launch.{module} import {function};{function}(sys.argv[2:])"
)
"""Imports a launcher without running `treadle/__init__`, which loads what no launcher needs."""


class Launcher(msgspec.Struct, frozen=True):
    """A Python and the folder of the package `treadle`, both readable to the user that runs the command."""

    python: str = sys.executable
    package: str = str(Path(__file__).parents[2])

    def build_line(self, program: str, spec: Spec, argv: Sequence[str] = ()) -> list[str]:
        """`program` is a module of `launch` with a `main`, or a function in one: `become.enter_world`."""
        module, _, function = program.partition(".")
        boot = _BOOT.format(module=module, function=function or "main")
        spec_hex = marshal.dumps(dict(spec), 2).hex()
        return [self.python, "-I", "-S", "-c", boot, self.package, spec_hex, *argv]


def wrap_in_world(launcher: Launcher, line: Sequence[str], world: WorldMount, cwd: str) -> list[str]:
    """The command line, started in `cwd` where the layers of a world are mounted (W-11)."""
    return launcher.build_line("become.enter_world", {"holder": world.holder, "cwd": cwd}, line)


def map_to_copy(world: WorldMount, root: str, path: str) -> str:
    """Where a path of the project lies for a command that sees the copy at its own place."""
    below = find_path_below(path, root) if world.folder else None
    return path if below is None else world.folder if below == "." else f"{world.folder}/{below}"


def wrap_at_copy(
    sandbox: Sandbox, launcher: Launcher, argv: Sequence[str], confinement: Confinement, world: WorldMount, cwd: str
) -> list[str]:
    """The command line in a world, by a sandbox that can put nothing in the place of something else."""
    root, cwd = confinement.root, map_to_copy(world, confinement.root, cwd)
    protected_paths = tuple(map_to_copy(world, root, path) for path in confinement.protected)
    inner = msgspec.structs.replace(confinement, root=world.folder or root, protected=protected_paths, world=None)
    return wrap_in_world(launcher, sandbox.wrap(argv, inner, cwd), world, cwd)


class NoSandbox(Sandbox):
    """Only used where nothing better works, or where a person demanded it; both are shown."""

    level: Level = "none"

    def wrap(self, argv: Sequence[str], confinement: Confinement, cwd: str) -> list[str]:
        """The command as it is, in a world in its place. Asking for a view is asking for more than nothing, so it is
        refused; the rest of the confinement is what the level `none` says is missing."""
        if isinstance(confinement.mount, View):
            raise SandboxError("there is no sandbox here, and so no copy-on-write view of the project")
        if (world := confinement.world) is not None:
            return wrap_in_world(Launcher(), argv, world, map_to_copy(world, confinement.root, cwd))
        return list(argv)  # the caller starts the command in its directory
