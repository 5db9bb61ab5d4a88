"""Files of a repository that would make Treadle act (hooks, servers to start) are ignored until a person has trusted
exactly their content (S-09); and the recipients of data that the user knows of (S-10). Both are in Treadle's home."""

import hashlib
import os
import stat
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec
from msgspec.structs import replace

from treadle.base.file_system import is_below
from treadle.base.home_file import HomeFile
from treadle.base.types import SystemClock
from treadle.errors import InvalidInput, NotFound

TRUST_FILE = "trust.json"
CANDIDATES = (".treadle/hooks.toml", ".treadle/mcp.json", ".mcp.json")  # files below a root that count once trusted
FOLDERS = (".treadle", ".agents", ".claude", ".github")  # folders of a project in which such files lie, at any depth
MAX_BYTES = 1 << 20


class Trusted(msgspec.Struct, frozen=True):
    path: str
    sha256: str
    since_ms: int = 0


class _TrustedFiles(msgspec.Struct, frozen=True):
    files: tuple[Trusted, ...] = ()
    version: int = 1


class Trust:
    def __init__(self, home: Path | str) -> None:
        self._home = Path(home)
        self._file = HomeFile(self._home / TRUST_FILE, _TrustedFiles)

    def is_trusted(self, path: str, content: bytes) -> bool:
        """True if a person trusted this file with exactly this content. Use these bytes; do not read the file again."""
        real = os.path.realpath(path)
        if self._is_reachable_from(real):
            return False
        digest = hashlib.sha256(content).hexdigest()
        return any(file.path == real and file.sha256 == digest for file in self.list_trusted())

    def list_trusted(self) -> tuple[Trusted, ...]:
        return self._file.read().files

    def add(self, path: str, content: bytes) -> Trusted:
        real = os.path.realpath(path)
        if self._is_reachable_from(real):
            raise InvalidInput(f"Treadle's home {self._home} lies in the same project as {path}; move TREADLE_HOME")
        trusted_file = Trusted(real, hashlib.sha256(content).hexdigest(), SystemClock().now_ms())
        self._file.change(lambda book: replace(book, files=(*(f for f in book.files if f.path != real), trusted_file)))
        return trusted_file

    def remove(self, path: str) -> Trusted:
        """Trust the file no longer. NotFound if it was not trusted."""
        real = os.path.realpath(path)
        removed_files = [file for file in self.list_trusted() if file.path == real]
        if not removed_files:
            raise NotFound(f"{path} is not trusted; list the trusted files with: treadle trust")
        self._file.change(lambda book: replace(book, files=tuple(f for f in book.files if f.path != real)))
        return removed_files[0]

    def _is_reachable_from(self, real: str) -> bool:
        """True if the trust file lies in the project that the file belongs to: then the project could trust itself."""
        folders = Path(real).parents
        project = next((folder.parent for folder in folders if folder.name in FOLDERS), folders[0])
        return is_below(os.path.realpath(self._home), str(project))


def read(path: str, most: int = MAX_BYTES) -> bytes:
    """The content of a file that someone wants to trust. InvalidInput if it is none, or too large to be looked at."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise InvalidInput(f"{path} is no ordinary file; name the file to trust")
        with open(fd, "rb", closefd=False) as file:
            data = file.read(most + 1)
    finally:
        os.close(fd)
    if len(data) > most:
        raise InvalidInput(f"{path} has more than {most:,} bytes; that is too long to review before trusting it")
    return data


CONSENT_FILE = "consent.json"


class _Consents(msgspec.Struct, frozen=True):
    recipients: tuple[str, ...] = ()
    version: int = 1


class Consent:
    """`accepted`: recipients by a setting; `*`: all. `recipient_of` a model: empty if nothing leaves this machine."""

    def __init__(
        self, home: Path | str, accepted: Collection[str] = (), recipient_of: Callable[[str], str] = lambda _model: ""
    ) -> None:
        self._file = HomeFile(Path(home) / CONSENT_FILE, _Consents)
        self._accepted, self._recipient_of = frozenset(accepted), recipient_of

    def is_given(self, recipient: str, provider: str) -> bool:
        """`recipient` is where the text goes, `provider` the word before the colon of the model's name."""
        return bool(self._accepted & {recipient, provider, "*"}) or recipient in self._file.read().recipients

    def give(self, recipient: str) -> None:
        self._file.change(lambda book: replace(book, recipients=tuple(dict.fromkeys((*book.recipients, recipient)))))

    def find_unknown_recipient(self, model: str) -> str:
        """Return the recipient of this model's data. Empty if there is none, or if the user knows it already."""
        recipient = self._recipient_of(model)
        return "" if not recipient or self.is_given(recipient, model.partition(":")[0]) else recipient

    def disclose(self, model: str) -> str:
        """Return the notice to show now about this model, and record it as shown. Empty if already shown."""
        if recipient := self.find_unknown_recipient(model):
            self.give(recipient)
        return render_disclosure(recipient) if recipient else ""


def render_disclosure(recipient: str) -> str:
    return (
        f"your messages, the files that the model reads and the output of commands are sent to {recipient}; "
        "known secrets are taken out"
    )
