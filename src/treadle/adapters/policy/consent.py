"""Disclosed recipients of the project's data (S-10). Stored in Treadle's home, so the user is told once."""

from collections.abc import Callable, Collection
from pathlib import Path

import msgspec
from msgspec.structs import replace

from treadle.base.home_file import HomeFile

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

    def is_given(self, recipient: str, provider: str) -> bool:
        """`recipient` is where the text goes, `provider` the word before the colon of the model's name."""
        if self._accepted & {recipient, provider, EVERYONE}:
            return True
        return recipient in self._file.read().recipients

    def give(self, recipient: str) -> None:
        def change(book: _Consents) -> _Consents:
            return book if recipient in book.recipients else replace(book, recipients=(*book.recipients, recipient))

        self._file.change(change)

    def missing(self, model: str) -> str:
        """Return the recipient of this model's data. Empty if there is none, or if the user knows it already."""
        recipient = self._recipient_of(model)
        return "" if not recipient or self.is_given(recipient, model.partition(":")[0]) else recipient

    def disclose(self, model: str) -> str:
        """Return the notice to show now about this model, and record it as shown. Empty if already shown."""
        recipient = self.missing(model)
        if not recipient:
            return ""
        self.give(recipient)
        return disclosure(recipient)


def disclosure(recipient: str) -> str:
    """Return the notice about the recipient."""
    return (
        f"your messages, the files that the model reads and the output of commands are sent to {recipient}; "
        "known secrets are taken out"
    )
