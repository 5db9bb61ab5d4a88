"""System calls that Python does not have: Landlock, seccomp, capabilities, namespaces. OSError on failure."""

import ctypes
import os
from fcntl import ioctl

from treadle.adapters.sandbox.launch.libc import call_prctl

_LIBC = ctypes.CDLL(None, use_errno=True)
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446

_SET_DEATH_SIGNAL, _SET_NO_NEW_PRIVILEGES = 1, 38
_DROP_FROM_BOUNDING_SET, _AMBIENT, _AMBIENT_CLEAR = 24, 47, 4
_CAPABILITY_VERSION = 0x20080522
_LISTENER, _WAIT_KILLABLE = 1 << 3, 1 << 5
CANNOT = 125  # The exit code when the command could not be confined and did not run


def make_system_call(number: int, *arguments: object) -> int:
    return check_return_value(_LIBC.syscall(ctypes.c_long(number), *arguments))


def check_return_value(result: int) -> int:
    """Return the result of a function of the C library; raise OSError if it is an error."""
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


class Ruleset:
    """Landlock rules: the handled rights are refused unless a rule allows them."""

    def __init__(self, files: int, network: int, scopes: int, size: int) -> None:
        handled = (ctypes.c_uint64 * 3)(files, network, scopes)
        self._fd = make_system_call(_LANDLOCK_CREATE, ctypes.byref(handled), ctypes.c_size_t(size), ctypes.c_uint(0))

    def allow(self, folder: int, rights: int) -> None:
        """Everything beneath an open folder, or an open file itself."""
        rule = rights.to_bytes(8, "little") + folder.to_bytes(4, "little")
        make_system_call(_LANDLOCK_ADD, ctypes.c_int(self._fd), ctypes.c_int(1), rule, ctypes.c_uint(0))

    def enforce(self) -> None:
        """On this process and all that it will start."""
        make_system_call(_LANDLOCK_RESTRICT, ctypes.c_int(self._fd), ctypes.c_uint(0))
        os.close(self._fd)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def load_filter(code: bytes) -> int:
    """Load a filter with verdicts that are made elsewhere; gives the descriptor at which those are asked for. A signal
    that comes meanwhile does not make the kernel ask twice, where it knows how (5.19)."""
    program = _Program(len(code) // 8, code)
    number = _SECCOMP[os.uname().machine]
    try:
        return make_system_call(
            number, ctypes.c_uint(1), ctypes.c_uint(_LISTENER | _WAIT_KILLABLE), ctypes.byref(program)
        )
    except OSError:
        return make_system_call(number, ctypes.c_uint(1), ctypes.c_uint(_LISTENER), ctypes.byref(program))


def give_up_privileges() -> None:
    """No capability now, and none through any program that is started later."""
    call_prctl(_SET_NO_NEW_PRIVILEGES, 1)
    for capability in range(64):
        try:
            call_prctl(_DROP_FROM_BOUNDING_SET, capability)
        except OSError:  # not root, which has none to drop; or the last one was dropped
            break
    call_prctl(_AMBIENT, _AMBIENT_CLEAR)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    make_system_call(_CAPSET[os.uname().machine], ctypes.byref(header), ctypes.byref(nothing))


def die_with_parent(parent: int) -> None:
    call_prctl(_SET_DEATH_SIGNAL, 9)
    if os.getppid() != parent:
        os._exit(CANNOT)


def join_network(pid: int) -> None:
    """Step into the network of another process, as root of the user namespace that owns it."""
    owner_of, user, network = 0xB701, 0x10000000, 0x40000000
    network_fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    for namespace, kind in ((ioctl(network_fd, owner_of), user), (network_fd, network)):
        join(namespace, kind)


def join(namespace: int, kind: int = 0) -> None:
    check_return_value(_LIBC.setns(ctypes.c_int(namespace), ctypes.c_int(kind)))
