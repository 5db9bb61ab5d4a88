"""The history of typed messages, across chats: one JSON string a line in Treadle's home, for its owner alone."""

import json
import os
from contextlib import suppress
from pathlib import Path

KEPT = 1_000
FILE_NAME = "history.jsonl"


class History:
    def __init__(self, home: Path | None) -> None:
        self._path = None if home is None else home / FILE_NAME
        self._entries: list[str] = []
        self._draft = ""
        with suppress(OSError, UnicodeDecodeError):
            lines = self._path.read_text(encoding="utf-8").splitlines() if self._path is not None else []
            for line in lines[-KEPT:]:
                with suppress(ValueError):
                    self._entries += [entry] if isinstance(entry := json.loads(line), str) else []
        self._at = len(self._entries)

    def add(self, text: str) -> None:
        if text.strip() and (not self._entries or self._entries[-1] != text):
            self._entries.append(text)
            with suppress(OSError):  # a home that cannot be written costs the history, and nothing else
                if self._path is not None:
                    descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                    with open(descriptor, "a", encoding="utf-8") as file:
                        file.write(json.dumps(text) + "\n")
        self._at, self._draft = len(self._entries), ""

    def newest(self) -> list[str]:
        """Every entry once, the newest first."""
        return list(dict.fromkeys(reversed(self._entries)))

    def recall_previous(self, present: str) -> str | None:
        """The entry before the one that is shown; None at the first."""
        if self._at == 0:
            return None
        if self._at == len(self._entries):
            self._draft = present
        self._at -= 1
        return self._entries[self._at]

    def recall_next(self) -> str | None:
        """The entry behind it, at last what was being written; None when that is shown already."""
        if self._at >= len(self._entries):
            return None
        self._at += 1
        return self._draft if self._at == len(self._entries) else self._entries[self._at]
