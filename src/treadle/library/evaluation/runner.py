"""Runs all attempts of an evaluation, several at once. Finished attempts are not repeated, interrupted ones are
resumed."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from treadle.base.file_locks import lock_file
from treadle.base.file_system import faultpoint
from treadle.errors import Refused, TreadleError
from treadle.library.agent import Agent
from treadle.library.evaluation.attempts import Attempt, carry_out, noted
from treadle.library.evaluation.places import leave_place, open_place, sweep_starts
from treadle.library.evaluation.results import ERRORS, FILE, Result, append, read_results
from treadle.library.evaluation.tasks import Task, missing
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
    """Carry out what is not done yet; the results of all attempts of the plan. `on_result` hears of each that is new.
    `folder` is an absolute path."""
    free = asyncio.Semaphore(max(1, plan.jobs))

    async def work(attempt: Attempt, failed: str) -> None:
        async with free:
            name = str(attempt.folder)
            attempt_folder = folder / "attempts" / name
            try:
                # As long as the note with the name of its chat exists, the failed attempt has not been left.
                if failed and noted(note := attempt_folder / "chat") == failed:
                    await leave_place(agent, folder, name)
                    note.unlink()
                world = await open_place(agent, attempt.task, folder, name)
                result = await carry_out(agent, attempt, world, attempt_folder, plan.settings)
            except TreadleError as error:
                result = Result(*attempt.key, solved=False, ended="failed", error=str(error))
            faultpoint("evaluation.result_known")
            append(folder, result)
            on_result(result)

    os.makedirs(folder, exist_ok=True)
    with ExitStack() as stack:
        try:  # one process at a time is in charge of a folder
            stack.enter_context(lock_file(str(folder / "lock"), 0.0))
        except TimeoutError as error:
            text = f"another evaluation works in {folder}; wait for it, or name another folder"
            raise Refused("busy", text) from error
        sweep_starts(folder)
        async with asyncio.TaskGroup() as group:
            for attempt, failed in waiting(tasks, plan, folder).items():
                group.create_task(work(attempt, failed))
    keys = {attempt.key for attempt in planned(tasks, plan)}
    return [result for result in _read_existing_results(folder) if result.key in keys]


def _read_existing_results(folder: Path) -> list[Result]:
    return read_results(folder) if (folder / FILE).exists() else []
