"""The results of attempts, one line of JSON each, appended when they are known and never changed."""

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from treadle.errors import InvalidInput

FILE = "results.jsonl"
ERRORS = ("error", "failed")  # how attempts end that say nothing about the model


class Result(msgspec.Struct, frozen=True):
    task: str
    model: str
    attempt: int
    solved: bool
    ended: str
    """How the run ended, in the word of `session.run_end`; `failed` if it could not be carried out at all."""
    chat: str = ""
    world: str = ""
    """Where what the model changed can be looked at."""
    error: str = ""
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0
    wall_s: float = 0.0
    """Seconds that the model's runs worked, without the time in which no worker drove them."""
    tool_calls: int = 0
    tool_errors: int = 0
    """Calls that failed, those that were rejected among them."""
    repaired: int = 0
    """Calls that were cut off or broken, and completed by guessing."""
    rejected: int = 0
    """Calls that were not run because of how they were written: an unknown tool, arguments that do not fit."""
    approvals: int = 0
    """How often a person would have been asked; here such a call is refused."""
    check: str = ""
    """The end of what the check wrote."""
    date: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.task, self.model, self.attempt

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


def append(folder: Path, result: Result) -> None:
    """Durable when it returns. A line that a crash left half is ended first, and is no result."""
    path = folder / FILE
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, (b"\n" if torn else b"") + msgspec.json.encode(result) + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_results(place: Path) -> list[Result]:
    """The results in a file, or in the folder of an evaluation; of an attempt that stands there twice the last."""
    path = place / FILE if place.is_dir() else place
    if not path.exists():
        raise InvalidInput(f"there are no results in {place}")
    results_by_key: dict[tuple[str, str, int], Result] = {}
    for line in path.read_bytes().splitlines():
        with suppress(msgspec.MsgspecError):
            result = msgspec.json.decode(line, type=Result)
            results_by_key[result.key] = result
    return [result for _, result in sorted(results_by_key.items())]
