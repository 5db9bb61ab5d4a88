"""Errors of PostgreSQL and of the network: decides if trying again may help, and explains them to people. Knows nothing
of the attempted operation. No message contains a password."""

import ssl

import asyncpg  # type: ignore[import-untyped]

from treadle.errors import InvalidInput, StoreBusy, StoreError, TreadleError

ALREADY_ANSWERED = "TR001"

_PASSING_CLASSES = ("08", "40", "57P")
"""SQLSTATEs, by their beginnings: the connection, a transaction that another stood in the way of, the server's end."""
_PASSING = {"25006", "53300", "55P03"}
"""Not (or no longer) the server that takes writes; too many connections; a lock that was not to be had."""

_SENTENCES = {
    "28": "the database {where} does not let Treadle in ({error}); check user and password",
    "3D": "there is no database {where} ({error}); create it, or name another",
    "42501": "Treadle may not do this in the database {where} ({error}); give its user the right to",
    "53100": "there is no space left for the database {where}; nothing was changed, free some space and try again",
    "53200": "the database {where} is out of memory; nothing was changed, try again",
    "57014": "the database {where} gave a statement up ({error}); nothing was changed, try again",
}


def state(error: BaseException) -> str:
    """The SQLSTATE, if PostgreSQL said anything."""
    return getattr(error, "sqlstate", None) or ""


def passing(error: BaseException) -> bool:
    """True if the same may work on another connection, or a moment later."""
    if isinstance(error, TreadleError | ssl.SSLError):
        return False
    code = state(error)
    if code:
        return code in _PASSING or code.startswith(_PASSING_CLASSES)
    # The driver's own errors about a lost connection have no SQLSTATE, nor do those about a protocol that got out of
    # step with the server's last messages. A ValueError is a wrong address.
    broken = OSError | EOFError | asyncpg.InterfaceError | asyncpg.InternalClientError
    return isinstance(error, broken) and not isinstance(error, ValueError)


def refused(error: BaseException) -> bool:
    """True if the database rejected the values themselves: a NUL in a text, a number that is too large."""
    return isinstance(error, asyncpg.DataError | UnicodeEncodeError) or state(error).startswith("22")


def explained(error: BaseException, address: str) -> BaseException:
    """The error to raise in its place; one that is not the database's or the network's stays what it is."""
    if isinstance(error, TreadleError) or state(error) == ALREADY_ANSWERED:
        return error
    failure: BaseException
    if refused(error):
        failure = InvalidInput(f"the database cannot keep this value: {error}; nothing was changed")
    elif passing(error):
        failure = StoreBusy(
            f"the database {address} cannot be reached ({_plain(error)}); acknowledged changes are safe, try "
            "again later"
        )
    elif isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError | OSError | ValueError):
        code = state(error)
        sentence = next((text for begin, text in _SENTENCES.items() if code.startswith(begin) and code), None)
        failure = StoreError(
            (sentence or "the database {where} refused: {error}").format(where=address, error=_plain(error))
        )
    else:
        return error
    failure.__cause__ = error
    return failure


def _plain(error: BaseException) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
