"""`python -m bench.severity`: what it costs to judge a command, beside a bare parse of the same text."""

import statistics
import sys
import time
from collections.abc import Callable

from treadle.adapters.policy import command_severity
from treadle.adapters.policy.command_severity import classify
from treadle.adapters.policy.shell.parse import parse

COMMANDS = (
    "ls -la",
    "git log --oneline -n 5 | head",
    "cd build && make -j4 2>&1 | tail -20",
    "grep -rn 'def ' src --include='*.py' | sort | uniq -c",
    "find . -name '*.py' -exec grep -l main {} +",
    'for f in *.py; do wc -l "$f"; done',
    "bash -c 'echo \"$(date)\" > out.txt'",
    "echo cm0gLXJmIC8= | base64 -d | sh",
    "cat > notes.md <<'EOF'\n" + "a line of text\n" * 200 + "EOF",
)
TARGET_MS = 1.0


def main() -> int:
    classify("ls")  # the first loads the parser
    print(f"{'judged, µs':>12}{'parsed, µs':>12}  command")
    slowest = 0.0
    for command in COMMANDS:
        judged = _median(_anew, command)
        parsed = _median(parse, command)
        slowest = max(slowest, judged)
        print(f"{judged * 1e6:12.0f}{parsed * 1e6:12.0f}  {command[:60]!r}")
    print(f"slowest {slowest * 1e3:.2f} ms, meant to stay below {TARGET_MS:g} ms")
    return 0


def _anew(command: str) -> None:
    command_severity._read.cache_clear()
    classify(command)


def _median(work: Callable[[str], object], command: str, rounds: int = 15, times: int = 10) -> float:
    """Seconds a call."""
    measured = []
    for _ in range(rounds):
        begun = time.perf_counter()
        for _ in range(times):
            work(command)
        measured.append((time.perf_counter() - begun) / times)
    return statistics.median(measured)


if __name__ == "__main__":
    sys.exit(main())
