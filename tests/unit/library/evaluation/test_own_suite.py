"""The suite that comes with Treadle: every check fails for the tree as it is, and passes with the reference."""

import shutil
import subprocess
from pathlib import Path

import pytest

from treadle.chat.intent import is_change_request
from treadle.library.evaluation.attempts import lay_over
from treadle.library.evaluation.tasks import Task, find_missing_programs, read_suite

SUITE = Path(__file__).parents[4] / "evals"
TASKS = read_suite(SUITE)


def passes(task: Task, tree: Path) -> bool:
    lay_over(task.check_files, tree)
    return subprocess.run(["bash", "-c", task.check], cwd=tree, capture_output=True, timeout=60).returncode == 0


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_only_a_solution_passes(task: Task, tmp_path: Path) -> None:
    if lacking := find_missing_programs(task):
        pytest.skip(f"{', '.join(lacking)} is not here")
    assert is_change_request(task.prompt), "else a run that changes nothing would be taken for done (L-16)"
    assert isinstance(task.start, Path)
    assert task.reference is not None
    untouched, solved = tmp_path / "untouched", tmp_path / "solved"
    for tree in (untouched, solved):
        shutil.copytree(task.start, tree)
    assert not passes(task, untouched)
    lay_over(task.reference, solved)
    for path in task.deleted:
        (solved / path).unlink()
    assert passes(task, solved)


def test_the_suite_is_varied() -> None:
    tags = {tag for task in TASKS for tag in task.tags}
    assert len(TASKS) >= 24
    assert {"python", "javascript", "shell", "text"} <= tags
    assert {"fix", "feature", "refactor", "tests", "command", "instructions", "safety", "recovery"} <= tags
    assert {"large", "long", "language"} <= tags
