"""All attempts of an evaluation, several at once. What is done is not done again, what was under way is resumed."""

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from treadle.errors import Refused, TreadleError
from treadle.evaluation.attempts import Attempt, carry_out
from treadle.evaluation.places import open_place
from treadle.evaluation.results import ERRORS, FILE, Result, append, read_results
from treadle.evaluation.suites import missing
from treadle.evaluation.tasks import Task
from treadle.faultpoint import faultpoint
from treadle.protocol.options import ChatOptions
from treadle.runtime import Agent
from treadle.sandbox.supervisor.removal import remove_tree

STORE = Path("store", "chats.db")
"""Where in the folder of an evaluation its chats are kept: beside the trees, so that no command sees them."""


class Plan(NamedTuple):
    models: tuple[str, ...]
    attempts: int = 1
    jobs: int = 1
    settings: ChatOptions = ChatOptions()
    retry_errors: bool = False
    """Whether attempts that ended in an error are made again, from the beginning."""


def planned(tasks: Sequence[Task], plan: Plan) -> list[Attempt]:
    """In rounds: when it is stopped early, every task and model has had as many attempts."""
    able = [task for task in tasks if not missing(task)]
    return [
        Attempt(task, model, number) for number in range(1, plan.attempts + 1) for task in able for model in plan.models
    ]


async def evaluate(
    agent: Agent, tasks: Sequence[Task], plan: Plan, folder: Path, told: Callable[[Result], None] = lambda _result: None
) -> list[Result]:
    """Carry out what is not done yet; the results of all attempts of the plan. `told` hears of each that is new.
    `folder` is an absolute path."""
    wanted = planned(tasks, plan)
    with _alone(folder):
        failed = {result.key for result in _known(folder) if plan.retry_errors and result.ended in ERRORS}
        done = {result.key for result in _known(folder)} - failed
        free = asyncio.Semaphore(max(1, plan.jobs))

        async def work(attempt: Attempt) -> None:
            async with free:
                if attempt.key in failed:
                    _begin_anew(folder, attempt)
                result = await _one(agent, attempt, folder, plan.settings)
                faultpoint("evaluation.result_known")
                append(folder, result)
                told(result)

        async with asyncio.TaskGroup() as group:
            for attempt in wanted:
                if attempt.key not in done:
                    group.create_task(work(attempt))
    keys = {attempt.key for attempt in wanted}
    return [result for result in _known(folder) if result.key in keys]


def _begin_anew(folder: Path, attempt: Attempt) -> None:
    """Leave nothing of an attempt but its chat; the name of that goes first, so that a crash leaves no half."""
    own = folder / "attempts" / attempt.folder
    if own.exists():
        (own / "chat").unlink(missing_ok=True)
        remove_tree(str(own))


def _known(folder: Path) -> list[Result]:
    return read_results(folder) if (folder / FILE).exists() else []


async def _one(agent: Agent, attempt: Attempt, folder: Path, settings: ChatOptions) -> Result:
    own = folder / "attempts" / attempt.folder
    try:
        place = await asyncio.to_thread(open_place, attempt.task, own)
        return await carry_out(agent, attempt, place, own, settings)
    except TreadleError as error:
        return Result(*attempt.key, solved=False, ended="failed", error=str(error))


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
