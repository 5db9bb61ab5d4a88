"""Named places where a test may strike: kill, raise or delay. Free in production: one check of an empty slot.

Every persistence point and every effect calls `faultpoint(name)`; the fault runner in `treadle.testing.faults`
lists the names of a first run and then repeats it once per name.
"""

from collections.abc import Callable

_hook: Callable[[str], None] | None = None


def faultpoint(name: str) -> None:
    if _hook is not None:
        _hook(name)


def install(hook: Callable[[str], None] | None) -> None:
    """Set what happens at every point; None takes it away."""
    global _hook
    _hook = hook
