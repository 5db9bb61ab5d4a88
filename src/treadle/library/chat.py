"""A handle to one chat: commands in, events out. Holds nothing that is not in the store; any number of handles, in any
number of processes, may speak to the same chat."""

from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

import msgspec

from treadle.base.types import ChatId, make_id
from treadle.chat.applying import get_tool_options
from treadle.chat.state import ChatState, can_start_queue, compute_status, list_open_actions
from treadle.engine.effects import load_full_event
from treadle.engine.hub import Subscription
from treadle.errors import NotFound
from treadle.library.command_stream import Answer, CommandStream, collect
from treadle.library.commands import ChatHome, execute_commands
from treadle.library.feeds import read_patiently
from treadle.library.files import ChatFiles
from treadle.library.jobs import Job
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.content import Image
from treadle.protocol.options import ChatOptions
from treadle.protocol.permissions import Rule, RuleScope
from treadle.protocol.tools import ToolSpec
from treadle.protocol.views import ChildView, Status, get_shown_status

if TYPE_CHECKING:
    from treadle.library.structured import Structured
    from treadle.protocol.http_answers import ModelView

T = TypeVar("T")

FOLLOW_S = 1.0
PATIENCE_S = 60.0  # Seconds for which a follower of a command retries a store that cannot be read.
_TURNING = frozenset({e.UserMessage, e.QueueChanged, e.ActionRequired, e.SessionIdle, e.CompactionComplete})
"""Events that may end a follower's stream, or change which event ends it."""


class Prepared(msgspec.Struct, frozen=True):
    """The start of a new chat: its options, the notices for the user, and warnings about unusual options."""

    options: ChatOptions
    notices: tuple[e.ModelNotice, ...]
    warnings: tuple[str, ...]


