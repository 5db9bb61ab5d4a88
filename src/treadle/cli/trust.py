"""`treadle trust` and `treadle untrust`: files of a repository that Treadle may honour, by their content (S-09)."""

import sys

import msgspec

from treadle.cli.inert import inert, inert_line
from treadle.cli.project import project_root
from treadle.cli.session import configured
from treadle.cli.terminal import Terminal
from treadle.errors import InvalidInput
from treadle.policy.trust import CANDIDATES, Trust, Trusted, read

_SHOWN_LINES = 40


def trust(paths: tuple[str, ...]) -> int:
    """Shows what it trusts, before it does."""
    book = Trust(configured().home)
    terminal = Terminal()
    for path in paths:
        content = read(path)
        lines = inert(content.decode("utf-8", "backslashreplace")).split("\n")
        terminal.note(f"{inert_line(path)}:", "bold")
        for line in lines[:_SHOWN_LINES]:
            terminal.note(f"  │ {inert_line(line, 200)}")
        if len(lines) > _SHOWN_LINES:
            terminal.note(f"  │ … {len(lines) - _SHOWN_LINES} more lines")
        made = book.add(path, content)
        terminal.line(f"trusted {inert_line(made.path)} {made.sha256[:16]} until its content changes")
    return 0


def untrust(paths: tuple[str, ...]) -> int:
    book = Trust(configured().home)
    for path in paths:
        Terminal().line(f"no longer trusted: {inert_line(book.remove(path).path)}")
    return 0


def list_trust(as_json: bool) -> int:
    """Everything that was trusted, and what this project has that was not."""
    book = Trust(configured().home)
    terminal = Terminal()
    rows = [(file.path, _state(file)) for file in book.all()]
    known = {path for path, _ in rows}
    rows += [(path, "not trusted") for path in _found() if path not in known]
    for path, state in rows:
        if as_json:
            sys.stdout.buffer.write(msgspec.json.encode({"path": path, "state": state}) + b"\n")
        else:
            terminal.line(
                f"{terminal.paint(f'{state:12}', 'green' if state == 'trusted' else 'yellow')} {inert_line(path)}"
            )
    if not rows and not as_json:
        terminal.note("nothing is trusted, and this project has nothing to trust", "dim")
    return 0


def _state(file: Trusted) -> str:
    import hashlib

    try:
        content = read(file.path)
    except InvalidInput:
        return "gone"
    return "trusted" if hashlib.sha256(content).hexdigest() == file.sha256 else "changed"


def _found() -> list[str]:
    try:
        root = project_root(None, force=True)
    except InvalidInput:
        return []
    return [str(root / name) for name in CANDIDATES if (root / name).is_file()]
