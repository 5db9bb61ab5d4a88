"""The chats that one call begins: begun once, followed until they rest, ended with the call; and the tree
of chats below a chat, each with its state and its cost."""

import asyncio
import hashlib
from base64 import b32encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from treadle.adapters.tools.builtin.base import run_to_end
from treadle.base.file_system import reach_faultpoint
from treadle.base.inert import make_inert_line
from treadle.base.types import CallKey, ChatId
from treadle.chat.state import ChatState, compute_status, list_open_actions
from treadle.engine.deps import Deps
from treadle.engine.effects import stream_events
from treadle.engine.worker import Worker
from treadle.errors import ChatExists, NotFound, Refused, ToolError
from treadle.library.chat import Chat, Prepared
from treadle.library.worlds.worlds import Worlds
from treadle.ports.snapshots import Effect
from treadle.ports.toolset import Invocation
from treadle.protocol.commands import Rename, Send
from treadle.protocol.content import Failure
from treadle.protocol.events import Event, ExecutionStart, SessionCreated, SubagentCompleted
from treadle.protocol.options import Budget, ChatOptions, Project
from treadle.protocol.subagent_events import Child, decode_children, make_world_name
from treadle.protocol.views import ChildView, get_shown_status

if TYPE_CHECKING:
    from treadle.library.skills.reading import CustomAgent

WATCH_S = 5.0
BY = "parent"  # The name recorded for interrupts of the children of a stopped call.


class Home(Protocol):
    """Of an Agent, what its sub-agents need."""

    deps: Deps
    worker: Worker

    @property
    def worlds(self) -> Worlds: ...

    def chat(self, id: str) -> Chat: ...

    def prepare(self, options: ChatOptions, highest: str, owner: str) -> Prepared: ...

    def custom_agents(self, project: Project, *, include_own: bool) -> "Mapping[str, CustomAgent]": ...


class ChildResult(msgspec.Struct, frozen=True):
    """A child that is done, and what it did."""

    child: Child
    state: ChatState
    effect: Effect = Effect(())
    has_passed: bool | None = None
    committed: bool = False
    merged: tuple[str, ...] = ()  # Paths that both the child and others had changed.
    problem: str = ""  # Why it could not be begun, or why its changes could not be committed.
    ended_ms: int = 0  # Of an attempt of a race.

    @property
    def number(self) -> int:
        return self.child.number

    @property
    def size(self) -> tuple[int, int]:
        """How much it changed: lines, then files."""
        files = self.effect.files
        return sum(each.added + each.removed for each in files), len(files)

    @property
    def ended_well(self) -> bool:
        return self.state.last_end in ("done", "task_complete")

    def make_fact(self, call: CallKey) -> SubagentCompleted:
        totals, files = self.state.totals, self.effect.files
        return SubagentCompleted(
            call, self.child.chat, self.child.number, self.child.title, self.child.model,
            self.state.last_end or "done", totals.usage, totals.turns, totals.tool_calls, self.child.world,
            len(files), sum(each.added for each in files), sum(each.removed for each in files), self.has_passed,
            self.committed,
        )  # fmt: skip


def make_failure(child: Child, error: ToolError) -> ChildResult:
    """A child of which nothing is there: its call reports it like one that failed at once."""
    state = ChatState(chat=child.chat, last_end="error", last_error=Failure(error.code, str(error)))
    return ChildResult(child, state, problem=str(error))


def make_child(invocation: Invocation, number: int, title: str, model: str, *, world: bool) -> Child:
    digest = hashlib.sha256(f"{invocation.chat}/{invocation.call}/{number}".encode()).digest()[:10]
    chat = ChatId(f"c_{b32encode(digest).decode().lower()}")
    return Child(chat, number, make_inert_line(title, 80), model, make_world_name(chat) if world else "")


