"""What went wrong with a path, in words that a model can act on."""

import errno
import os
import stat as st

from treadle.errors import OutsideRoot, ToolError
from treadle.ports.workspace import inert


class Missing(ToolError):
    """Nothing lies at the path."""


def missing(path: str) -> Missing:
    return Missing(f"{inert(path)} does not exist.")


def outside(path: str) -> OutsideRoot:
    return OutsideRoot(f"{inert(path)} is outside the project root; use a path inside it.")


def require_file(found: os.stat_result, path: str) -> None:
    if st.S_ISDIR(found.st_mode):
        raise ToolError(f"{inert(path)} is a directory, not a file.")
    if not st.S_ISREG(found.st_mode):
        raise ToolError(f"{inert(path)} is a FIFO, socket or device, not a regular file; it is not opened.")


def explain(error: OSError, path: str) -> ToolError:
    match error.errno:
        case errno.ENOENT:
            return missing(path)
        case errno.ENOTDIR | errno.ELOOP:
            return ToolError(f"{inert(path)}: a part of the path is not a directory.")
        case errno.ENAMETOOLONG:
            return ToolError(f"{inert(path)}: the name is too long for the file system.")
        case errno.EEXIST:
            return ToolError(f"{inert(path)} exists already.")
        case errno.ENOTEMPTY:
            return ToolError(f"{inert(path)} is a directory that is not empty.")
        case _:
            return ToolError(f"{inert(path)}: {os.strerror(error.errno or 0)}.")
