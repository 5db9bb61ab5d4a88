"""No confinement at all. Only used where nothing better works, or where a person demanded it; both are shown."""

from collections.abc import Sequence

from treadle.adapters.sandbox.launcher import Launcher, at_folder, in_world
from treadle.errors import SandboxError
from treadle.ports.sandbox import Confinement, Level, Sandbox, View


class NoSandbox(Sandbox):
    level: Level = "none"

    def wrap(self, argv: Sequence[str], confinement: Confinement, cwd: str) -> list[str]:
        """The command as it is, in a world in its place. Asking for a view is asking for more than nothing, so it is
        refused; the rest of the confinement is what the level `none` says is missing."""
        if isinstance(confinement.mount, View):
            raise SandboxError("there is no sandbox here, and so no copy-on-write view of the project")
        if (world := confinement.world) is not None:
            return in_world(Launcher(), argv, world, at_folder(world, confinement.root, cwd))
        return list(argv)  # the caller starts the command in its directory
