"""Runs all attempts of an evaluation, several at once. Finished attempts are not repeated, interrupted ones are
resumed."""

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from treadle.base.faultpoint import faultpoint
from treadle.errors import Refused, TreadleError
from treadle.library.agent import Agent
from treadle.library.evaluation.attempts import Attempt, carry_out, noted
from treadle.library.evaluation.places import leave_place, open_place, sweep_starts
from treadle.library.evaluation.results import ERRORS, FILE, Result, append, read_results
from treadle.library.evaluation.suites import missing
from treadle.library.evaluation.tasks import Task
from treadle.protocol.options import ChatOptions

STORE = Path("store", "chats.db")
"""Where in the folder of an evaluation its chats are kept, and their worlds: no command sees those."""


class Plan(NamedTuple):
    models: tuple[str, ...]
    attempts: int = 1
    jobs: int = 1
    settings: ChatOptions = ChatOptions()
    retry_errors: bool = False
    """True if attempts that ended in an error are made again, from the beginning."""


def planned(tasks: Sequence[Task], plan: Plan) -> list[Attempt]:
    """In rounds: when it is stopped early, every task and model has had as many attempts."""
    able = [task for task in tasks if not missing(task)]
    return [
        Attempt(task, model, number) for number in range(1, plan.attempts + 1) for task in able for model in plan.models
    ]


def waiting(tasks: Sequence[Task], plan: Plan, folder: Path) -> dict[Attempt, str]:
    """Return the attempts to make, with the failed chat of an attempt that is repeated; otherwise empty."""
    results = {result.key: result for result in _read_existing_results(folder)}
    failed = {key: result.chat for key, result in results.items() if plan.retry_errors and result.ended in ERRORS}
    return {each: failed.get(each.key, "") for each in planned(tasks, plan) if each.key not in results.keys() - failed}


async def evaluate(
    agent: Agent,
    tasks: Sequence[Task],
    plan: Plan,
    folder: Path,
    on_result: Callable[[Result], None] = lambda _result: None,
) -> list[Result]:
    """Carry out what is not done yet; the results of all attempts of the plan. `told` hears of each that is new.
    `folder` is an absolute path."""
    free = asyncio.Semaphore(max(1, plan.jobs))

    async def work(attempt: Attempt, failed: str) -> None:
        async with free:
            result = await _one(agent, attempt, folder, plan.settings, failed)
            faultpoint("evaluation.result_known")
            append(folder, result)
            on_result(result)

    with _alone(folder):
        sweep_starts(folder)
        async with asyncio.TaskGroup() as group:
            for attempt, failed in waiting(tasks, plan, folder).items():
                group.create_task(work(attempt, failed))
    keys = {attempt.key for attempt in planned(tasks, plan)}
    return [result for result in _read_existing_results(folder) if result.key in keys]


async def _one(agent: Agent, attempt: Attempt, folder: Path, settings: ChatOptions, failed: str) -> Result:
    name = str(attempt.folder)
    attempt_folder = folder / "attempts" / name
    try:
        if failed:
            await _leave(agent, folder, name, attempt_folder / "chat", failed)
        world = await open_place(agent, attempt.task, folder, name)
        return await carry_out(agent, attempt, world, attempt_folder, settings)
    except TreadleError as error:
        return Result(*attempt.key, solved=False, ended="failed", error=str(error))


async def _leave(agent: Agent, folder: Path, name: str, note: Path, failed: str) -> None:
    """Remove the files of a failed attempt, the note with its chat's name last: as long as the note exists, the new
    attempt has not begun."""
    if noted(note) == failed:
        await leave_place(agent, folder, name)
        os.unlink(note)


def _read_existing_results(folder: Path) -> list[Result]:
    return read_results(folder) if (folder / FILE).exists() else []


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Of one folder one process at a time is in charge; the system lets go of it when the process dies."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise Refused("busy", f"another evaluation works in {folder}; wait for it, or name another folder") from error
    try:
        yield
    finally:
        os.close(descriptor)
