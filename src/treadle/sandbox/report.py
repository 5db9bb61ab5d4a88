"""What is tried against a sandbox, and how it is written down. Only data: trying is the business of `probe`, and a
command that finds a report need not load that."""

from typing import Literal

import msgspec

from treadle.ports.sandbox import Level

Verdict = Literal["refused", "undone", "allowed"]
"""undone: it could be done, and was taken back when the command ended."""


class Attempt(msgspec.Struct, frozen=True):
    name: str
    text: str
    required: bool = True
    """Whether a level that allows it does not count as a sandbox at all."""


ATTEMPTS = (
    Attempt("write_outside", "change a file outside the project"),
    Attempt("create_outside", "make a file outside"),
    Attempt("delete_outside", "delete a file outside"),
    Attempt("truncate_outside", "cut a file outside to nothing"),
    Attempt("chmod_outside", "change the mode of a file outside"),
    Attempt("touch_outside", "change the times of a file outside", required=False),
    Attempt("attribute_outside", "give an attribute to a file outside", required=False),
    Attempt("through_link", "write outside through a symbolic link"),
    Attempt("through_hard_link", "write outside through a hard link"),
    Attempt("through_proc", "write outside through /proc/PID/root"),
    Attempt("write_kernel", "open any file of /proc or /sys for writing"),
    Attempt("read_hidden", "read a hidden file"),
    Attempt("read_environment", "read the environment of a process outside"),
    Attempt("create_protected", "make a protected path that does not exist"),
    Attempt("change_protected", "change a protected file"),
    Attempt("move_protected", "put another folder in the place of a protected one"),
    Attempt("connect_tcp", "connect to the network (TCP)"),
    Attempt("send_udp", "send to the network (UDP)"),
    Attempt("connect_unix", "connect to a socket such as Docker's"),
    Attempt("connect_abstract", "connect to an abstract socket outside"),
    Attempt("remount", "mount, or make read-only mounts writable"),
    Attempt("new_namespace", "make a user namespace", required=False),
    Attempt("make_device", "make a device file"),
    Attempt("trace_process", "trace a process outside"),
    Attempt("kill_process", "kill a process outside", required=False),
    Attempt("type_into_terminal", "type into the terminal (TIOCSTI)"),
    Attempt("use_io_uring", "do things unseen by io_uring", required=False),
    Attempt("read_keyring", "read the kernel's keyring", required=False),
    Attempt("survive", "live on after the command has ended (setsid)"),
)


class Tried(msgspec.Struct, frozen=True):
    """One attempt and what came of it; `why` is the system's own word for a refusal."""

    name: str
    verdict: Verdict
    why: str = ""


class Report(msgspec.Struct, frozen=True):
    """What was found out about one level. `failure`: why it cannot be used at all."""

    level: Level
    tried: tuple[Tried, ...] = ()
    views: bool = False
    nested: bool = False
    """Whether only the filter keeps commands from making namespaces of their own: bubblewrap could not forbid it."""
    failure: str = ""
    stuck: bool = False
    """Whether it failed by not ending: another variant of it is not worth the wait."""

    @property
    def complete(self) -> bool:
        """Whether all was tried that is tried today."""
        return bool(self.failure) or {each.name for each in self.tried} == {each.name for each in ATTEMPTS}

    @property
    def holds(self) -> bool:
        """Whether the level may be relied on."""
        return not self.failure and not self.open

    @property
    def open(self) -> tuple[str, ...]:
        """What it must refuse and does not, in words."""
        allowed = {each.name for each in self.tried if each.verdict == "allowed"}
        return tuple(each.text for each in ATTEMPTS if each.required and each.name in allowed)
