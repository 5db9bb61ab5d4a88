"""Put small faults into the core on purpose, one at a time: the tests named beside each must notice it.

A mutant is a row in tests/mutants/*.toml: a file, a text that stands in it once, what stands there instead, and the
tests that must fail then. Each runs on a copy of the sources; the checkout is never changed.

    python -m scripts.mutants [--jobs N] [WORD …]     only mutants whose name or file contains one of the words
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import environ
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

import msgspec

ROOT = Path(__file__).resolve().parents[1]
LISTS = ROOT / "tests" / "mutants"
TIMEOUT_S = 300
Verdict = Literal["killed", "survived", "unusable"]


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    file: str
    """Below src/treadle."""
    before: str
    after: str
    tests: tuple[str, ...]
    """What must fail, as pytest takes it: files, or tests in them."""


class _List(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mutant: tuple[Mutant, ...]


class Outcome(msgspec.Struct, frozen=True):
    mutant: Mutant
    verdict: Verdict
    output: str


def all_mutants(folder: Path = LISTS) -> list[Mutant]:
    """Every row of the lists, in order."""
    found: list[Mutant] = []
    for file in sorted(folder.glob("*.toml")):
        found += msgspec.convert(tomllib.loads(file.read_text()), _List).mutant
    return found


def apply_mutant(mutant: Mutant, sources: Path) -> str:
    """The text of the file with the fault in it. ValueError if the row no longer fits the code."""
    text = (sources / "treadle" / mutant.file).read_text()
    count = text.count(mutant.before)
    if count != 1:
        raise ValueError(f"{mutant.name}: the text stands {count} times in {mutant.file}, not once")
    return text.replace(mutant.before, mutant.after)


def try_mutant(mutant: Mutant, sources: Path) -> Outcome:
    """Run the mutant's tests on a copy of the sources that has the fault; the copy is whole again afterwards."""
    file = sources / "treadle" / mutant.file
    whole = file.read_text()
    file.write_text(apply_mutant(mutant, sources))
    try:
        code, output = _test(mutant.tests, sources)
    finally:
        file.write_text(whole)
    verdicts: dict[int, Verdict] = {0: "survived", 1: "killed"}
    return Outcome(mutant, verdicts.get(code, "unusable"), output)


def _test(tests: Sequence[str], sources: Path) -> tuple[int, str]:
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    env = dict(environ) | {"PYTHONPATH": str(sources)}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, timeout=TIMEOUT_S, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except subprocess.TimeoutExpired:
        return 1, "the tests did not end"
    return done.returncode, done.stdout


def try_all(mutants: Sequence[Mutant], jobs: int) -> Iterator[Outcome]:
    """The outcomes, in the order of the list. The copies hold the compiled modules, too: a changed file is newer than
    its compiled module."""
    with tempfile.TemporaryDirectory(prefix="treadle-mutants-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            copies.put(Path(shutil.copytree(ROOT / "src", Path(folder) / str(number))))

        def work(mutant: Mutant) -> Outcome:
            sources = copies.get()
            try:
                return try_mutant(mutant, sources)
            finally:
                copies.put(sources)

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(work, mutants)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args(arguments)
    mutants = [
        each
        for each in all_mutants()
        if not chosen.words or any(word in each.name or word in each.file for word in chosen.words)
    ]
    if not mutants:
        print("no mutant has such a name or file", file=sys.stderr)
        return 2
    counts = {"killed": 0, "survived": 0, "unusable": 0}
    for outcome in try_all(mutants, max(1, chosen.jobs)):
        counts[outcome.verdict] += 1
        print(f"{outcome.verdict:9} {outcome.mutant.file}: {outcome.mutant.name}", flush=True)
        if outcome.verdict == "unusable":
            print("\n".join(outcome.output.splitlines()[-15:]))
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
    return 0 if counts["killed"] == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