class Chat:
    """`begin`: the options of a new chat with their notices, or the options to change in an existing chat."""

    def __init__(self, home: ChatHome, id: ChatId, begin: Prepared | Mapping[str, Any]) -> None:
        self.id, self._home = id, home
        self._deps, self._begin, self._opened = home.deps, begin, False
        self.warnings: tuple[str, ...] = begin.warnings if isinstance(begin, Prepared) else ()
        """Warnings about the options of a new chat, such as a client tool whose schema cannot be used (A-01)."""

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    async def open(self) -> Self:
        """Create the chat, or see that it exists and change the options that were given. Happens by itself."""
        if self._opened:
            return self
        if isinstance(self._begin, Prepared):
            await self._deps.log.create(self.id, e.SessionCreated(self._begin.options), *self._begin.notices)
            await self._home.claim_world(self._begin.options)
        elif self._begin:
            await execute_commands(self._home, self.id, [c.ChangeOptions(dict(self._begin))], work=False)
        else:
            await self._deps.log.load(self.id)
        self._opened = True
        return self

    def send(
        self, content: str, *, delivery: e.Delivery = "queued", images: Sequence[Image] = (), traceparent: str = ""
    ) -> CommandStream:
        """Say something. A busy chat queues it, or is steered by it (`delivery="steering"`). `traceparent`: the span
        that the trace of its run goes on from, as the W3C writes it."""
        return CommandStream(self, c.Send(content, delivery, tuple(images), make_id("q"), traceparent))

    def submit(self, results: Mapping[str, Any] | Sequence[c.Result]) -> CommandStream:
        """Answer the chat's open client tools: outputs by tool_call_id, or Results (A-03)."""
        if isinstance(results, Mapping):
            results = [c.Result(key, output) for key, output in results.items()]
        return CommandStream(self, c.SubmitResults(tuple(results)))

    def approve(
        self,
        action: e.OpenAction,
        *,
        arguments: Mapping[str, Any] | None = None,
        rule: Rule | None = None,
        offer: int | None = None,
        scope: RuleScope = "chat",
    ) -> CommandStream:
        """Allow what was shown; with `arguments` something else in its place. `rule` answers for its like from now on:
        one of `action.offers`, for the scope that you choose; or `offer` names it by its place among them. ConfigError:
        the approval is recorded, but the rule could not be saved; the same call saves it when it is repeated."""
        rule = self._stamp_rule(rule if offer is None else action.offers[offer].rule_for(scope))
        new_arguments = None if arguments is None else dict(arguments)
        return CommandStream(self, c.Decide(action.action, "allow", action.hash, arguments=new_arguments, rule=rule))

    def deny(self, action: e.OpenAction, feedback: str = "", *, rule: Rule | None = None) -> CommandStream:
        return CommandStream(self, c.Decide(action.action, "deny", action.hash, feedback, rule=self._stamp_rule(rule)))

    async def arguments(self, action: e.OpenAction) -> dict[str, Any]:
        """The arguments of a call that waits for approval, as its tool would get them: to change some of them."""
        state = await self.state()
        tools = self._deps.tools
        for call in (each for each in state.calls if each.key == action.call):
            request = tools.resolve_call(call.request, get_tool_options(state))
            if (tool := tools.find(request.name, get_tool_options(state))) is not None:
                read = tools.parse_arguments(tool if isinstance(tool, ToolSpec) else tool.spec, request.arguments)
                return call.arguments or (read if isinstance(read, dict) else {})
        raise NotFound(f"No call {action.call!r} waits in chat {self.id}; it may have been answered already.")

    def answer(self, action: e.OpenAction | str, text: str) -> CommandStream:
        return CommandStream(self, c.Answer(action if isinstance(action, str) else action.action, text))

    def edit(self, message: int, content: str, *, files: bool = False) -> CommandStream:
        """Replace your message at this seq and run again; with `files` those go back to that point first (L-09)."""
        return CommandStream(self, c.Edit(message, content, files, make_id("u") if files else ""))

    def apply(
        self, path: str = "", *, content: str | None = None, block: int = 0, patch: str | None = None
    ) -> CommandStream:
        """Write a fenced block of the last answer, or `content`, to a file, by the same rules and with the same way
        back as a call of the model; the model is not asked. `block`: which one, from 1; without it the only one.
        `patch` instead of all that: a unified diff or `*** Begin Patch`, applied whole or not at all (L-18)."""
        return CommandStream(self, c.Apply(path, content, block, patch))

    def commit_world(self, world: str) -> CommandStream:
        """Commit a world of the place in which this chat works, by the same rules and with the same way back as a call
        of the model (W-12). See `Agent.worlds`."""
        return CommandStream(self, c.Apply(world=world))

    def commit_job(self, handle: str) -> CommandStream:
        """Commit what is pending of a background command (W-10), as a call of the model would. See `jobs`."""
        return CommandStream(self, c.Apply(job=handle))

    def run_command(self, line: str) -> CommandStream:
        """Run a person's command on the same view by the same rules; the model sees it with the next message."""
        return CommandStream(self, c.Apply(command=line))

    def race(self, order: c.Race) -> CommandStream:
        """Let several attempts at a task run, and commit the best (L-22). See `Agent.race`."""
        return CommandStream(self, c.Apply(race=order))

    def compact(self) -> CommandStream:
        return CommandStream(self, c.Compact())

    def promote(self, queued: str) -> CommandStream:
        return CommandStream(self, c.Promote(queued))

    def edit_queued(self, queued: str, content: str) -> CommandStream:
        return CommandStream(self, c.EditQueued(queued, content))

    def delete_queued(self, queued: str) -> CommandStream:
        return CommandStream(self, c.DeleteQueued(queued))

    def resume(self, *, after_seq: int | None = None) -> CommandStream:
        """Go on with a chat that was cut off; an idle one has no work. `after_seq`: see CommandStream.resume_after."""
        return CommandStream(self, None, after_seq)

    async def interrupt(self, by: str = "person") -> None:
        """Stop the run. Returns when the stop is recorded; the chat is idle soon after."""
        await self.carry_out(c.Interrupt(by))

    async def command(self, command: c.Command) -> ChatState:
        """Any other command: rename, change options, the queue."""
        return await self.carry_out(command)

    async def change(self, /, **changes: Any) -> None:
        """Change title and options in one commit; `archived=True` archives it. ConfigError: no such model."""
        commands: list[c.Command] = [c.Rename(changes.pop("title"))] if "title" in changes else []
        if changes.get("model"):
            self._deps.models.get(changes["model"])
        if changes:
            commands.append(c.ChangeOptions(dict(self._home.chat(self.id, **changes)._begin)))
        await execute_commands(self._home, self.id, commands, prepare=self.open, work=False)

    async def delete(self) -> None:
        """Delete the chat and its sub-agents for good. One that works is refused: interrupt it first."""
        await self._home.delete(self.id)

    async def fork(self, seq: int = 0) -> "Chat":
        """Begin a new chat as a copy of this one up to an event; without `seq` the whole of it."""
        from treadle.library.transfer import fork_chat

        await self.open()
        upto = seq or await self._deps.store.read_head(self.id)
        return self.get_chat(await fork_chat(self._deps.store, self.id, upto, clock=self._deps.clock))

    async def export(self) -> bytes:
        """The whole log as JSON lines."""
        from treadle.library.transfer import export_chat

        await self.open()
        return b"".join([line async for line in export_chat(self._deps.store, self.id)])

    async def models(self) -> "list[ModelView]":
        """The models that front ends offer; `change(model=…)` takes one."""
        return await self._home.models()

    def get_chat(self, id: ChatId) -> "Chat":
        """A handle to another chat of the same store, such as a sub-agent of this one."""
        return Chat(self._home, id, {})

    @property
    def driven_here(self) -> bool:
        """True if a worker of this process drives the chat now."""
        return self._home.worker.is_holding(self.id)

    @cached_property
    def files(self) -> ChatFiles:
        """The changes that the chat made to the files of its project, with undo, redo and keep (W-02, W-03)."""
        return ChatFiles(self, self._deps)

    async def jobs(self) -> list[Job]:
        """Its background commands, those that run and those that have ended lately: to read, to talk to, to stop."""
        await self.open()
        return await self._home.jobs.list_jobs(self.id)

    async def children(self) -> list[ChildView]:
        """The chats that its calls began, and theirs, each behind the one that began it."""
        return await self._home.children(self.id)

    async def state(self) -> ChatState:
        await self.open()
        return await self._deps.log.load(self.id)

    async def status(self) -> Status:
        """The status as people see it: a chat whose worker died is pending, not running (A-08)."""
        chat_status = compute_status(await self.state())
        return get_shown_status(chat_status, chat_status != "running" or (await self._deps.store.get(self.id)).leased)

    async def actions(self) -> tuple[e.OpenAction, ...]:
        """Return the actions that the chat waits for."""
        return list_open_actions(await self.state())

    async def events(self, after_seq: int = 0, limit: int = 0) -> list[e.Envelope]:
        """The log, from behind `after_seq`; at most `limit` events if it is not 0."""
        await self.open()
        return [wire.decode(self.id, record) for record in await self._deps.store.read(self.id, after_seq, limit)]

    async def events_of(self, *kinds: type[e.Event]) -> list[e.Envelope]:
        """The events of these kinds. The rest of the log is not read."""
        await self.open()
        types = [kind.TYPE for kind in kinds]
        return [wire.decode(self.id, record) for record in await self._deps.store.read_types(self.id, types)]

    async def wait(self, after_seq: int, timeout_s: float) -> int:
        """Wait until any process records an event after `after_seq`. Return the last seq at that time."""
        await self.open()
        return await self._deps.store.wait(self.id, after_seq, timeout_s)

    async def load_full_event(self, envelope: e.Envelope) -> e.Envelope:
        """An event with all files that it is about, where the log lists only the first."""
        return await load_full_event(self._deps.store, envelope)

    @overload
    async def ask(self, content: str) -> Answer: ...

    @overload
    async def ask(self, content: str, *, output: type[T], repairs: int = ...) -> "Structured[T]": ...

    @overload
    async def ask(self, content: str, *, output: Mapping[str, Any], repairs: int = ...) -> "Structured[Any]": ...

    async def ask(self, content: str, *, output: Any = None, repairs: int = 2) -> Answer:
        """Send, wait, and give back what the run came to. RunFailed if that is an error. With `output` (a msgspec
        Struct, a dataclass, a pydantic model, a JSON Schema) the answer is a value of that type: a model whose answer
        does not fit is told so and asked again, at most `repairs` times."""
        if output is None:
            return await collect(self.send(content))
        from treadle.library.structured import Shape, ask_until_valid

        shape: Shape[Any] = Shape(output)
        if (old_schema := (await self.state()).options.output_schema) != shape.schema:
            await self.command(c.ChangeOptions({"output_schema": shape.schema}))
        try:
            return await ask_until_valid(shape, lambda text: collect(self.send(text)), content, repairs)
        finally:
            if old_schema != shape.schema:
                await self.command(c.ChangeOptions({"output_schema": old_schema}))

    def _stamp_rule(self, rule: Rule | None) -> Rule | None:
        if rule is None:
            return None
        return msgspec.structs.replace(rule, id=rule.id or make_id("r"), created_ms=self._deps.clock.now_ms())

    async def carry_out(
        self, command: c.Command | None, on_state: Callable[[ChatState], None] | None = None, *, work: bool = True
    ) -> ChatState:
        """Record the command and let a worker go on; without a command go on with a chat that was cut off."""
        if command is not None:
            return await execute_commands(
                self._home, self.id, [command], prepare=self.open, on_state=on_state, work=work
            )
        state = await self.state()
        if compute_status(state) == "pending":
            self._home.check()
        if on_state is not None:
            on_state(state)
        if work:
            self._home.worker.start(self.id)
        return state

    async def follow(self, command: c.Command | None, after_seq: int | None = None) -> AsyncIterator[e.Envelope]:
        """Carry out the command and yield the news until the chat is quiet; first what is behind `after_seq`."""
        hub = self._deps.log.hub
        readers: list[Subscription] = []
        try:
            state = await self.carry_out(command, lambda met: readers.append(hub.subscribe(self.id, met.head)))
            reader = readers[-1]
            if after_seq is not None and after_seq < reader.began:
                for record in await self._deps.store.read(self.id, after_seq, reader.began - after_seq):
                    yield wire.decode(self.id, record)
            quiet = compute_status(state) in ("idle", "error")
            if quiet and reader.untouched:
                yield e.Envelope(0, self.id, self._deps.clock.now_ms(), _make_idle_event(state))
                return
            queued = command.queue_id if isinstance(command, c.Send) else ""
            if all(item.id != queued for item in state.queue):
                queued = ""
            reached = reader.began
            while True:
                envelope = reader.take() or await self._wait_for_news(reader)
                data = envelope.data
                if (reached := max(reached, envelope.seq)) < state.head and isinstance(data, e.ActionRequired):
                    continue  # the question that this command answers
                yield envelope
                if type(data) not in _TURNING:
                    continue  # nearly all that comes ends nothing
                match data:
                    case e.QueueChanged(op="deleted", id=id) | e.UserMessage(queue_id=id) if id == queued:
                        queued = ""  # the queued message was deleted, or delivered
                is_over = isinstance(data, e.SessionIdle) and self._is_over(data, queued)
                if is_over or isinstance(data, e.ActionRequired):
                    return
                if isinstance(data, e.CompactionComplete) and self._is_at_rest(envelope.seq):
                    return
        finally:
            for reader in readers:
                reader.close()

    def _is_at_rest(self, seq: int) -> bool:
        """True if the log ends at `seq` without a run: the compaction of an idle chat ends none."""
        state = self._deps.log.peek(self.id)
        return state is not None and state.head == seq and compute_status(state) in ("idle", "error")

    def _is_over(self, idle: e.SessionIdle, queued: str) -> bool:
        """True if this ends the follower's stream: no edit began the next run, and `queued` has none to come."""
        state = self._deps.log.peek(self.id)
        if idle.reason == "superseded":
            return False
        if not queued or state is None:
            return True
        return any(item.id == queued for item in state.queue) and state.run is None and not can_start_queue(state)

    async def _wait_for_news(self, reader: Subscription) -> e.Envelope:
        """Wait for news: from this process at once, from a worker elsewhere by looking at the store."""
        log, store = self._deps.log, self._deps.store
        while True:
            if (drive := self._home.worker.start(self.id)) is not reader.source:
                reader.source = drive
                drive.add_done_callback(lambda _task: reader.nudge())
            if (envelope := await reader.get()) is not None:
                return envelope
            if drive.done() and not drive.cancelled():
                drive.result()
            await read_patiently(lambda: log.catch_up(reader), PATIENCE_S)
            if (envelope := reader.take()) is not None:
                return envelope
            if not drive.done():
                continue
            state = await read_patiently(lambda: log.load(self.id), PATIENCE_S)
            if state.head == reader.reached and compute_status(state) == "requires_action":
                return e.Envelope(0, self.id, self._deps.clock.now_ms(), e.ActionRequired(list_open_actions(state)))
            if state.head == reader.reached and compute_status(state) in ("idle", "error"):  # no run, so no idle event
                return e.Envelope(0, self.id, self._deps.clock.now_ms(), _make_idle_event(state))
            await read_patiently(lambda: store.wait(self.id, reader.reached, FOLLOW_S), PATIENCE_S)
            await read_patiently(lambda: log.catch_up(reader), PATIENCE_S)


def _make_idle_event(state: ChatState) -> e.SessionIdle:
    return e.SessionIdle(state.last_end or "done", state.last_why)
