"""The project of the demos: a small one with a failing test, whose repair would do harm if it were made twice."""

import shlex
import shutil
import sys
from pathlib import Path

SOURCE = "stats.py"
WRONG = "    return total\n"
RIGHT = "    return total / len(numbers)\n"

_STATS = f'''"""A little statistics."""


def mean(numbers):
    total = sum(numbers)
{WRONG}

def spread(numbers):
    return max(numbers) - min(numbers)
'''

_TEST = """import unittest

from stats import mean, spread


class StatsTest(unittest.TestCase):
    def test_mean(self):
        self.assertEqual(mean([2, 4, 9]), 5)

    def test_spread(self):
        self.assertEqual(spread([2, 4, 9]), 7)


if __name__ == "__main__":
    unittest.main()
"""


def test_command() -> str:
    """How this machine runs the project's tests."""
    python = "python3" if shutil.which("python3") else shlex.quote(sys.executable)
    return f"{python} -m unittest"


def make_project(folder: Path) -> None:
    folder.mkdir()
    (folder / SOURCE).write_text(_STATS, encoding="utf-8")
    (folder / "test_stats.py").write_text(_TEST, encoding="utf-8")
    (folder / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
