"""`python -m bench.search [--quick]`: what grep_search and find_files take beside plain `rg`, on one tree in one run.
The least of several runs counts: other work on the machine can only add to it."""

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bench.clock import least
from bench.report import Row, align
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.builtin.search import FindFiles, GrepSearch
from treadle.adapters.workspace.root import Root, make_plain_root
from treadle.adapters.workspace.search.search import Engine, find_ripgrep
from treadle.base.types import CallKey, ChatId
from treadle.ports.toolset import Invocation
from treadle.ports.workspace import Query
from treadle.protocol.options import ChatOptions

FILES, REPEATS = 5_000, 9
QUICK_FILES, QUICK_REPEATS = 200, 2
WORDS = "alpha beta gamma delta return import class self value index error result buffer token stream".split()  # noqa: SIM905


class Case(msgspec.Struct, frozen=True):
    """One question: as rg is asked, and as the tool is."""

    title: str
    rg: Sequence[str]
    arguments: Mapping[str, object]


CASES = (
    Case("a rare word", ("-n", "needle"), {"pattern": "needle"}),
    Case("an expression", ("-n", r"fn_\d+7\("), {"pattern": r"fn_\d+7\("}),
    Case("a common word", ("-n", "return"), {"pattern": "return"}),
    Case("a kind of file", ("-n", "needle", "-g", "*.py"), {"pattern": "needle", "include": "*.py"}),
)
ALL_FILES = Case("files by name", ("--files", "-g", "*7.py"), {"pattern": "*7.py"})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.search", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run: a small tree")
    quick = parser.parse_args(arguments).quick
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        plant(Path(folder), QUICK_FILES if quick else FILES)
        print(align(table(Path(folder), QUICK_REPEATS if quick else REPEATS)))
    return 0


def plant(root: Path, files: int) -> None:
    """A tree of source files of about 4 KB, with some that are ignored."""
    chance = random.Random(7)
    (root / ".gitignore").write_text("node_modules/\n*.log\n")
    for number in range(files):
        folder = root / f"p{number % 20}" / (f"m{number % 7}" if number % 5 else "node_modules")
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"def fn_{number}({chance.choice(WORDS)}):"]
        lines += ["    " + " ".join(chance.choices(WORDS, k=8)) for _ in range(70)]
        if number % 500 == 1:
            lines.append("    needle")
        (folder / f"f{number}.{'py' if number % 2 else 'ts'}").write_text("\n".join(lines) + "\n")


def table(root: Path, repeats: int) -> list[Row]:
    program = find_ripgrep(str(root))
    if program is None:
        raise SystemExit("there is no rg to compare with")
    rows: list[Row] = [("milliseconds", "rg", "tool", "tool ÷ rg", "without rg", "÷ rg")]
    for case in (*CASES, ALL_FILES):
        plain = least(lambda case=case: _plain(program, case, root), repeats)  # type: ignore[misc]
        ours = least(lambda case=case: _tool(case, root), repeats)  # type: ignore[misc]
        fallback = least(lambda case=case: _own(case, root), max(1, repeats // 3))  # type: ignore[misc]
        rows.append(
            (case.title, _ms(plain), _ms(ours), f"{ours / plain:.1f}", _ms(fallback), f"{fallback / plain:.1f}")
        )
    return rows


def _plain(program: str, case: Case, root: Path) -> None:
    """As a person would ask: the answer is read to its end."""
    argv = [program, "--no-config", "--hidden", "--no-require-git", *case.rg, "."]
    subprocess.run(argv, cwd=root, stdout=subprocess.PIPE, check=True)


def _tool(case: Case, root: Path) -> None:
    context = ToolContext(make_plain_root, MemoryStore())
    tool = FindFiles(context) if case is ALL_FILES else GrepSearch(context)
    call = Invocation(
        ChatId("c"), CallKey("1.0"), tool.spec.name, dict(case.arguments), options=ChatOptions(root=str(root))
    )
    outcome = asyncio.run(tool.run(call))
    assert not outcome.text.startswith("No "), outcome.text


def _own(case: Case, root: Path) -> None:
    engine = Engine(Root(str(root)), None)
    if case is ALL_FILES:
        assert engine.find(str(case.arguments["pattern"]), ".", ignore_case=False, most=100, stop=None).paths
    else:
        assert engine.search(Query(**case.arguments), None).files  # type: ignore[arg-type]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f}"


if __name__ == "__main__":
    sys.exit(main())
