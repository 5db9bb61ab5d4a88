"""Filters of system calls, assembled by hand into the kernel's BPF. Owns which calls are closed to a command and why;
does not know who loads the filter."""

import errno
import platform
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Literal

import msgspec

from treadle.errors import SandboxError

Machine = Literal["x86_64", "aarch64"]

ALLOW = 0x7FFF0000
KILL = 0x80000000
NOTIFY = 0x7FC00000
_ERRNO = 0x00050000

_ARCHITECTURE: Mapping[Machine, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000  # Calls of the x32 dialect carry this bit and would pass beside every number below

_LOAD, _EQUAL, _AT_LEAST, _HAS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_INSTRUCTION = Struct("=HBBI")
Block = list[tuple[int, int, int, int]]

# Numbers on x86_64 and aarch64; from 424 on they are the same everywhere. None: that machine has no such call.
# fmt: off
CALLS: Mapping[str, tuple[int | None, int | None]] = {
    "acct": (163, 89), "add_key": (248, 217), "bpf": (321, 280), "chmod": (90, None), "chown": (92, None),
    "chroot": (161, 51), "clone": (56, 220), "clone3": (435, 435), "creat": (85, None), "delete_module": (176, 106),
    "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "fchown": (93, 55), "fchownat": (260, 54),
    "file_setattr": (469, 469), "finit_module": (313, 273), "fremovexattr": (199, 16), "fsconfig": (431, 431),
    "fsetxattr": (190, 7), "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433),
    "futimesat": (261, None), "init_module": (175, 105), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "io_uring_setup": (425, 425), "ioctl": (16, 29), "ioperm": (173, None),
    "iopl": (172, None), "kexec_file_load": (320, 294), "kexec_load": (246, 104), "keyctl": (250, 219),
    "lchown": (94, None), "lremovexattr": (198, 15), "lsetxattr": (189, 6), "mknod": (133, None),
    "mknodat": (259, 33), "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429),
    "open": (2, None), "open_by_handle_at": (304, 265), "open_tree": (428, 428), "open_tree_attr": (467, 467),
    "openat": (257, 56), "openat2": (437, 437), "perf_event_open": (298, 241), "pivot_root": (155, 41),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "reboot": (169, 142), "removexattr": (197, 14),
    "removexattrat": (466, 466), "request_key": (249, 218), "setns": (308, 268), "setxattr": (188, 5),
    "setxattrat": (463, 463), "socket": (41, 198), "swapoff": (168, 225), "swapon": (167, 224), "syslog": (103, 116),
    "truncate": (76, 45), "umount2": (166, 39), "unshare": (272, 97), "userfaultfd": (323, 282), "utime": (132, None),
    "utimensat": (280, 88), "utimes": (235, None),
}
_CLOSED = (
    "acct", "add_key", "bpf", "chroot", "delete_module", "file_setattr", "finit_module", "fsconfig", "fsmount",
    "fsopen", "fspick", "init_module", "ioperm", "iopl", "kexec_file_load", "kexec_load", "keyctl", "mount",
    "mount_setattr", "move_mount", "open_by_handle_at", "open_tree", "open_tree_attr", "perf_event_open",
    "pivot_root", "quotactl", "quotactl_fd", "reboot", "request_key", "setns", "swapoff", "swapon", "syslog",
    "umount2", "userfaultfd",
)
# fmt: on
"""Nothing that builds, tests or edits a project needs them; most have been a way out of a sandbox before."""

_ABSENT = ("clone3", "io_uring_enter", "io_uring_register", "io_uring_setup", "openat2")
"""System calls that are reported as absent, so that programs use older ones: the arguments of clone3 and openat2 are in
memory that a filter cannot read, and io_uring does things that no filter sees."""

_SET_USER_ID = 0o4000
_CREATES = 0x400040  # O_CREAT and the bit of its own of O_TMPFILE: only with them is a mode looked at
_MODES: Mapping[str, int] = {"creat": 1, "mknod": 1, "mknodat": 2}
_MODES_BY_FLAGS: Mapping[str, tuple[int, int]] = {"open": (1, 2), "openat": (2, 3)}
_MODES_CHANGED: Mapping[str, int] = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}
"""The position of the mode argument. A set-user-id program would be a way out for a user that calls it later."""

# fmt: off
_ATTRIBUTES = (
    "fremovexattr", "fsetxattr", "lremovexattr", "lsetxattr", "removexattr", "removexattrat", "setxattr", "setxattrat",
)
CHORES = (
    "chmod", "chown", "fchmod", "fchmodat", "fchmodat2", "fchown", "fchownat", "futimesat", "lchown", "utime",
    "utimensat", "utimes",
)
# fmt: on
"""Modes, owners and times of files. Landlock does not look at them, so a process outside decides about each."""

