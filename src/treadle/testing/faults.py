"""Strikes at the named points of `treadle.base.file_system`: kill, raise or delay, and a list of the points that were
passed. Owns the little language of strikes, so that the environment of a process can order them:

    TREADLE_FAULTS="kill@append.before:assistant.message#2"   kill -9 of the own process at the 2nd passing
    TREADLE_FAULTS="raise@tool.after:write_file"              an InjectedFault at the 1st passing
    TREADLE_FAULTS="memory@transaction.put#3"                 a MemoryError; likewise full@ (no space) and cancel@
    TREADLE_FAULTS="delay@store.before_commit#3=35"           35 seconds of standstill at the 3rd passing
    TREADLE_FAULTS="raise@models.request#*"                   at every passing
    TREADLE_FAULTS="kill@*#17"                                at the 17th point of any name
    TREADLE_FAULTS="list=points.txt"                          append the name of every point passed to a file

Several are separated by `;`. In a test's own process: `with faults("raise@tool.before:grep") as passed:`."""

import asyncio
import errno
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, assert_never

import msgspec

from treadle.base import file_system
from treadle.errors import InvalidInput

VARIABLE = "TREADLE_FAULTS"
ANY = "*"
Strike = Literal["kill", "raise", "memory", "full", "cancel", "delay"]
_STRIKE = re.compile(r"(kill|raise|memory|full|cancel|delay)@([^#=;\s]+)(?:#([1-9]\d*|\*))?(?:=(\d+(?:\.\d+)?))?")
_HOW = (
    "write kill@NAME, raise@NAME, memory@NAME, full@NAME, cancel@NAME, delay@NAME=SECONDS (each with #N for the Nth "
    "passing, #* for all) or list=FILE"
)


class InjectedFault(Exception):
    """The exception of `raise@NAME`. No part of Treadle expects it."""


class Fault(msgspec.Struct, frozen=True):
    action: Strike | Literal["list"]
    point: str = ANY
    passing: int = 1  # which passing; 0 for every one
    seconds: float = 0.0
    file: str = ""


def parse(text: str) -> tuple[Fault, ...]:
    """Read the language of the module's docstring. InvalidInput says what is wrong with it."""
    return tuple(_parse_one(part.strip()) for part in text.split(";") if part.strip())


def _parse_one(text: str) -> Fault:
    if text.startswith("list=") and len(text) > len("list="):
        return Fault("list", file=text.removeprefix("list="))
    match = _STRIKE.fullmatch(text)
    if match is None:
        raise InvalidInput(f"{text!r} is no fault; {_HOW}.")
    action, point, passing, seconds = match.groups()
    if (action == "delay") != (seconds is not None):
        raise InvalidInput(f"{text!r}: a delay needs =SECONDS, and nothing else takes it; {_HOW}.")
    strike_number = 0 if passing == "*" else int(passing or 1)
    return Fault(action, point, strike_number, float(seconds or 0.0))  # type: ignore[arg-type]


class Faults:
    """A hook for `install_fault_hook`. Several threads pass points; a strike happens in the one that passes."""

    def __init__(self, fault_list: Sequence[Fault]) -> None:
        self._strikes = tuple(fault for fault in fault_list if fault.action != "list")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._files = tuple(os.open(fault.file, flags, 0o600) for fault in fault_list if fault.action == "list")
        self._guard = threading.Lock()
        self._counts: Counter[str] = Counter()
        self.passed: list[str] = []  # every point so far, in order
        self.struck: list[Fault] = []

    def __call__(self, name: str) -> None:
        with self._guard:
            self.passed.append(name)
            self._counts[name] += 1
            self._counts[ANY] += 1
            for file in self._files:
                os.write(file, f"{name}\n".encode())
            at_point = (fault for fault in self._strikes if fault.point in (name, ANY))
            due = [fault for fault in at_point if fault.passing in (0, self._counts[fault.point])]
            self.struck += due
        for fault in due:
            _strike(fault, name)

    def close(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = ()


def _strike(fault: Fault, name: str) -> None:
    match fault.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # a thread may go on for a moment after its process was told to die; this one does not
        case "raise":
            raise InjectedFault(f"injected at {name}, passing {fault.passing}")
        case "memory":
            raise MemoryError(f"injected at {name}")
        case "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        case "cancel":
            raise asyncio.CancelledError(f"injected at {name}")
        case "delay":
            time.sleep(fault.seconds)
        case "list":
            pass
        case _ as never:
            assert_never(never)


def install_from_environment(environment: Mapping[str, str] = os.environ) -> Faults | None:
    """Do in this process what TREADLE_FAULTS says, for as long as it lives. None when it says nothing."""
    if not (text := environment.get(VARIABLE, "")).strip():
        return None
    hook = Faults(parse(text))
    file_system.install_fault_hook(hook)
    return hook


@contextmanager
def faults(*specs: str | Fault) -> Iterator[Faults]:
    """Strike in this process while the block lasts. Without arguments it only tells which points were passed."""
    hook = Faults([one for item in specs for one in (parse(item) if isinstance(item, str) else (item,))])
    file_system.install_fault_hook(hook)
    try:
        yield hook
    finally:
        file_system.install_fault_hook(None)
        hook.close()
