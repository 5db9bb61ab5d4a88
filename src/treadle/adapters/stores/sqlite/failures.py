"""Errors of SQLite and the file system, explained to people. Knows nothing of the attempted operation."""

import errno
import sqlite3
from pathlib import Path

from treadle.errors import Damaged, InvalidInput, StoreBusy, StoreError

_SENTENCES = {
    sqlite3.SQLITE_BUSY: "the database {path} stayed locked by another process for too long; nothing was changed, "
    "try again or end what holds it",
    sqlite3.SQLITE_LOCKED: "the database {path} is locked; nothing was changed, try again",
    sqlite3.SQLITE_FULL: "there is no space left for the database {path}; nothing was changed, "
    "free some space and try again",
    sqlite3.SQLITE_READONLY: "the database {path} is read-only; nothing was changed, allow writing and try again",
    sqlite3.SQLITE_CANTOPEN: "the database {path} cannot be opened; check that its folder exists and may be written",
    sqlite3.SQLITE_IOERR: "reading or writing the database {path} failed ({error}); check the disk and try again",
    sqlite3.SQLITE_PERM: "the database {path} may not be accessed; check its permissions",
}
BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
REOPEN = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, *BROKEN}
"""A connection that failed like this may stay useless even when the cause is gone."""
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}


def primary_code(error: BaseException) -> int:
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def read_only(path: Path) -> StoreError:
    return StoreError(
        f"the database {path} is read-only, or its folder is; nothing was changed, allow writing and try again "
        "(chats, show, export, diff and pending work all the same)"
    )


def explained(error: BaseException, path: Path) -> BaseException:
    """The error to raise in its place; one that is not the database's or the disk's stays what it is."""
    if isinstance(error, OSError):
        problem = (
            "there is no space left" if error.errno in _NO_SPACE else f"a file could not be used ({error.strerror})"
        )
        text = f"{problem}: {error.filename or path}; nothing was changed, mend it and try again"
        failure: BaseException = StoreError(text)
    elif isinstance(error, OverflowError | UnicodeEncodeError):
        failure = InvalidInput(f"the database cannot keep this value: {error}; nothing was changed")
    elif not isinstance(error, sqlite3.Error):
        return error
    elif (code := primary_code(error)) in BROKEN:
        failure = Damaged(f"the database {path} is damaged ({error}); run `treadle fsck`, or restore a backup")
    else:
        sentence = _SENTENCES.get(code, "the database {path} refused: {error}")
        kind = StoreBusy if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) else StoreError
        failure = kind(sentence.format(path=path, error=error))
    failure.__cause__ = error
    return failure