_NAMESPACES = 0x7E020000
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI types into the terminal, TIOCLINUX pastes into the console
_FILE_FLAGS = (0x40086602, 0x40046602, 0x401C5820)
"""FS_IOC_SETFLAGS in both sizes, FS_IOC_FSSETXATTR: they work on files that were opened for reading only."""

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16


class Filter(msgspec.Struct, frozen=True):
    """The permissions of a filter. System calls that it does not name pass, unless they are closed to all commands."""

    families: Sequence[int] = (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK)
    """The kinds of sockets that can be made. Pairs of unix sockets can always."""
    metadata: bool = True  # True if modes, owners, times, attributes and flags of files are left to the kernel
    truncate: bool = True


def find_machine() -> Machine | None:
    kinds: dict[str, Machine] = {"x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
    return kinds.get(platform.machine())


def assemble(call_filter: Filter, kind: Machine | None = None) -> bytes:
    kind = kind or find_machine()
    if kind is None:
        missing = f"there is no filter of system calls for {platform.machine()}"
        raise SandboxError(f"{missing}; commands can run there with sandbox = none")
    code: Block = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, _ARCHITECTURE[kind]), (_RETURN, 0, 0, KILL)]
    code.append((_LOAD, 0, 0, _NUMBER))
    if kind == "x86_64":
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, KILL)]
    for number, block in _build_rules(call_filter, kind):
        code += [(_EQUAL, 0, len(block), number), *block]
    code.append((_RETURN, 0, 0, ALLOW))
    return b"".join(_INSTRUCTION.pack(*each) for each in code)


def _build_rules(call_filter: Filter, kind: Machine) -> list[tuple[int, Block]]:
    """By call number, the block that ends in a verdict. Blocks of one number must not occur twice."""
    controls = _TERMINAL_INPUT if call_filter.metadata else _TERMINAL_INPUT + _FILE_FLAGS
    verdicts: dict[str, Block] = {
        **{name: _refuse(errno.EPERM) for name in _CLOSED},
        **{name: _refuse(errno.ENOSYS) for name in _ABSENT},
        "unshare": _refuse_bits(0, _NAMESPACES),
        "clone": _refuse_bits(0, _NAMESPACES),
        "socket": _compare(0, call_filter.families, _refuse(errno.EACCES), [(_RETURN, 0, 0, ALLOW)]),
        **{name: _refuse_bits(mode, _SET_USER_ID) for name, mode in {**_MODES, **_MODES_CHANGED}.items()},
        # The mode counts only where a file may be made.
        **{
            name: [
                _load_argument(flags),
                (_HAS, 1, 0, _CREATES),
                (_RETURN, 0, 0, ALLOW),
                *_refuse_bits(mode, _SET_USER_ID),
            ]
            for name, (flags, mode) in _MODES_BY_FLAGS.items()
        },
        "ioctl": _compare(1, controls, [(_RETURN, 0, 0, ALLOW)], _refuse(errno.EPERM)),
    }
    if not call_filter.metadata:
        verdicts |= {name: _refuse(errno.EOPNOTSUPP) for name in _ATTRIBUTES}
        verdicts |= {name: [(_RETURN, 0, 0, NOTIFY)] for name in CHORES}
    if not call_filter.truncate:
        verdicts["truncate"] = _refuse(errno.EACCES)
    return [(number, verdicts[name]) for number, name in _find_numbers(verdicts, kind).items()]


def _find_numbers(names: Iterable[str], kind: Machine) -> dict[int, str]:
    """Of those that this kind of machine has."""
    column = 0 if kind == "x86_64" else 1
    return {number: name for name in names if (number := CALLS[name][column]) is not None}


def list_chores() -> dict[int, str]:
    """The calls about which a process outside decides, by their numbers on this machine."""
    kind = find_machine()
    return {} if kind is None else _find_numbers(CHORES, kind)


def _refuse(code: int) -> Block:
    return [(_RETURN, 0, 0, _ERRNO | code)]


def _refuse_bits(argument: int, bits: int) -> Block:
    return [_load_argument(argument), (_HAS, 0, 1, bits), *_refuse(errno.EPERM), (_RETURN, 0, 0, ALLOW)]


def _compare(argument: int, values: Sequence[int], different: Block, equal: Block) -> Block:
    """`different` is one instruction: the jumps to `equal` lead over it."""
    tests = [(_EQUAL, len(values) - at, 0, value) for at, value in enumerate(values)]
    return [_load_argument(argument), *tests, *different, *equal]


def _load_argument(number: int) -> tuple[int, int, int, int]:
    """Loads the lower half, which is all the kernel looks at for the arguments that are tested here."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * number)
