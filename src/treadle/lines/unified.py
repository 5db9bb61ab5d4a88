"""Unified diffs read back: what each hunk goes from and to. For who shows both side by side and has only the diff."""

from collections.abc import Iterator

import msgspec


class Sides(msgspec.Struct, frozen=True):
    """One hunk: the lines before and after, each with its newline."""

    path: str
    old: str
    new: str


def sides(text: str) -> Iterator[Sides]:
    """The hunks of all diffs in a text, which may have other lines around them."""
    path, old, new = "", "", ""
    inside = False
    for line in [*text.split("\n"), ""]:
        ends = line[:1] not in (" ", "+", "-", "\\")
        if inside and (ends or line.startswith("--- ")):
            yield Sides(path, old, new)
            inside = False
        if line.startswith("@@ "):
            old, new, inside = "", "", True
        elif not inside and line.startswith(("--- ", "+++ ")):
            name = line[4:].partition("\t")[0]
            path = path if name == "/dev/null" else name.removeprefix("a/" if line[0] == "-" else "b/")
        elif inside and line[0] != "\\":
            old += f"{line[1:]}\n" if line[0] != "+" else ""
            new += f"{line[1:]}\n" if line[0] != "-" else ""