class Children:
    """The chats of one call."""

    def __init__(self, home: Home, invocation: Invocation) -> None:
        self._home, self._invocation = home, invocation

    async def begin(self, child: Child, task: str, options: ChatOptions) -> Chat:
        """The child with its task, made at first and found again later. Its world is there before it is."""
        log, call = self._home.deps.log, self._invocation
        if not await self._is_there(child.chat):
            owner = (await log.load(call.chat)).owner
            beneath = call.options.world
            if child.world:
                await self._home.worlds.open(call.root, beneath, owner=owner, label=child.title, id=child.world)
            reach_faultpoint("subagents.world_made")
            highest = call.root if owner else ""  # as for any chat of others
            ready = self._home.prepare(replace(options, world=child.world or beneath), highest, owner)
            created = SessionCreated(ready.options, owner, parent=f"{call.chat}/{call.call}")
            rename_commands = (Rename(child.title, by=BY),) if child.title else ()
            with suppress(ChatExists):
                await log.create(child.chat, created, *ready.notices, first=(*rename_commands, Send(task)))
            reach_faultpoint("subagents.begun")
        return self._home.chat(child.chat)

    async def _is_there(self, chat: ChatId) -> bool:
        with suppress(NotFound):
            return await self._home.deps.store.read_head(chat) > 0
        return False

    async def wait_for_child(self, child: Child, chat: Chat) -> ChatState:
        """Follow a child until it rests, also while it waits for answers; its worker may be on another machine."""
        reported_waits = ""
        while True:
            async for envelope in chat.resume():
                if isinstance(start := envelope.data, ExecutionStart):
                    self.tell(child, f"{start.name} {start.args_summary}")
            state = await chat.state()
            if compute_status(state) in ("idle", "error"):
                self.tell(child, f"{state.last_end or 'done'}")
                return state
            waits = ", ".join(action.name or action.kind for action in list_open_actions(state))
            if waits and waits != reported_waits:
                reported_waits = waits
                self.tell(child, f"waits for an answer: {waits} · treadle show {child.chat}")
            while await chat.wait(state.head, WATCH_S) == state.head:
                pass

    def tell(self, child: Child, line: str) -> None:
        self._invocation.emit(make_inert_line(f"[{child.number}] {line}", 200) + "\n")

    async def compute_effect(self, child: Child) -> Effect:
        return await self._home.worlds.effect(child.world) if child.world else Effect(())

    async def commit(self, child: Child) -> Effect:
        """Make what it changed the parent's own, once."""
        reach_faultpoint("subagents.before_commit")
        return await run_to_end(self._home.worlds.bring_in(self._make_name(child), child.world))

    async def merge(self, child: Child) -> tuple[Effect, tuple[str, ...]]:
        """Commit its changes, rebased if need be; and the paths where changes were merged. With conflicts: nothing."""
        merged: tuple[str, ...] = ()
        if (await self.compute_effect(child)).conflicts:
            with suppress(ToolError):  # they contradict each other
                merged = await run_to_end(self._home.worlds.rebase(child.world))
                reach_faultpoint("subagents.rebased")
        return await self.commit(child), merged

    def _make_name(self, child: Child) -> str:
        return f"{self._invocation.chat}/{self._invocation.call}-{child.number}"

    async def end(self, children: Sequence[Child]) -> list[ChildResult]:
        """Interrupt those that are at work; those that have begun, at rest."""

        async def end_child(child: Child) -> ChildResult:
            chat = self._home.chat(child.chat)
            with suppress(Refused):  # it is at rest
                await chat.interrupt(BY)
            return ChildResult(child, await self.wait_for_child(child, chat))

        started_children = [child for child in children if await self._is_there(child.chat)]
        return list(await asyncio.gather(*map(end_child, started_children)))

    async def call_off(self, child: Child) -> Effect | None:
        """Prevent the commit of its changes. If the commit was made or had begun, complete it and return its effect."""
        if not child.world:
            return None
        with suppress(NotFound):  # its world was never made, or is gone
            return await run_to_end(self._home.worlds.call_off(self._make_name(child), child.world))
        return None


