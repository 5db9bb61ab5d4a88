"""Tasks (prompt, tree, check), suites of them (a folder, or JSON lines as of SWE-bench), and results as JSON lines."""

import json
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
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
    prompt: str
    check: str  # The command that succeeds if the task is solved, carried out by bash in a world of the attempt's.
    deleted: tuple[str, ...] = ()  # Files of the start that the reference solution deletes.
    check_timeout_s: float = 60.0
    max_turns: int = 20
    max_tokens: int = 0
    wall_s: float = 900.0  # How long the model may work; 0 is no limit.
    mode: Mode = "auto-edit"  # It works in a world: irreversible changes are no concern.
    requires: tuple[str, ...] = ()  # Programs without which the task cannot be done here.
    tags: tuple[str, ...] = ()


class Task(TaskFile, frozen=True, kw_only=True):
    name: str
    start: Path | GitState  # The tree to begin with.
    check_files: Path | None = None  # Files that are laid over it before the check; the model never sees them.
    check_patch: str = ""  # The same as a patch.
    reference: Path | None = None  # Files that, laid over the start, solve the task.


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


def find_missing_programs(task: Task) -> list[str]:
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


def _from_json_lines(file: Path, repositories: Path | None) -> list[Task]:
    tasks = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            tasks += [_parse_instance(json.loads(line), repositories or file.parent)] if line.strip() else []
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInput(f"{file}, line {number}: no such instance can be read: {error!r}") from error
    return tasks


def _parse_instance(row: dict[str, Any], folder: Path) -> Task:
    """The fields are those of SWE-bench; without `test_command` the tests that must pass are given to pytest."""
    if not (check := str(row.get("test_command") or "")):
        tests = [*_parse_names(row, "FAIL_TO_PASS"), *_parse_names(row, "PASS_TO_PASS")]
        if not tests or not all("::" in test for test in tests):
            raise ValueError("it has no test_command, and its tests are none that pytest knows by these names")
        check = "python -m pytest -q " + " ".join(map(quote, tests))
    return Task(
        name=str(row["instance_id"]),
        prompt=str(row["problem_statement"]),
        check=check,
        start=GitState(_locate_repository(str(row["repo"]), folder), str(row["base_commit"])),
        check_patch=str(row.get("test_patch") or ""),
        check_timeout_s=float(row.get("test_timeout_s") or 600),
        max_turns=int(row.get("max_turns") or 60),
        wall_s=float(row.get("wall_s") or 3_600),
        requires=("git",),
        tags=("swe",),
    )


def _parse_names(row: dict[str, Any], field: str) -> list[str]:
    raw_names = row.get(field) or []
    return [str(name) for name in (json.loads(raw_names) if isinstance(raw_names, str) else raw_names)]


def _locate_repository(name: str, folder: Path) -> Path:
    for candidate in (name, name.replace("/", "__"), name.rpartition("/")[2]):
        for path in (folder / candidate, folder / f"{candidate}.git"):
            if (path / ".git").exists() or (path / "HEAD").is_file():
                return path
    raise ValueError(f"no repository {name} lies in {folder}")


RESULTS_FILE = "results.jsonl"
ERRORS = ("error", "failed")  # how attempts end that say nothing about the model


class Result(msgspec.Struct, frozen=True):
    task: str
    model: str
    attempt: int
    solved: bool
    ended: str  # How the run ended, in the word of `session.run_end`; `failed` if it could not be carried out at all.
    chat: str = ""
    world: str = ""  # Where what the model changed can be looked at.
    error: str = ""
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0
    wall_s: float = 0.0  # Seconds that the model's runs worked, without the time in which no worker drove them.
    tool_calls: int = 0
    tool_errors: int = 0  # Calls that failed, those that were rejected among them.
    repaired: int = 0  # Calls that were cut off or broken, and completed by guessing.
    rejected: int = 0
    """Calls that were not run because of how they were written: an unknown tool, arguments that do not fit."""
    approvals: int = 0  # How often a person would have been asked; here such a call is refused.
    check: str = ""  # The end of what the check wrote.
    date: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.task, self.model, self.attempt

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


def append(folder: Path, result: Result) -> None:
    """Durable when it returns. A line that a crash left half is ended first, and is no result."""
    descriptor = os.open(folder / RESULTS_FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, (b"\n" if torn else b"") + msgspec.json.encode(result) + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_results(place: Path) -> list[Result]:
    """The results in a file, or in the folder of an evaluation; of an attempt that stands there twice the last."""
    path = place / RESULTS_FILE if place.is_dir() else place
    if not path.exists():
        raise InvalidInput(f"there are no results in {place}")
    results_by_key: dict[tuple[str, str, int], Result] = {}
    for line in path.read_bytes().splitlines():
        with suppress(msgspec.MsgspecError):
            result = msgspec.json.decode(line, type=Result)
            results_by_key[result.key] = result
    return [result for _, result in sorted(results_by_key.items())]
