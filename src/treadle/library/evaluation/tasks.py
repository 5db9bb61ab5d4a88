"""Tasks (a prompt, the tree to begin with, and the check of its outcome) and suites of them: a folder of tasks, or
SWE-bench-style JSON lines with the repositories on disk."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec

from treadle.errors import InvalidInput
from treadle.protocol.options import Mode

FILE = "task.toml"


class GitState(msgspec.Struct, frozen=True):
    """A repository on disk at a commit. Only the tree is taken: later commits must not be found."""

    repository: Path
    commit: str


class TaskFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `task.toml`."""

    prompt: str
    check: str
    """The command that succeeds if the task is solved, carried out by bash in a world of the attempt's."""
    deleted: tuple[str, ...] = ()
    """Files of the start that the reference solution deletes."""
    check_timeout_s: float = 60.0
    max_turns: int = 20
    max_tokens: int = 0
    wall_s: float = 900.0
    """How long the model may work; 0 is no limit."""
    mode: Mode = "auto-edit"
    """The mode, which sets the actions that the model may take without asking. It works in a world, so that
    irreversible changes are no concern."""
    requires: tuple[str, ...] = ()
    """Programs without which the task cannot be done here."""
    tags: tuple[str, ...] = ()


class Task(TaskFile, frozen=True, kw_only=True):
    name: str
    start: Path | GitState
    """The tree to begin with."""
    check_files: Path | None = None
    """Files that are laid over it before the check; the model never sees them."""
    check_patch: str = ""
    """The same as a patch."""
    reference: Path | None = None
    """Files that, laid over the start, solve the task."""


def read_suite(place: Path, repositories: Path | None = None) -> list[Task]:
    """The tasks of a folder, of one task's folder, or of a file of JSON lines; InvalidInput says what is wrong."""
    if place.is_file():
        return _from_json_lines(place, repositories)
    if (place / FILE).is_file():
        return [_read_task(place)]
    if not place.is_dir():
        raise InvalidInput(f"there is no suite {place}; name a folder of tasks, or a file of JSON lines")
    tasks = [_read_task(file.parent) for file in sorted(place.glob(f"*/{FILE}"))]
    if not tasks:
        raise InvalidInput(f"there is no task in {place}: each is a folder with a {FILE}")
    return tasks


def select_tasks(tasks: Iterable[Task], names: Iterable[str]) -> list[Task]:
    """Those of these names or tags; all, if nothing is named."""
    tasks, selected_names = list(tasks), set(names)
    known_words = {word for task in tasks for word in (task.name, *task.tags)}
    if unknown := sorted(selected_names - known_words):
        raise InvalidInput(f"there is no task and no tag {', '.join(unknown)} in this suite")
    return [task for task in tasks if not selected_names or selected_names & {task.name, *task.tags}]


def missing(task: Task) -> list[str]:
    """The programs that the task needs and that are not here."""
    return [program for program in task.requires if shutil.which(program) is None]


def _read_task(folder: Path) -> Task:
    try:
        file = msgspec.toml.decode((folder / FILE).read_bytes(), type=TaskFile)
    except (msgspec.MsgspecError, ValueError, OSError) as error:
        raise InvalidInput(f"the task {folder / FILE} cannot be read: {error}") from error
    if not (folder / "start").is_dir():
        raise InvalidInput(f"the task {folder} has no folder `start` with the tree to begin with")
    check, reference = (path if path.is_dir() else None for path in (folder / "check", folder / "reference"))
    fields = msgspec.structs.asdict(file)
    return Task(name=folder.resolve().name, start=folder / "start", check_files=check, reference=reference, **fields)


# -- SWE-bench ------------------------------------------------------------------------------------------------------


def _from_json_lines(file: Path, repositories: Path | None) -> list[Task]:
    tasks = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            tasks += [_instance(json.loads(line), repositories or file.parent)] if line.strip() else []
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInput(f"{file}, line {number}: no such instance can be read: {error!r}") from error
    return tasks


def _instance(row: dict[str, Any], folder: Path) -> Task:
    """One instance. The fields are those of SWE-bench; `test_command` is what its harness knows by heart: without it
    the tests that must pass are given to pytest."""
    check = str(row.get("test_command") or "")
    if not check:
        tests = [*_names(row, "FAIL_TO_PASS"), *_names(row, "PASS_TO_PASS")]
        if not tests or not all("::" in test for test in tests):
            raise ValueError("it has no test_command, and its tests are none that pytest knows by these names")
        check = "python -m pytest -q " + " ".join(map(quote, tests))
    return Task(
        name=str(row["instance_id"]),
        prompt=str(row["problem_statement"]),
        check=check,
        start=GitState(_repository(str(row["repo"]), folder), str(row["base_commit"])),
        check_patch=str(row.get("test_patch") or ""),
        check_timeout_s=float(row.get("test_timeout_s") or 600),
        max_turns=int(row.get("max_turns") or 60),
        wall_s=float(row.get("wall_s") or 3_600),
        requires=("git",),
        tags=("swe",),
    )


def _names(row: dict[str, Any], field: str) -> list[str]:
    raw_names = row.get(field) or []
    return [str(name) for name in (json.loads(raw_names) if isinstance(raw_names, str) else raw_names)]


def _repository(name: str, folder: Path) -> Path:
    for candidate in (name, name.replace("/", "__"), name.rpartition("/")[2]):
        for path in (folder / candidate, folder / f"{candidate}.git"):
            if (path / ".git").exists() or (path / "HEAD").is_file():
                return path
    raise ValueError(f"no repository {name} lies in {folder}")
