"""Authentication: tokens, of which only hashes are kept, and the users they stand for. Knows nothing of HTTP."""

import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path

import msgspec

from treadle.base.file_system import create_file
from treadle.base.home_file import HomeFile
from treadle.base.types import Clock, SystemClock, make_id
from treadle.errors import ConfigError, InvalidInput, NotFound

FILE_NAME = "tokens.json"
OWN_NAME = "serve-token"
OWN = "own"  # The id of the token that `treadle serve` made.
LOCAL = "local"  # The user whose chats are those of the command line; all others own only what they make over HTTP.
TICKET_S = 60

_PREFIX = "trd_"
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class Token(msgspec.Struct, frozen=True):
    id: str
    user: str
    hash: str  # SHA-256 of the token, hex. A token is random enough for that.
    label: str = ""
    created_ms: int = 0


class _File(msgspec.Struct, frozen=True):
    tokens: tuple[Token, ...] = ()


def get_tokens_file(home: Path, path: str = "") -> Path:
    """Return the path of the file with the tokens: the named one, else the one in Treadle's home."""
    return Path(path).expanduser().absolute() if path else home / FILE_NAME


def get_owner(user: str) -> str:
    """The owner that is written into chats."""
    return "" if user == LOCAL else user


def get_user(owner: str) -> str:
    """Whose chats have this owner."""
    return owner or LOCAL


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


class Tokens:
    """The tokens in a file, and the first one, made by `treadle serve`, in `home`: valid until it is revoked. A
    revocation by any process takes effect with the next request."""

    def __init__(self, file: Path, home: Path | None = None, clock: Clock | None = None) -> None:
        self._file = HomeFile(file, _File)
        self._clock = clock or SystemClock()
        self._home = home

    def list_tokens(self) -> tuple[Token, ...]:
        own_secret = read_own_token(self._home) if self._home is not None else ""
        first = (Token(OWN, LOCAL, hash_token(own_secret), "made by treadle serve"),) if own_secret else ()
        return (*first, *self._file.read().tokens)

    def add(self, user: str, label: str = "") -> tuple[Token, str]:
        """Make a token for a user; the second value is the token itself, which is not stored."""
        if not _USER.fullmatch(user):
            raise InvalidInput(f"{user!r} is no name for a user: use letters, digits and . _ @ -, at most 64")
        secret = _PREFIX + secrets.token_urlsafe(32)
        token = Token(make_id("t"), user, hash_token(secret), label, self._clock.now_ms())
        self._file.change(lambda stored: _File((*stored.tokens, token)))
        return token, secret

    def revoke(self, id: str) -> Token:
        if (match := next((token for token in self.list_tokens() if token.id == id), None)) is None:
            raise NotFound(f"there is no token {id!r}; see them with: treadle tokens")
        if id == OWN and self._home is not None:
            (self._home / OWN_NAME).unlink(missing_ok=True)
        else:
            self._file.change(lambda stored: _File(tuple(token for token in stored.tokens if token.id != id)))
        return match

    def find(self, secret: str) -> Token | None:
        secret_digest = hash_token(secret)
        return next((token for token in self.list_tokens() if hmac.compare_digest(token.hash, secret_digest)), None)

    def is_good(self, token: Token) -> bool:
        """True if a token that was found is still there. If the file cannot be read, no token is accepted."""
        try:
            return any((each.id, each.hash) == (token.id, token.hash) for each in self.list_tokens())
        except ConfigError:
            return False

    def make_ticket(self, token: Token) -> str:
        """A stand-in for a token, good once and soon, for a browser's EventSource and WebSocket. It ends with its
        token."""
        payload = f"{token.id}.{self._clock.now_ms() // 1000 + TICKET_S}.{secrets.token_hex(16)}"
        return f"{payload}.{_compute_mac(token, payload)}"

    def redeem(self, ticket: str) -> Token | None:
        """The token of a ticket; None when it is none, or too old. The caller sees that it was not used before."""
        payload, _, mac = ticket.rpartition(".")
        id, _, remaining = payload.partition(".")
        moment = remaining.partition(".")[0]
        if not (moment.isascii() and moment.isdigit()) or len(moment) > 12:
            return None
        for token in self.list_tokens():
            if token.id == id and hmac.compare_digest(_compute_mac(token, payload).encode(), mac.encode()):
                return token if self._clock.now_ms() <= int(moment) * 1000 else None
        return None


def _compute_mac(token: Token, payload: str) -> str:
    return hmac.new(bytes.fromhex(token.hash), payload.encode(), hashlib.sha256).hexdigest()


def read_own_token(home: Path) -> str:
    """The token that `treadle serve` made at first; empty if there is none, or none any more."""
    path = home / OWN_NAME
    try:
        return _read_token(path) if path.exists() else ""
    except ConfigError:
        if path.exists():
            raise
        return ""  # revoked this moment


def ensure_own_token(home: Path) -> str:
    """The token of a server without any: made once and kept for its owner alone, so that its address stays the same."""
    path = home / OWN_NAME
    if stored_token := read_own_token(home):
        return stored_token
    secret = _PREFIX + secrets.token_urlsafe(32)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_created = create_file(str(path), f"{secret}\n".encode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from error
    return secret if is_created else _read_token(path)  # of several servers that start at once, one makes the token


def _read_token(path: Path) -> str:
    try:
        file_stat = path.stat()
        secret = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if file_stat.st_mode & 0o077 or file_stat.st_uid not in (os.geteuid(), 0):
        raise ConfigError(f"{path} can be read by others; delete it, and a new token is made")
    if len(secret) < 32:
        raise ConfigError(f"{path} holds no token; delete it, and a new one is made")
    return secret
