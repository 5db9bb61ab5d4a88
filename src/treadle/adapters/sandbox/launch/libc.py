"""Functions of the C library for the process that a command waits for. They are called by what `ctypes` stands on: to
load `ctypes` itself takes a supervisor longer than all that it does before the command starts. OSError on failure."""

import _ctypes
import os

_SET_SUBREAPER = 36


class _Int(_ctypes._SimpleCData):  # type: ignore[type-arg]  # which has none at run time
    _type_ = "i"


class _Word(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "L"


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Int


def call_prctl(option: int, value: int = 0) -> None:
    """prctl"""
    _call_function("prctl", option, _Word(value), _Word(0), _Word(0), _Word(0))


def adopt_orphans() -> None:
    """Descendants whose parents die become children of this process instead of the system's first one."""
    call_prctl(_SET_SUBREAPER, 1)


def unshare(kinds: int) -> None:
    _call_function("unshare", kinds)


def mount(source: str, place: str, kind: str, flags: int, options: str) -> None:
    words = [os.fsencode(word) for word in (source, place, kind, options)]
    _call_function("mount", *words[:3], _Word(flags), words[3])


def _call_function(name: str, *arguments: object) -> None:
    here = _ctypes.dlopen(None, os.RTLD_NOW)  # type: ignore[arg-type]  # this program
    function = _Function(_ctypes.dlsym(here, name))
    if function(*arguments) == -1:
        code = _ctypes.get_errno()
        raise OSError(code, os.strerror(code))
