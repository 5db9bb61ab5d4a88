"""Events and live text to blocks, the parts of a conversation on a screen. A pure projection: fed with the same
envelopes it holds the same blocks, live or read from the log (D-04). Knows no screen and no clock but the time of the
events. Text in blocks is as it came; the drawing code makes it inert."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from treadle.base.types import CallKey
from treadle.diff.changes import format_changes, merge_changes
from treadle.frontends.presentation.notices import QUIET, as_call, describe_end, format_cost, make_notice
from treadle.frontends.presentation.overview import Overview, apply_event
from treadle.frontends.presentation.styled import Colour
from treadle.protocol import events as e
from treadle.protocol.content import PlanStep
from treadle.protocol.files import FileChange, decode_path
from treadle.protocol.tools import Effect
from treadle.protocol.views import summarize_arguments

MOST_FILES = 8
OUTPUT_KEPT = 4_000  # characters of a running command's output that are kept for the screen
_CODE = re.compile(r"^(```|~~~)[^\n]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)


class Block(msgspec.Struct, frozen=True, kw_only=True):
    seq: int = 0  # the event that began it; 0 for what is only live
    live: bool = False  # it changes by itself, if only its timer


class UserBlock(Block, frozen=True, kw_only=True):
    """A message to the model: by a person, or in their place."""

    text: str
    source: str = "person"
    images: int = 0


class AnswerBlock(Block, frozen=True, kw_only=True):
    text: str = ""  # Markdown
    partial: bool = False


class ThoughtBlock(Block, frozen=True, kw_only=True):
    """The model's thinking, and how long it took; 0: not known."""

    text: str = ""
    began_ms: int = 0
    ended_ms: int = 0


class ShownCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call, from the request to its result."""

    key: CallKey
    name: str
    summary: str = ""
    effect: Effect = "execute"
    began_ms: int = 0
    output: str = ""  # the end of what it has written, while it runs
    completion: e.ExecutionComplete | None = None
    waits: bool = False  # a person is asked about the call


class Calls(Block, frozen=True, kw_only=True):
    """Calls with nothing said between them."""

    calls: tuple[ShownCall, ...] = ()


class Checklist(Block, frozen=True, kw_only=True):
    steps: tuple[PlanStep, ...]


class Note(Block, frozen=True, kw_only=True):
    text: str
    colour: Colour = "dim"
    mark: Literal["", "error", "done"] = ""


class RunEndBlock(Block, frozen=True, kw_only=True):
    """The end of a run: why, what it cost, what it changed."""

    text: str
    files: tuple[str, ...] = ()


class EmptyBlock(Block, frozen=True, kw_only=True):
    """Stands where something was that is shown elsewhere now, or was taken back."""


AnyBlock = UserBlock | AnswerBlock | ThoughtBlock | Calls | Checklist | Note | RunEndBlock | EmptyBlock


class Conversation:
    """`blocks` only grows, but for what is replaced in its place; `changed` are the places that were since `take`."""

    def __init__(self) -> None:
        self.blocks: list[AnyBlock] = []
        self.view = Overview()
        self.seq = 0
        self.changed: set[int] = set()
        # Where the present answer, its thinking and the run's plan stand; -1: nowhere yet.
        self._spoken = self._thought = self._plan = -1
        self._at: dict[CallKey, int] = {}
        self._files: dict[str, FileChange] = {}
        # Files that the run changed more than once: the log does not tell how many lines that comes to.
        self._again: set[str] = set()
        self._asked: dict[str, CallKey] = {}  # by action: the call that a person is asked about
        self._closed: set[str] = set()  # actions that the log has closed
        self._applies = False
        self.applied_call = ""  # the call that the last command of a person's own became

    def take(self) -> set[int]:
        """The places of blocks that are new or not what they were."""
        changed_blocks, self.changed = self.changed, set()
        return changed_blocks

    def apply(self, envelope: e.Envelope) -> None:
        if envelope.seq:
            if envelope.seq <= self.seq:
                return
            self.seq = envelope.seq
        self.view = self._complete_actions(self.view, apply_event(self.view, envelope), envelope.data)
        self._show(envelope)

    def list_messages(self) -> list[UserBlock]:
        """The messages of the person that the chat can go back to, oldest first."""
        user_blocks = (block for block in self.blocks if isinstance(block, UserBlock))
        return [block for block in user_blocks if block.source == "person" and block.seq]

    def add_local(self, block: AnyBlock, at: int = -1) -> int:
        """Something that only this screen has seen, in the place of an earlier block if one is given. Its place."""
        if at < 0:
            return self._add(block)
        self._put(at, block)
        return at

    def _show(self, envelope: e.Envelope) -> None:
        event, seq, now = envelope.data, envelope.seq, envelope.time_ms
        match event:
            case e.MessageDelta(text=text):
                self._end_thought(now)
                self._speak(lambda block: replace(block, text=block.text + text))
            case e.ReasoningDelta(text=text):
                if self._thought < 0:
                    self._thought = self._add(ThoughtBlock(began_ms=now, live=True))
                block = self.blocks[self._thought]
                assert isinstance(block, ThoughtBlock)
                self._put(self._thought, replace(block, text=block.text + text, ended_ms=now))
            case e.AssistantMessage():
                self._show_answer(event, envelope)
            case e.UserMessage():
                self._show_message(event, seq)
            case e.TrialStart() | e.ExecutionStart() | e.ExecutionOutput() | e.ExecutionComplete():
                self._update_call(event, now)
            case e.CheckStarted(check=check, command=command):
                self._add_call(ShownCall(key=check, name="check", summary=command, began_ms=now), seq)
            case e.CheckCompleted():
                self._change_call(event.check, lambda call: _complete_check(call, event))
            case e.PermissionRequested(call=call, action=action) | e.UserInputRequested(call=call, action=action):
                self._asked[action] = call
                self._change_call(call, lambda shown_call: replace(shown_call, waits=True))
            case e.PlanUpdated(steps=steps):
                self._vanish(self._plan)
                self._plan = self._add(Checklist(steps=steps, seq=seq))
            case e.TaskComplete(summary=summary) if summary:
                self._add(Note(text=summary, colour="green", mark="done", seq=seq))
            case e.ModelCall(purpose="summary", text=text) if text:
                self._add(AnswerBlock(text=text, seq=seq))
            case e.FilesChanged(files=files):
                self._again |= {file.path for file in files if file.path in self._files}
                self._files = merge_changes(self._files, files)
            case e.RunEnd(reason=reason, why=explanation):
                self._end_run(e.SessionIdle(reason, explanation), envelope)
            case _:
                if isinstance(event, e.AssistantReset | e.TurnRetry):
                    self._drop()
                elif isinstance(event, e.PermissionCompleted):
                    call = self._asked.pop(event.action, CallKey(""))
                    self._change_call(call, lambda shown_call: replace(shown_call, waits=False))
                elif isinstance(event, e.SessionRewound):
                    self._hide_blocks_from(event.message)
                if styled_notice := make_notice(event):
                    mark: Literal["", "error"] = "error" if isinstance(event, e.SessionError) else ""
                    self._add(Note(text=styled_notice[0], colour=styled_notice[1], mark=mark, seq=seq))

    def _show_message(self, message: e.UserMessage, seq: int) -> None:
        if message.edits:
            self._hide_blocks_from(message.edits)
        if message.delivery == "idle" or not self.view.busy:
            self._files, self._again, self._plan = {}, set(), -1
        self._applies = message.source == "apply"
        self._add(UserBlock(text=message.content, source=message.source, images=len(message.images), seq=seq))

    def _end_run(self, idle: e.SessionIdle, envelope: e.Envelope) -> None:
        self._drop()
        view, seconds = self.view, (envelope.time_ms - self.view.began_ms) / 1000
        spent = format_cost(view.run_usage, view.turns, view.calls, seconds)
        uncounted = {path: replace(self._files[path], added=0, removed=0) for path in self._again}
        files = format_changes((self._files | uncounted).values(), decode_path, MOST_FILES)
        for at, block in enumerate(self.blocks[-50:], max(0, len(self.blocks) - 50)):
            if block.live:
                self._put(at, replace(block, live=False))
        self._add(RunEndBlock(text=f"{describe_end(idle)} · {spent}", files=tuple(files), seq=envelope.seq))

    def _hide_blocks_from(self, message: int) -> None:
        """Go back to before a message: hide all later blocks."""
        for at, block in enumerate(self.blocks):
            if block.seq >= message:
                self._vanish(at)

    def _speak(self, change: Callable[[AnswerBlock], AnswerBlock]) -> None:
        if self._spoken < 0:
            self._spoken = self._add(AnswerBlock(live=True))
        block = self.blocks[self._spoken]
        assert isinstance(block, AnswerBlock)
        self._put(self._spoken, change(block))

    def _end_thought(self, now: int) -> None:
        block = self.blocks[self._thought] if self._thought >= 0 else None
        if isinstance(block, ThoughtBlock) and block.live:
            self._put(self._thought, replace(block, ended_ms=now, live=False))

    def _drop(self) -> None:
        """The partial text of the answer is void, or over."""
        self._vanish(self._spoken)
        self._vanish(self._thought)
        self._spoken = self._thought = -1

    def _show_answer(self, message: e.AssistantMessage, envelope: e.Envelope) -> None:
        self._end_thought(envelope.time_ms)
        thinking = "".join(block.text for block in message.reasoning)
        if self._thought < 0 and thinking.strip():
            self._vanish(self._spoken)
            self._spoken = -1
            self._add(ThoughtBlock(text=thinking, seq=envelope.seq))
        if message.content.strip():
            fields = {"text": message.content, "partial": message.partial, "live": False, "seq": envelope.seq}
            self._speak(lambda block: replace(block, **fields))
        else:
            self._vanish(self._spoken)
        self._spoken = self._thought = -1
        if self._applies:
            self._applies, self.applied_call = False, message.tool_requests[0].call
        for request in message.tool_requests:
            if request.name not in QUIET:
                call = ShownCall(key=request.call, name=request.name, summary=summarize_arguments(request.arguments))
                self._add_call(call, envelope.seq)

    def _update_call(
        self, event: e.TrialStart | e.ExecutionStart | e.ExecutionOutput | e.ExecutionComplete, now: int
    ) -> None:
        fields: dict[str, object] = {}
        match event:
            case e.TrialStart(args_summary=summary):
                fields = {"began_ms": now} | ({"summary": summary} if summary else {})
            case e.ExecutionStart(args_summary=summary):
                fields = {"name": event.name, "effect": event.effect, "began_ms": now, "waits": False}
                fields |= {"summary": summary} if summary else {}
            case e.ExecutionOutput(text=text):
                self._change_call(event.call, lambda call: replace(call, output=(call.output + text)[-OUTPUT_KEPT:]))
                return
            case e.ExecutionComplete():
                if event.call not in self._at and not event.success:
                    self._add_call(ShownCall(key=event.call, name="call"), 0)
                fields = {"completion": event, "output": "", "waits": False}
        self._change_call(event.call, lambda call: replace(call, **fields))

    def _add_call(self, call: ShownCall, seq: int) -> None:
        last = self.blocks[-1] if self.blocks else None
        if isinstance(last, Calls):
            at = len(self.blocks) - 1
            self._put(at, replace(last, calls=(*last.calls, call), live=True))
        else:
            at = self._add(Calls(calls=(call,), seq=seq, live=True))
        self._at[call.key] = at

    def _change_call(self, key: CallKey, change: Callable[[ShownCall], ShownCall | None]) -> None:
        """None: it is shown no more."""
        at = self._at.get(key, -1)
        block = self.blocks[at] if at >= 0 else None
        if isinstance(block, Calls):
            new_calls = (change(call) if call.key == key else call for call in block.calls)
            calls = tuple(call for call in new_calls if call is not None)
            self._put(at, replace(block, calls=calls, live=any(call.completion is None for call in calls)))

    def _complete_actions(self, old_view: Overview, view: Overview, event: e.Event) -> Overview:
        """Open actions with all that is known of them. The log alone opens and closes them: a live event, which may be
        late, adds details to an open one, and names one whose record has not been read yet."""
        match event:
            case e.ActionRequired(actions=actions):
                details = {each.action: each for each in actions if each.action not in self._closed}
                known_actions = [details.pop(each.action, each) for each in view.actions]
                both = (*known_actions, *details.values())
                return replace(view, actions=both, busy=True, activity="waiting for you") if both else view
            case e.PermissionCompleted(action=action) | e.UserInputCompleted(action=action):
                self._closed.add(action)
            case e.RunEnd():
                self._closed |= {each.action for each in old_view.actions}
            case e.UserInputRequested(action=action):
                self._closed.discard(action)
            case e.PermissionRequested(action=action):
                self._closed.discard(action)
                block = self.blocks[self._at[event.call]] if event.call in self._at else None
                names = {call.key: call.name for call in block.calls} if isinstance(block, Calls) else {}
                *other_actions, last_action = view.actions
                named_action = replace(last_action, name=names.get(event.call, ""))
                return replace(view, actions=(*other_actions, named_action))
        return view

    def _add(self, block: AnyBlock) -> int:
        self.blocks.append(block)
        self.changed.add(len(self.blocks) - 1)
        return len(self.blocks) - 1

    def _put(self, at: int, block: AnyBlock) -> None:
        if self.blocks[at] != block:
            self.blocks[at] = block
            self.changed.add(at)

    def _vanish(self, at: int) -> None:
        if at >= 0:
            self._put(at, EmptyBlock(seq=self.blocks[at].seq))


def _complete_check(call: ShownCall, completion: e.CheckCompleted) -> ShownCall | None:
    """That changed files have no errors is nothing to talk about."""
    if completion.success and call.summary == e.DIAGNOSTICS:
        return None
    return replace(call, completion=as_call(completion), output="")


def iterate_copies(blocks: Sequence[AnyBlock]) -> Iterator[tuple[str, str]]:
    """The kind and the text of each part that can be copied; the newest first."""
    for block in reversed(blocks):
        match block:
            case AnswerBlock(text=text) if text.strip():
                yield "answer", text.strip("\n")
                for match in reversed(list(_CODE.finditer(text))):
                    yield "code", match[2].rstrip("\n")
            case Calls(calls=calls):
                for call in reversed(calls):
                    if call.name == "run_command" and call.summary:
                        yield "command", call.summary
                    result = call.completion.result if call.completion is not None else ""
                    if (diff := re.search(r"^@@", result, re.MULTILINE)) is not None:
                        yield "diff", result[diff.start() :].rstrip("\n")
