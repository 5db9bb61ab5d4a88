"""Attempts at tasks, several at once: each a chat in a world of its own over a tree that all attempts at its task share
(W-11), driven to its end, and the check, in a world of that world. Every step can be repeated, or finds what a killed
process did."""

import asyncio
import hashlib
import os
import shutil
import tarfile
from asyncio import to_thread
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from re import sub
from typing import NamedTuple

from msgspec.structs import replace

from treadle.adapters.sandbox.supervisor.removal import remove_tree
from treadle.base.file_locks import lock_file
from treadle.base.file_system import reach_faultpoint, replace_file
from treadle.base.inert import make_inert
from treadle.base.subprocesses import Launch, run_blocking
from treadle.base.types import CallKey, ChatId, make_id
from treadle.errors import InvalidInput, NotFound, Refused, ToolError, TreadleError
from treadle.library.agent import Agent
from treadle.library.chat import Chat
from treadle.library.evaluation.tasks import (
    ERRORS,
    RESULTS_FILE,
    GitState,
    Result,
    Task,
    append,
    find_missing_programs,
    read_results,
)
from treadle.library.worlds.record import World
from treadle.ports.toolset import Invocation
from treadle.protocol import events as e
from treadle.protocol.options import Budget, ChatOptions
from treadle.protocol.tools import COMMAND_TOOL, ToolSpec

PATCH = ".treadle-check.patch"
LABEL = "eval"
_STARTS = "starts"
_GIT_S = 300.0


async def open_place(agent: Agent, task: Task, folder: Path, name: str) -> World:
    """The world of an attempt, by its name: made once, and found again after a crash, even if the task has changed."""
    id = _make_world_id(folder, name)
    try:
        return await agent.worlds.get(id)
    except NotFound:
        start = await to_thread(prepare_start, task, folder)
        return await agent.worlds.open(start, label=f"{LABEL} {task.name}", id=id)


async def leave_place(agent: Agent, folder: Path, name: str) -> None:
    id = _make_world_id(folder, name)
    for world in reversed(await agent.worlds.list()):
        if id in (world.id, world.parent):
            await agent.worlds.drop(world.id)


@asynccontextmanager
async def open_check_world(agent: Agent, task: Task, world: World) -> AsyncIterator[World]:
    """A world of the attempt's with the files of the check. One that a killed process left may still be in use."""
    used_ids = {each.id for each in await agent.worlds.list()}
    number = next(number for number in count(1) if f"{world.id}-check{number}" not in used_ids)
    check_world = await agent.worlds.open(world.root, world.id, label=f"{LABEL} check", id=f"{world.id}-check{number}")
    try:
        await to_thread(_lay_check, agent, task, check_world)
        yield check_world
    finally:
        for each in await agent.worlds.list():
            if each.parent == world.id:
                with suppress(ToolError):  # something that the check left still runs there
                    await agent.worlds.drop(each.id)


def _lay_check(agent: Agent, task: Task, world: World) -> None:
    with agent.worlds.open_folder(world.id) as top:
        lay_over(task.check_files, Path(top))
        if task.check_patch:
            replace_file(f"{top}/{PATCH}", task.check_patch.encode(), mode=0o644)


def _make_world_id(folder: Path, name: str) -> str:
    return f"world_{hashlib.sha256(f'{folder}/{name}'.encode()).hexdigest()[:20]}"


def prepare_start(task: Task, folder: Path) -> Path:
    """The tree that attempts begin with, made once, named at its end; away from the check: commands could read it."""
    if isinstance(task.start, GitState):
        mark = task.start.commit
    else:  # changes whenever the start of the task does
        digest = hashlib.sha256()
        for path in sorted(task.start.rglob("*")):
            name, facts = path.relative_to(task.start), path.lstat()
            digest.update(f"{name} {facts.st_mode} {facts.st_size} {facts.st_mtime_ns}\n".encode())
        mark = digest.hexdigest()
    tree = folder / _STARTS / f"{make_file_name(task.name)}-{mark[:12]}"
    if not tree.exists():
        tree.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = tree.with_name(make_id(".new"))
        if isinstance(task.start, GitState):
            _export_tree(task.start, new)
        else:
            shutil.copytree(task.start, new, symlinks=True)
        try:
            os.rename(new, tree)
        except OSError:  # another attempt at it was faster
            remove_tree(str(new))
    return tree


def sweep_starts(folder: Path) -> None:
    """Remove what processes that were killed left half made."""
    for leftover in (folder / _STARTS).glob(".new*"):
        remove_tree(str(leftover)) if leftover.is_dir() else leftover.unlink()


def make_file_name(name: str) -> str:
    return sub(r"[^\w.-]+", "_", name).lstrip(".") or "_"


