"""The text that is left when calls are taken out of it: the spaces before a call go with it."""


class Display:
    def __init__(self) -> None:
        self._out: list[str] = []
        self._gap: list[str] = []
        """Spaces at the end: dropped if a call follows."""
        self.tail = ""
        """The last characters, without spaces; empty as long as nothing is shown."""

    def show(self, text: str, *, flush: bool = False) -> bool:
        """Add to what is shown; whether anything but spaces was added. With `flush`, the spaces before it go."""
        if flush and not self.tail:
            text = text.lstrip()
        kept = text.rstrip()
        if kept:
            self._out += self._gap
            self._gap.clear()
            self._out.append(kept)
            self.tail = _tail(self.tail, kept)
        if len(kept) < len(text):
            self._gap.append(text[len(kept) :])
        return bool(kept)

    def drop_gap(self) -> None:
        self._gap.clear()

    def take(self) -> str:
        """What may be shown now and was not taken before."""
        shown = "".join(self._out)
        self._out.clear()
        return shown

    def end(self, *, dropped: bool) -> str:
        """The rest. What ended in a call or in half of one has no spaces at its end."""
        if not dropped:
            self._out += self._gap
        self._gap.clear()
        return self.take()

    @property
    def gap(self) -> str:
        return "".join(self._gap)


def _tail(before: str, text: str) -> str:
    last = "".join(text[-16:].split())
    if len(last) < 4 and len(text) > 16:
        last = "".join(text.split())
    return (before + last)[-4:]
