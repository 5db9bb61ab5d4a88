"""Where a command's input comes from and its output goes to."""

from typing import TYPE_CHECKING

from treadle.policy.shell.model import UNKNOWN
from treadle.policy.shell.places import resolve
from treadle.policy.shell.state import State

if TYPE_CHECKING:
    from tree_sitter import Node


class Redirections:
    def __init__(self) -> None:
        self.stdin: str | None = None
        self.writes: tuple[str, ...] = ()
        self.reads: tuple[str, ...] = ()
        self.appends = False

    def add(self, operator: str, place: str, state: State) -> None:
        if operator in ("<", "<&"):
            self.reads += (place,)
            self.stdin = state.files.get(resolve(place, state.cwd), UNKNOWN)
        elif not (operator in (">&", "<&") and place.strip("-").isdigit()):
            self.writes += (place,)
            self.appends = self.appends or operator in (">>", "&>>")

    def joined(self, other: "Redirections") -> "Redirections":
        both = Redirections()
        both.stdin = other.stdin if other.stdin is not None else self.stdin
        both.writes = self.writes + other.writes
        both.reads = self.reads + other.reads
        both.appends = self.appends or other.appends
        return both

    def late(self, nodes: "list[Node]") -> "list[Node]":
        """Words behind a redirection, which the grammar takes for more of its targets: `> f rm` is `rm > f`."""
        words: list[Node] = []
        for node in nodes:
            targets = [child for child in node.named_children if child.type != "file_descriptor"]
            words += targets[1:] if node.type == "file_redirect" else []
        return words

    def keep(self, state: State, printed: str, *, known: bool) -> str:
        """Remembers what a file now holds; what is written there is not printed."""
        if not self.writes:
            return printed
        for place in self.writes:
            path = resolve(place, state.cwd)
            before = state.files.get(path, "") if self.appends else ""
            state.files[path] = before + (printed if known or printed else UNKNOWN)
        return ""
