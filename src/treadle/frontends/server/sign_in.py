"""Signing in with a code that is read from the terminal, for a device to which no link can be sent. A code is good
once: it gets a token of its own, which can be revoked like any other. Eight letters are too many to guess at one try a
second, which is all that wrong ones are given."""

import secrets
import time
from collections.abc import Callable

from treadle.frontends.server.replies import Problem
from treadle.frontends.server.tokens import LOCAL, Tokens

LETTERS = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Without those that look like others."""
LENGTH = 8
PAUSE_S = 1.0
LABEL = "signed in with a code"


def new_code() -> str:
    letters = "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
    return f"{letters[:4]}-{letters[4:]}"


class SignIn:
    """The code of a server. Without `renewed` there is none, and every one is wrong. `renewed` is told each new one."""

    def __init__(
        self, tokens: Tokens, renewed: Callable[[str], None] | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._tokens = tokens
        self._renewed = renewed
        self._now = now
        self._wrong = float("-inf")
        self.code = new_code() if renewed is not None else ""

    def redeem(self, sent_code: str) -> str:
        """Return a token in exchange for the code."""
        wait = self._wrong + PAUSE_S - self._now()
        if wait > 0:
            raise Problem("too_many_tries", "A wrong code was tried a moment ago; try again.", {"retry-after": "1"})
        letters = _letters(sent_code)
        if self._renewed is None or not secrets.compare_digest(letters.encode(), _letters(self.code).encode()):
            self._wrong = self._now()
            raise Problem("unauthorized", "That is not the code that the server's terminal shows; each is good once.")
        self.code = new_code()
        token = self._tokens.add(LOCAL, LABEL)[1]
        self._renewed(self.code)
        return token


def _letters(text: str) -> str:
    return "".join(text.upper().split()).replace("-", "")
