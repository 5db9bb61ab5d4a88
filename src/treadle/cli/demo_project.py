"""What the demo works on: a small project with a failing test, and the script that stands in for a model. The fix
would do harm if it were made twice: `total / n / n` is no mean."""

import shlex
import shutil
import sys
from pathlib import Path

TASK = "A test fails. Find out why and fix it."
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

_SCRIPT = """# The whole "model" of the demo: what it says and calls, turn by turn.
[model]
chunk = 5
delay_s = DELAY

[[turn]]
wait_s = WAIT
text = "I'll run the tests to see what fails."
call = [{ name = "run_command", args = { command = COMMAND } }]

[[turn]]
wait_s = WAIT
text = "The mean of 2, 4 and 9 should be 5, and it is 15. Let me read the code and its test."
call = [
  { name = "read_file", args = { path = "stats.py" } },
  { name = "read_file", args = { path = "test_stats.py" } },
]

[[turn]]
wait_s = WAIT
text = "The sum is never divided by the number of values. I'll fix that."
call = [
  { name = "edit_file", args = { path = "stats.py", old_str = "return total", new_str = FIXED } },
]

[[turn]]
wait_s = WAIT
text = "Now the tests again."
call = [{ name = "run_command", args = { command = COMMAND } }]

[[turn]]
wait_s = WAIT
call = [
  { name = "task_complete", args = { summary = "mean() now divides by the number of values; all tests pass." } },
]
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


def make_script(path: Path, *, watched: bool) -> None:
    """Write the script; it speaks as slowly as a model only if someone watches."""
    command = test_command().replace("\\", "\\\\").replace('"', '\\"')
    filled = {
        "COMMAND": f'"{command}"',
        "FIXED": f'"{RIGHT.strip()}"',
        "DELAY": "0.02" if watched else "0.0",
        "WAIT": "0.4" if watched else "0.0",
    }
    text = _SCRIPT
    for name, value in filled.items():
        text = text.replace(name, value)
    path.write_text(text, encoding="utf-8")
