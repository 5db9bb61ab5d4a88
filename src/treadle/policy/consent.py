"""Who was told that a provider gets to see the project (S-10). Kept in Treadle's home, so that it is told once."""

from collections.abc import Callable, Collection
from pathlib import Path

import msgspec
from msgspec.structs import replace

from treadle.home_file import HomeFile

FILE_NAME = "consent.json"
EVERYONE = "*"


class _Consents(msgspec.Struct, frozen=True):
    recipients: tuple[str, ...] = ()
    version: int = 1


class Consent:
    """`accepted` are the recipients that a setting accepts beforehand; `*` accepts all. `recipient_of` says who a model
    belongs to; empty if nothing leaves this machine."""

    def __init__(
        self, home: Path | str, accepted: Collection[str] = (), recipient_of: Callable[[str], str] = lambda _model: ""
    ) -> None:
        self._file = HomeFile(Path(home) / FILE_NAME, _Consents)
        self._accepted = frozenset(accepted)
        self._recipient_of = recipient_of

    def given(self, recipient: str, provider: str) -> bool:
        """`recipient` is where the text goes, `provider` the word before the colon of the model's name."""
        if self._accepted & {recipient, provider, EVERYONE}:
            return True
        return recipient in self._file.read().recipients

    def give(self, recipient: str) -> None:
        def change(book: _Consents) -> _Consents:
            return book if recipient in book.recipients else replace(book, recipients=(*book.recipients, recipient))

        self._file.change(change)

    def missing(self, model: str) -> str:
        """Who gets to see the project with this model, if the user does not know that yet; else empty."""
        whom = self._recipient_of(model)
        return "" if not whom or self.given(whom, model.partition(":")[0]) else whom

    def disclose(self, model: str) -> str:
        """What the user must be told now about this model; empty if they know. It counts as told from here on."""
        whom = self.missing(model)
        if not whom:
            return ""
        self.give(whom)
        return disclosure(whom)


def disclosure(recipient: str) -> str:
    """What the user is told."""
    return (
        f"your messages, the files that the model reads and the output of commands are sent to {recipient}; "
        "known secrets are taken out"
    )