def make_child_options(parent: ChatOptions, budget: Budget) -> ChatOptions:
    """The options that a child inherits: the project, the rules and the model of its parent, not its conversation."""
    return replace(
        parent, on_limit="answer" if parent.limit_rule == "ask" else parent.on_limit, run_budget=Budget(),
        chat_budget=budget, dynamic_tools=(), checks=(), git_branch=False, output_schema=None,
        subagent_depth=max(parent.subagent_depth - 1, 0), labels=(),
    )  # fmt: skip


def compute_share(state: ChatState, call: CallKey, children: Sequence[Child], now_ms: int) -> Budget:
    """The share of the parent's remaining budgets for each child of a call (L-11). Children of calls that run beside it
    draw on the same budgets: each child has an equal part."""
    started_calls = (each for each in state.calls if each.phase == "started" and each.key != call)
    among = max(len(children) + sum(len(decode_children(each.plan)) for each in started_calls), 1)
    run, totals = state.run, state.totals
    worked = run.compute_worked_ms(now_ms) / 1000 if run is not None else 0.0
    remaining: dict[str, float] = {}

    def apply_limit(kind: str, allowed: float, spent: float, part: int) -> None:
        if allowed:
            allowance = max(allowed - spent, 0.0) / part
            remaining[kind] = min(remaining.get(kind, allowance), allowance)

    for budget, usage, calls, wall in (
        (state.options.run_budget, run.usage if run else totals.usage, run.tool_calls if run else 0, worked),
        (state.options.chat_budget, totals.usage, totals.tool_calls, totals.wall_ms / 1000 + worked),
    ):
        apply_limit("tokens", budget.tokens, usage.tokens, among)
        apply_limit("usd", budget.usd, usage.usd, among)
        apply_limit("tool_calls", budget.tool_calls, calls, among)
        apply_limit("wall_s", budget.wall_s, wall, 1)
    least = {kind: max(amount, 1e-6) for kind, amount in remaining.items()}  # 0 would be no limit
    tokens, calls = (max(int(remaining[kind]), 1) if kind in remaining else 0 for kind in ("tokens", "tool_calls"))
    return Budget(0, tokens, least.get("usd", 0.0), least.get("wall_s", 0.0), calls)


DEEPEST = 8


async def list_descendants(deps: Deps, chat: ChatId, depth: int = 1) -> list[ChildView]:
    """Every chat below this one, each behind the one that began it."""
    events = [event async for _, event in stream_events(deps.store, chat, {ExecutionStart.TYPE})]
    return await list_descendants_begun(deps, chat, events, depth)


async def list_descendants_begun(deps: Deps, chat: ChatId, events: Iterable[Event], depth: int = 1) -> list[ChildView]:
    """The same for those that were begun by some of its events."""
    rows: list[ChildView] = []
    for child, call in find_begun_children(events).items():
        rows.append(await load_row(deps, chat, call, child, depth))
        if depth < DEEPEST and rows[-1].status != "not begun":
            rows += await list_descendants(deps, child.chat, depth + 1)
    return rows


def find_begun_children(events: Iterable[Event]) -> dict[Child, CallKey]:
    """The chats of calls, in the order of their beginning. A call that was answered in its middle is recorded again."""
    start_events = (event for event in events if isinstance(event, ExecutionStart) and event.plan)
    return {child: event.call for event in start_events for child in decode_children(event.plan or {})}


async def load_row(deps: Deps, parent: ChatId, call: CallKey, child: Child, depth: int = 1) -> ChildView:
    start = ChildView(child.chat, parent, call, child.number, depth, child.title, child.model, child.world)
    try:
        state = await deps.log.load(child.chat)
        leased = (await deps.store.get(child.chat)).leased
    except NotFound:
        return start
    at_work = [each.request.name for each in state.calls if each.phase == "started"]
    return ChildView(
        *(start.chat, parent, call, child.number, depth, state.title or child.title),
        state.options.model or child.model, child.world, get_shown_status(compute_status(state), leased),
        state.last_end if state.run is None else "", state.totals.turns, state.totals.usage, ", ".join(at_work),
        tuple(action.name or action.kind for action in list_open_actions(state) if action.of_person),
        state.options.labels,
    )  # fmt: skip
