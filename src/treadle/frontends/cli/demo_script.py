"""The script of the model of `treadle web --demo`: a repair that shows an answer in Markdown, a plan, tools, an
approval and a question. Every chat plays it from the beginning."""

import json
from pathlib import Path

from treadle.frontends.cli.demo_project import RIGHT, test_command

MORE = 12
"""How often it answers when its play is over."""

_SCRIPT = r'''
[model]
chunk = 6
delay_s = 0.02

[[turn]]
think = "The user wants the failing test repaired. I should look before I touch anything: run the tests, read the code."
text = """
I'll find out what fails first. My plan:

1. run the tests,
2. read the code and its test,
3. repair it and **run the tests again**.
"""
call = [
  { name = "update_plan", args = { steps = [
    { text = "Run the tests", status = "in_progress" },
    { text = "Read the code", status = "pending" },
    { text = "Repair it and run the tests again", status = "pending" },
  ] } },
  { name = "run_command", args = { command = COMMAND } },
]

[[turn]]
wait_s = 0.3
text = "The mean of 2, 4 and 9 should be 5, and it is 15. Let me read the code and its test."
call = [
  { name = "read_file", args = { path = "stats.py" } },
  { name = "read_file", args = { path = "test_stats.py" } },
  { name = "grep_search", args = { pattern = "mean" } },
]

[[turn]]
wait_s = 0.3
text = "The sum is never divided by the number of values."
call = [
  { name = "ask_user", args = { question = "An empty list has no mean. What should mean([]) do?", options = [
    "raise an error",
    "return 0",
  ] } },
]

[[turn]]
wait_s = 0.3
text = """
Good. This is the repair:

```python
def mean(numbers):
    total = sum(numbers)
    return total / len(numbers)
```
"""
call = [
  { name = "edit_file", args = { path = "stats.py", old_str = "    return total\n", new_str = FIXED } },
  { name = "write_file", args = { path = "NOTES.md", content = "# Notes\n\n- `mean([])` raises an error.\n" } },
  { name = "write_file", args = { path = ".github/workflows/tests.yml", content = """
on: push
jobs:
  tests:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - run: python3 -m unittest
""" } },
]

[[turn]]
wait_s = 0.3
text = "Now the tests again."
call = [
  { name = "run_command", args = { command = COMMAND } },
  { name = "update_plan", args = { steps = [
    { text = "Run the tests", status = "done" },
    { text = "Read the code", status = "done" },
    { text = "Repair it and run the tests again", status = "done" },
  ] } },
]

[[turn]]
wait_s = 0.3
text = """
## Done

`mean` now divides by the number of values, and both tests pass.

| function | before | after |
|---|---|---|
| `mean([2, 4, 9])` | 15 | 5 |
| `spread([2, 4, 9])` | 7 | 7 |

Each change can be kept or undone by itself.
"""
'''

_AGAIN = '''
[[turn]]
text = """
I am a script, and my play is over: begin a new chat to see it again. With a key of a provider, or a model on this
machine, a real one answers here; see `treadle models`.
"""
'''


def write_script(path: Path) -> None:
    text = _SCRIPT.replace("COMMAND", json.dumps(test_command())).replace("FIXED", json.dumps(RIGHT))
    path.write_text(text + _AGAIN * MORE, encoding="utf-8")
