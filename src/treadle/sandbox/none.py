"""No confinement at all. Only used where nothing better works, or where a person demanded it; both are shown."""

from collections.abc import Sequence

from treadle.errors import SandboxError
from treadle.ports.sandbox import Confinement, Level, View


class NoSandbox:
    level: Level = "none"
    views = False
    lays = False

    def wrap(self, argv: Sequence[str], confinement: Confinement, cwd: str) -> list[str]:
        """The command as it is. Asking for a view is asking for more than nothing, so it is refused; the rest of the
        confinement is what the level `none` says is missing."""
        if isinstance(confinement.mount, View):
            raise SandboxError("there is no sandbox here, and so no copy-on-write view of the project")
        del cwd  # whoever starts the command starts it there
        return list(argv)

    def tidy(self) -> None:
        """Nothing was put anywhere."""
