"""The list of escape attempts against a sandbox, and the report of their results. Only data: `probe` makes the
attempts, and a command that finds a report need not import it."""

from typing import Literal

import msgspec

from treadle.ports.sandbox import Level

Verdict = Literal["refused", "undone", "allowed"]
"""undone: it could be done, and was taken back when the command ended."""


class Escape(msgspec.Struct, frozen=True):
    name: str
    text: str
    required: bool = True
    """True if a level that allows it does not count as a sandbox at all."""


ESCAPES = (
    Escape("write_outside", "change a file outside the project"),
    Escape("create_outside", "make a file outside"),
    Escape("delete_outside", "delete a file outside"),
    Escape("truncate_outside", "cut a file outside to nothing"),
    Escape("chmod_outside", "change the mode of a file outside"),
    Escape("touch_outside", "change the times of a file outside", required=False),
    Escape("attribute_outside", "give an attribute to a file outside", required=False),
    Escape("through_link", "write outside through a symbolic link"),
    Escape("through_hard_link", "write outside through a hard link"),
    Escape("through_proc", "write outside through /proc/PID/root"),
    Escape("write_kernel", "open any file of /proc or /sys for writing"),
    Escape("read_hidden", "read a hidden file"),
    Escape("read_home", "read a file in the home"),
    Escape("match_key", "find a key in the home by a pattern"),
    Escape("read_environment", "read the environment of a process outside"),
    Escape("create_protected", "make a protected path that does not exist"),
    Escape("change_protected", "change a protected file"),
    Escape("move_protected", "put another folder in the place of a protected one"),
    Escape("connect_tcp", "connect to the network (TCP)"),
    Escape("send_udp", "send to the network (UDP)"),
    Escape("connect_unix", "connect to a socket such as Docker's"),
    Escape("connect_young", "connect to a socket made just now, anywhere"),
    Escape("connect_abstract", "connect to an abstract socket outside"),
    Escape("remount", "mount, or make read-only mounts writable"),
    Escape("new_namespace", "make a user namespace", required=False),
    Escape("make_device", "make a device file"),
    Escape("set_user_id", "make a program that runs as its owner (setuid)"),
    Escape("trace_process", "trace a process outside"),
    Escape("kill_process", "kill a process outside", required=False),
    Escape("type_into_terminal", "type into the terminal (TIOCSTI)"),
    Escape("use_io_uring", "do things unseen by io_uring", required=False),
    Escape("read_keyring", "read the kernel's keyring", required=False),
    Escape("survive", "live on after the command has ended (setsid)"),
)


class EscapeResult(msgspec.Struct, frozen=True):
    """One attempt and what came of it; `why` is the system's own word for a refusal."""

    name: str
    verdict: Verdict
    why: str = ""


class LevelReport(msgspec.Struct, frozen=True):
    """The findings about one level. `failure`: the reason why it cannot be used at all."""

    level: Level
    tried: tuple[EscapeResult, ...] = ()
    views: bool = False
    lays: bool = False
    """True if a view can be mounted before bubblewrap starts, without syncing every file that it copies."""
    nested: bool = False
    """True if only the filter keeps commands from making namespaces of their own: bubblewrap could not forbid it."""
    failure: str = ""
    stuck: bool = False
    """True if it failed by not ending: another variant of it is not worth the wait."""

    @property
    def complete(self) -> bool:
        """True if the report covers all attempts of this version."""
        return bool(self.failure) or {each.name for each in self.tried} == {each.name for each in ESCAPES}

    @property
    def holds(self) -> bool:
        """True if the level refuses all that it must refuse."""
        return not self.failure and not self.open

    @property
    def open(self) -> tuple[str, ...]:
        """The attempts that it must refuse and does not, in words."""
        allowed = {each.name for each in self.tried if each.verdict == "allowed"}
        return tuple(each.text for each in ESCAPES if each.required and each.name in allowed)
