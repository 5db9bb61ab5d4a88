"""The system call openat2, by which the kernel itself keeps a path below a directory (Linux 5.6 and newer). Python
has no name for it. Knows nothing of projects."""

import errno
import os
from collections.abc import Callable
from functools import cache

_NUMBER = 437
"""The same on every architecture that Python runs on."""
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08

Open = Callable[[int, str, int], int]


@cache
def open_beneath() -> Open | None:
    """`open(directory, path, flags)`, a descriptor; OSError if the path leaves the directory, by `..`, by a link or
    by an absolute path, at any moment of the walk. None where the kernel, or what filters its calls, has no such
    thing: that is found out by trying, once."""
    try:
        call = _call()
        here = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (ImportError, AttributeError, OSError):
        return None
    try:
        os.close(call(here, ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        os.close(call(here, "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        return call if error.errno == errno.EXDEV else None
    finally:
        os.close(here)
    return None  # it opened what it must refuse


def _call() -> Open:
    import ctypes  # here, because it is only needed when files are

    class How(ctypes.Structure):
        _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)

    def call(directory: int, path: str, flags: int) -> int:
        how = How(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
        fd = int(syscall(_NUMBER, directory, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)))
        if fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
        return fd

    return call