def lay_over(files: Path | None, target: Path) -> None:
    """Copy files over a tree. A link that the model left in the way is replaced, and not followed out of the tree."""
    if files is None:
        return
    for source in sorted(files.rglob("*")):
        path = target / source.relative_to(files)
        if path.is_symlink() or (path.exists() and path.is_dir() != source.is_dir()):
            path.unlink() if not path.is_dir() or path.is_symlink() else remove_tree(str(path))
        if source.is_dir():
            path.mkdir(exist_ok=True)
        else:
            shutil.copy2(source, path, follow_symlinks=False)


def _export_tree(state: GitState, target: Path) -> None:
    """The tree of a commit, in a repository of its own with one commit: git works there, and knows nothing else."""
    target.mkdir(parents=True)
    archive = target.with_name(f"{target.name}.tar").absolute()
    if error_text := _run_git(["archive", "--format=tar", f"--output={archive}", state.commit], state.repository):
        raise InvalidInput(f"{state.repository} has no commit {state.commit} to begin with: {error_text}")
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")
    archive.unlink()
    name = ["-c", "user.name=treadle", "-c", "user.email=treadle@localhost", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "-A", "-f"], [*name, "commit", "-q", "--allow-empty", "-m", "start"]):
        if error_text := _run_git(words, target):
            raise InvalidInput(f"git {' '.join(words)} failed in {target}: {error_text}")


_ALONE = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never")


def _run_git(words: list[str], cwd: Path) -> str:
    """Run git without any user's settings, hooks, helpers and fetches. Return its error text; empty on success."""
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_TERMINAL_PROMPT": "0"}
    env["GIT_NO_LAZY_FETCH"] = "1"
    output = bytearray()
    completed = run_blocking(Launch(["git", *_ALONE, *words], env, str(cwd)), output.extend, _GIT_S)
    if completed.ending == "exited" and completed.code == 0:
        return ""
    return (completed.errors or output.decode() or completed.ending).strip()


DIFF = "diff"  # The file with the changes of the model, for people.
SHOWN = 2_000  # characters of the end of a check's output are kept in its result


class Attempt(NamedTuple):
    task: Task
    model: str  # As it was named; `{task}` in it stands for the name of the task.
    number: int

    @property
    def key(self) -> tuple[str, str, int]:
        return self.task.name, self.model, self.number

    @property
    def folder(self) -> Path:
        """The folder of the attempt's files, relative to the folder of all attempts."""
        return Path(make_file_name(self.task.name), make_file_name(self.model), str(self.number))


async def carry_out(agent: Agent, attempt: Attempt, world: World, folder: Path, settings: ChatOptions) -> Result:
    """Drive the attempt to its end, from wherever it stands. `folder` is its own."""
    chat = await _open_chat(agent, attempt, world, folder, settings)
    reach_faultpoint("evaluation.chat_made")
    is_prompted = any(isinstance(envelope.data, e.UserMessage) for envelope in await chat.events())
    waits = False  # True if the chat waits for a person, who is not there
    async for envelope in chat.resume() if is_prompted else chat.send(attempt.task.prompt):
        waits = isinstance(envelope.data, e.ActionRequired)
    reach_faultpoint("evaluation.chat_ended")
    state = await chat.state()
    replace_file(str(folder / DIFF), f"{await agent.worlds.diff(world.id)}\n".encode())
    async with open_check_world(agent, attempt.task, world) as inner:
        solved, check_output = await _run_check(agent, attempt.task, inner, chat.id, state.options)
    failure, totals, events = state.last_error, state.totals, await chat.events()
    has_answer = any(isinstance(envelope.data, e.AssistantMessage) for envelope in events)
    return Result(
        *attempt.key,
        solved=solved and has_answer,  # a check that passes without any answer says nothing about the model
        ended="action_required" if waits else state.last_end or "done",
        chat=chat.id,
        world=world.id,
        error=make_inert(str(failure.message)) if failure is not None and state.last_end == "error" else "",
        check=make_inert(check_output)[-SHOWN:],
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        turns=totals.turns,
        input_tokens=totals.usage.input,
        output_tokens=totals.usage.output,
        usd=round(totals.usage.usd, 6),
        wall_s=round(totals.wall_ms / 1000, 3),
        tool_calls=totals.tool_calls,
        **count_calls(events),  # type: ignore[arg-type]
    )


def count_calls(events: Iterable[e.Envelope]) -> dict[str, int]:
    counters = {"tool_errors": 0, "repaired": 0, "rejected": 0, "approvals": 0}
    has_arguments: dict[str, bool] = {}
    for envelope in events:
        match envelope.data:
            case e.AssistantMessage(tool_requests=requests):
                counters["repaired"] += sum(request.repaired for request in requests)
            case e.ExecutionStart(call=call, arguments=arguments):
                has_arguments[call] = bool(arguments)
            case e.ExecutionComplete(call=call, success=False):
                counters["tool_errors"] += 1
                counters["rejected"] += not has_arguments.get(call, False)  # arguments that do not fit are not recorded
            case e.PermissionRequested() | e.PermissionCompleted(by="policy", auto_approved=False):  # or discarded
                counters["approvals"] += 1
    return counters


