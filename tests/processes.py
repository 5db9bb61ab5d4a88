"""Finding processes from outside. A command in a sandbox has numbers of its own, which mean nothing here; so it is
known by its words."""

import os
from contextlib import suppress
from pathlib import Path
from random import SystemRandom


def unlike_any_other() -> str:
    """A number of seconds to sleep that no other process sleeps."""
    return f"{SystemRandom().randrange(10**6, 10**7)}.{SystemRandom().randrange(10**6)}1"


def running_with(word: str) -> list[int]:
    """The processes, of any sandbox, whose command line ends with this word or has it as a part of a word."""
    pids = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and entry != str(os.getpid()):
            with suppress(OSError):
                words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
                if any(part.endswith(word.encode()) for part in words if len(part) < 60):
                    pids.append(int(entry))
    return pids
