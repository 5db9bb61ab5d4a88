"""The one way for commands: check → record in one commit → save the rule, end an archived chat's jobs → work."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.adapters.models.base import check_effort
from treadle.base.types import ChatId
from treadle.chat.state import ChatState, build_summary
from treadle.engine.deps import Deps
from treadle.engine.log import Answer
from treadle.engine.worker import Worker
from treadle.errors import ConfigError, Refused
from treadle.library.jobs import JobRegistry
from treadle.protocol import commands as c
from treadle.protocol.options import ChatOptions
from treadle.protocol.permissions import BEYOND, Rule
from treadle.protocol.views import ChildView

if TYPE_CHECKING:
    from treadle.protocol.http_answers import ModelView

RUNS = (c.Send, c.SubmitResults, c.Decide, c.Answer, c.Edit, c.Promote, c.ExtendTurns, c.Apply)
"""Commands after which calls of tools are judged by the user's rules."""
WORKS = (*RUNS, c.Rewind, c.Restore)
"""Commands after which a worker changes the project of the chat; the last two only put files back."""


class ChatHome(msgspec.Struct, frozen=True):
    deps: Deps
    worker: Worker
    jobs: JobRegistry
    remember: Callable[[Rule], object]  # Stores a rule whose scope is larger than its chat.
    check: Callable[[], None]
    """Raises ConfigError if a file that holds permissions is damaged. No run begins until the file is repaired."""
    chat: Callable[..., Any]  # `Agent.chat`: a handle that changes options of its chat when it is opened.
    delete: Callable[[str], Coroutine[Any, Any, None]]
    children: Callable[[ChatId], Coroutine[Any, Any, list[ChildView]]]
    models: "Callable[[], Coroutine[Any, Any, list[ModelView]]]"
    claim_world: Callable[[ChatOptions], Awaitable[None]]  # Called when a chat with these options is recorded.


def check_rules(home: ChatHome, commands: Sequence[c.Command]) -> None:
    """ConfigError if the commands begin a run, or go on with one, that the user's rules cannot judge."""
    if any(isinstance(command, RUNS) for command in commands):
        home.check()


async def execute_commands(
    home: ChatHome,
    chat: ChatId,
    commands: Sequence[c.Command],
    *,
    prepare: Callable[[], Awaitable[object]] | None = None,
    on_state: Callable[[ChatState], None] | None = None,
    answer: Answer | None = None,
    work: bool = True,
) -> ChatState:
    """Record the commands as one; a refusal changes nothing. `prepare` runs after the rules are checked, `on_state`
    gets the state that the commands meet, `answer` is remembered in the same commit. ConfigError: no run can be judged
    by the user's rules, and nothing is recorded; or a rule could not be saved, and everything else is done."""
    check_rules(home, commands)
    if prepare is not None:
        await prepare()
    for command in commands:
        changes = command.changes if isinstance(command, c.ChangeOptions) else {}
        if (effort := changes.get("reasoning_effort")) and not changes.get("agent"):  # M-16; an agent's is only a wish
            model = changes.get("model") or (await home.deps.log.load(chat)).options.model
            check_effort(home.deps.models, str(model), str(effort))
    decision = next((command for command in commands if isinstance(command, c.Decide)), None)
    rule = decision.rule if decision is not None else None
    state: ChatState | None = None
    try:
        with home.worker.open_take(chat) if work else nullcontext() as take:
            try:
                state = await home.deps.log.execute(chat, commands, on_state, take, answer)
            except Refused as refusal:
                if decision is None or refusal.reason != "no_such_action":
                    raise
                if (rule := await _find_recorded_rule(home, chat, decision)) is None:
                    raise
                state = await home.deps.log.load(chat)
                if on_state is not None:
                    on_state(state)
            if rule is not None:  # inside the block: the next calls of the chat are judged by it
                await save_rule(home, rule, state)
        await end_jobs(home, state)
    finally:  # the commands are recorded: the chat goes on even if the rule cannot be saved
        if work and state is not None:
            go_on(home, state)
    return state


def go_on(home: ChatHome, state: ChatState) -> None:
    if build_summary(state).runnable:
        home.worker.start(state.chat)


async def end_jobs(home: ChatHome, state: ChatState) -> None:
    """End the jobs of an archived chat that run in this home. Each other home ends its own."""
    if state.options.archived and state.jobs:
        await home.jobs.stop_all(state.chat, "archive")


async def save_rule(home: ChatHome, rule: Rule, state: ChatState) -> None:
    """A rule that reaches beyond the chat is saved outside its log, after the answer that made it was recorded."""
    if rule.scope not in BEYOND:
        return
    rule = msgspec.structs.replace(rule, root=state.options.root if rule.scope == "project" else "")
    try:
        await asyncio.to_thread(home.remember, rule)
    except ConfigError as error:
        raise ConfigError(
            f"the approval or refusal is recorded, but its rule was not saved: {error}; give the same answer with "
            "the same rule again, or add the rule with: treadle rules add"
        ) from error


async def _find_recorded_rule(home: ChatHome, chat: ChatId, command: c.Decide) -> Rule | None:
    """The rule of the recorded answer that this command repeats; None if it repeats none that made such a rule."""
    if command.rule is None:
        return None
    answer = await home.deps.log.find_recorded_answer(chat, command.action)
    if answer is None or answer.rule is None or answer.decision != command.decision:
        return None
    expected = msgspec.structs.replace(
        command.rule, id=answer.rule.id, created_ms=answer.rule.created_ms, expires_ms=answer.rule.expires_ms
    )
    return answer.rule if answer.rule == expected and answer.rule.scope in BEYOND else None
