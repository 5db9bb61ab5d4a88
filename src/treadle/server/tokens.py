"""Who may use the server: tokens and the users they stand for. Only hashes are kept; a token is shown once, when it is
made. Knows nothing of HTTP."""

import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path

import msgspec

from treadle.errors import ConfigError, InvalidInput, NotFound
from treadle.policy.home_file import HomeFile
from treadle.types import Clock, SystemClock, new_id

FILE_NAME = "tokens.json"
OWN_NAME = "serve-token"
LOCAL = "local"
"""The user whose chats are those of the command line; all others own only what they make over HTTP."""
TICKET_S = 60

_PREFIX = "trd_"
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class Token(msgspec.Struct, frozen=True):
    """A token as it is kept."""

    id: str
    user: str
    hash: str
    """SHA-256 of the token, hex. A token is random enough for that."""
    label: str = ""
    created_ms: int = 0


class _File(msgspec.Struct, frozen=True):
    tokens: tuple[Token, ...] = ()


def tokens_file(home: Path, named: str = "") -> Path:
    """Where the tokens are: what was named, else in Treadle's home."""
    return Path(named).expanduser().absolute() if named else home / FILE_NAME


def owner_of(user: str) -> str:
    """The owner that is written into chats."""
    return "" if user == LOCAL else user


def user_of(owner: str) -> str:
    """Whose chats have this owner."""
    return owner or LOCAL


def digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


class Tokens:
    """The tokens in a file, and perhaps one more that is in no list: the one that `treadle serve` made for itself.
    Several processes may use the file; what was revoked counts from the next request on."""

    def __init__(self, file: Path, own: str = "", clock: Clock | None = None) -> None:
        self._file = HomeFile(file, _File)
        self._clock = clock or SystemClock()
        self._own = (Token("own", LOCAL, digest(own)),) if own else ()

    def all(self) -> tuple[Token, ...]:
        return self._file.read().tokens

    def add(self, user: str, label: str = "") -> tuple[Token, str]:
        """Make a token for a user; the second is the token itself, which nobody can tell again."""
        if not _USER.fullmatch(user):
            raise InvalidInput(f"{user!r} is no name for a user: use letters, digits and . _ @ -, at most 64")
        secret = _PREFIX + secrets.token_urlsafe(32)
        made = Token(new_id("t"), user, digest(secret), label, self._clock.now_ms())
        self._file.change(lambda kept: _File((*kept.tokens, made)))
        return made, secret

    def revoke(self, id: str) -> Token:
        found = [token for token in self.all() if token.id == id]
        if not found:
            raise NotFound(f"there is no token {id!r}; see them with: treadle tokens")
        self._file.change(lambda kept: _File(tuple(token for token in kept.tokens if token.id != id)))
        return found[0]

    def find(self, secret: str) -> Token | None:
        """Whose token this is."""
        wanted = digest(secret)
        found = [token for token in (*self._own, *self.all()) if hmac.compare_digest(token.hash, wanted)]
        return found[0] if found else None

    def ticket(self, token: Token) -> str:
        """A short-lived stand-in for a token, for what cannot send a header: a browser's EventSource and WebSocket. Any
        server with the same tokens understands it; it ends with its token."""
        expires = self._clock.now_ms() // 1000 + TICKET_S
        return f"{token.id}.{expires}.{_mac(token, expires)}"

    def redeem(self, ticket: str) -> Token | None:
        """Whose ticket this is; None when it is none, or too old."""
        id, _, rest = ticket.partition(".")
        moment, _, mac = rest.partition(".")
        if not (moment.isascii() and moment.isdigit()) or len(moment) > 12:
            return None
        expires = int(moment)
        for token in (*self._own, *self.all()):
            if token.id == id and hmac.compare_digest(_mac(token, expires).encode(), mac.encode()):
                return token if self._clock.now_ms() <= expires * 1000 else None
        return None


def _mac(token: Token, expires: int) -> str:
    return hmac.new(bytes.fromhex(token.hash), f"{token.id}.{expires}".encode(), hashlib.sha256).hexdigest()


def own_token(home: Path) -> str:
    """The token of a server without any: made once and kept for its owner alone, so that its address stays the same."""
    path = home / OWN_NAME
    if path.exists():
        return _kept(path)
    secret = _PREFIX + secrets.token_urlsafe(32)
    temp = home / f"{OWN_NAME}.{new_id('n')}"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with open(fd, "w") as file:
                file.write(secret + "\n")
            os.link(temp, path)  # of several servers that start at once, one makes the token
        finally:
            temp.unlink()
    except FileExistsError:
        return _kept(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from error
    return secret


def _kept(path: Path) -> str:
    try:
        found = path.stat()
        secret = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if found.st_mode & 0o077 or found.st_uid not in (os.geteuid(), 0):
        raise ConfigError(f"{path} can be read by others; delete it, and a new token is made")
    if len(secret) < 32:
        raise ConfigError(f"{path} holds no token; delete it, and a new one is made")
    return secret