async def _open_chat(agent: Agent, attempt: Attempt, world: World, folder: Path, settings: ChatOptions) -> Chat:
    """The chat of the attempt, which is written down before anything is said in it."""
    if chat_id := read_note(note := folder / "chat"):
        return agent.chat(chat_id)
    # The instructions of folders above the tree are none of the task's.
    task = attempt.task
    options = replace(
        settings,
        model=attempt.model.replace("{task}", task.name),
        root=world.root,
        world=world.id,
        mode=task.mode,
        interactive=False,
        max_turns=task.max_turns,
        run_budget=Budget(tokens=task.max_tokens, wall_s=task.wall_s, usd=settings.run_budget.usd),
        labels=(*settings.labels, "eval"),
    )
    chat = await agent.chat(options=agent.prepare(options, highest=world.root).options)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    replace_file(str(note), chat.id.encode(), sync=True)
    return chat


def read_note(note: Path) -> str:
    return note.read_text() if note.exists() else ""


async def _run_check(agent: Agent, task: Task, world: World, chat: ChatId, options: ChatOptions) -> tuple[bool, str]:
    """True if the task is solved, and the output of the check. It runs like a command of the model, without network."""
    if (tool := agent.deps.tools.find(COMMAND_TOOL, ChatOptions())) is None or isinstance(tool, ToolSpec):
        return False, "no commands can be run here"
    place = ChatOptions(root=world.root, root_id=world.root_id, world=world.id)
    check_options = replace(place, sandbox=options.sandbox, mode="autopilot")
    command = task.check
    if task.check_patch:
        # The patch is applied by the confined command itself: git reads the settings of the repository, and the model
        # may have written those.
        command = f"git apply {PATCH} && {{ {task.check}\n}}"
    arguments = {"command": command, "timeout_s": min(600.0, task.check_timeout_s), "fresh": True}
    key = CallKey(f"eval-{world.id.rpartition('-')[2]}")
    call = Invocation(chat, key, COMMAND_TOOL, arguments, options=check_options, by_person=True)
    try:
        outcome = await tool.run(replace(call, plan=await tool.prepare(call)))
    except TreadleError as error:
        return False, str(error)
    return outcome.success, outcome.text


STORE = Path("store", "chats.db")
"""Where in the folder of an evaluation its chats are kept, and their worlds: no command sees those."""


class Plan(NamedTuple):
    models: tuple[str, ...]
    attempts: int = 1
    jobs: int = 1
    settings: ChatOptions = ChatOptions()
    retry_errors: bool = False  # True if attempts that ended in an error are made again, from the beginning.


def plan_attempts(tasks: Sequence[Task], plan: Plan) -> list[Attempt]:
    """In rounds: when it is stopped early, every task and model has had as many attempts."""
    able = [task for task in tasks if not find_missing_programs(task)]
    return [Attempt(task, model, n) for n in range(1, plan.attempts + 1) for task in able for model in plan.models]


def find_open_attempts(tasks: Sequence[Task], plan: Plan, folder: Path) -> dict[Attempt, str]:
    """Return the attempts to make, with the failed chat of an attempt that is repeated; otherwise empty."""
    results = {result.key: result for result in _read_existing_results(folder)}
    failed = {key: result.chat for key, result in results.items() if plan.retry_errors and result.ended in ERRORS}
    good_keys = results.keys() - failed
    return {each: failed.get(each.key, "") for each in plan_attempts(tasks, plan) if each.key not in good_keys}


async def evaluate(
    agent: Agent, tasks: Sequence[Task], plan: Plan, folder: Path, on_result: Callable[[Result], None] = lambda _: None
) -> list[Result]:
    """Carry out what is not done; the results of all attempts. `on_result` gets new ones. `folder` is absolute."""
    free = asyncio.Semaphore(max(1, plan.jobs))

    async def make_attempt(attempt: Attempt, failed: str) -> None:
        async with free:
            name = str(attempt.folder)
            attempt_folder = folder / "attempts" / name
            try:
                # As long as the note with the name of its chat exists, the failed attempt has not been left.
                if failed and read_note(note := attempt_folder / "chat") == failed:
                    await leave_place(agent, folder, name)
                    note.unlink()
                world = await open_place(agent, attempt.task, folder, name)
                result = await carry_out(agent, attempt, world, attempt_folder, plan.settings)
            except TreadleError as error:
                result = Result(*attempt.key, solved=False, ended="failed", error=str(error))
            reach_faultpoint("evaluation.result_known")
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
            for attempt, failed in find_open_attempts(tasks, plan, folder).items():
                group.create_task(make_attempt(attempt, failed))
    keys = {attempt.key for attempt in plan_attempts(tasks, plan)}
    return [result for result in _read_existing_results(folder) if result.key in keys]


def _read_existing_results(folder: Path) -> list[Result]:
    return read_results(folder) if (folder / RESULTS_FILE).exists() else []
