"""Events and live text to blocks. A pure projection: fed with the same envelopes it holds the same blocks, live or read
from the log (D-04). Knows no screen and no clock but the time of the events."""

from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from treadle.base.types import CallKey
from treadle.diff.changes import change_lines, merged
from treadle.frontends.presentation import blocks as b
from treadle.frontends.presentation.call_line import QUIET, as_call
from treadle.frontends.presentation.notices import cost, end, notice
from treadle.frontends.presentation.overview import Overview, apply_event
from treadle.protocol import events as e
from treadle.protocol.files import FileChange, decode_path
from treadle.protocol.views import touched

MOST_FILES = 8


class Conversation:
    """`blocks` only grows, but for what is replaced in its place; `changed` are the places that were since `take`."""

    def __init__(self) -> None:
        self.blocks: list[b.AnyBlock] = []
        self.view = Overview()
        self.seq = 0
        self.changed: set[int] = set()
        self._spoken = self._thought = self._plan = -1
        """Where the present answer, its thinking and the run's plan stand; -1: nowhere yet."""
        self._at: dict[CallKey, int] = {}
        self._files: dict[str, FileChange] = {}
        self._again: set[str] = set()
        """Files that the run changed more than once: the log does not tell how many lines that comes to."""
        self._asked: dict[str, CallKey] = {}
        """By action: the call that a person is asked about."""
        self._closed: set[str] = set()
        """Actions that the log has closed."""
        self._applies = False
        self.applied_call = ""
        """The call that the last command of a person's own became."""

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

    def messages(self) -> list[b.UserBlock]:
        """The messages of the person that the chat can go back to, oldest first."""
        user_blocks = (block for block in self.blocks if isinstance(block, b.UserBlock))
        return [block for block in user_blocks if block.source == "person" and block.seq]

    def add_local(self, block: b.AnyBlock, at: int = -1) -> int:
        """Something that only this screen has seen, in the place of an earlier block if one is given. Its place."""
        if at < 0:
            return self._add(block)
        self._put(at, block)
        return at

    # -- by event -----------------------------------------------------------------------------------------------------

    def _show(self, envelope: e.Envelope) -> None:
        event, now = envelope.data, envelope.time_ms
        match event:
            case e.MessageDelta(text=text):
                self._end_thought(now)
                self._speak(lambda block: replace(block, text=block.text + text))
            case e.ReasoningDelta(text=text):
                if self._thought < 0:
                    self._thought = self._add(b.ThoughtBlock(began_ms=now, live=True))
                block = self.blocks[self._thought]
                assert isinstance(block, b.ThoughtBlock)
                self._put(self._thought, replace(block, text=block.text + text, ended_ms=now))
            case e.AssistantReset() | e.TurnRetry():
                self._drop()
                self._note(event, envelope.seq)
            case e.AssistantMessage():
                self._show_answer(event, envelope)
            case e.UserMessage():
                self._user(event, envelope.seq)
            case e.TrialStart() | e.ExecutionStart() | e.ExecutionOutput() | e.ExecutionComplete():
                self._call(event, now)
            case e.CheckStarted(check=check, command=command):
                self._add_call(b.ShownCall(key=check, name="check", summary=command, began_ms=now), envelope.seq)
            case e.CheckCompleted():
                self._change_call(event.check, lambda call: _checked(call, event))
            case e.PermissionRequested(call=call, action=action) | e.UserInputRequested(call=call, action=action):
                self._asked[action] = call
                self._change_call(call, lambda shown_call: replace(shown_call, waits=True))
            case e.PermissionCompleted(action=action):
                call = self._asked.pop(action, CallKey(""))
                self._change_call(call, lambda shown_call: replace(shown_call, waits=False))
                self._note(event, envelope.seq)
            case e.PlanUpdated(steps=steps):
                self._vanish(self._plan)
                self._plan = self._add(b.Checklist(steps=steps, seq=envelope.seq))
            case e.TaskComplete(summary=summary) if summary:
                self._add(b.Note(text=summary, colour="green", mark="done", seq=envelope.seq))
            case e.ModelCall(purpose="summary", text=text) if text:
                self._add(b.AnswerBlock(text=text, seq=envelope.seq))
            case e.FilesChanged(files=files):
                self._again |= {file.path for file in files if file.path in self._files}
                self._files = merged(self._files, files)
            case e.SessionRewound(message=message):
                self._hide_blocks_from(message)
                self._note(event, envelope.seq)
            case e.RunEnd(reason=reason, why=why):
                self._end_run(e.SessionIdle(reason, why), envelope)
            case _:
                self._note(event, envelope.seq)

    def _user(self, message: e.UserMessage, seq: int) -> None:
        if message.edits:
            self._hide_blocks_from(message.edits)
        if message.delivery == "idle" or not self.view.busy:
            self._files, self._again, self._plan = {}, set(), -1
        self._applies = message.source == "apply"
        self._add(b.UserBlock(text=message.content, source=message.source, images=len(message.images), seq=seq))

    def _end_run(self, idle: e.SessionIdle, envelope: e.Envelope) -> None:
        self._drop()
        view, seconds = self.view, (envelope.time_ms - self.view.began_ms) / 1000
        spent = cost(view.run_usage, view.turns, view.calls, seconds)
        uncounted = {path: replace(self._files[path], added=0, removed=0) for path in self._again}
        files = change_lines((self._files | uncounted).values(), decode_path, MOST_FILES)
        for at, block in enumerate(self.blocks[-50:], max(0, len(self.blocks) - 50)):
            if block.live:
                self._put(at, replace(block, live=False))
        self._add(b.RunEndBlock(text=f"{end(idle)} · {spent}", files=tuple(files), seq=envelope.seq))

    def _note(self, event: e.Event, seq: int) -> None:
        if styled_notice := notice(event):
            text, colour = styled_notice
            mark: Literal["", "error"] = "error" if isinstance(event, e.SessionError) else ""
            self._add(b.Note(text=text, colour=colour, mark=mark, seq=seq))

    def _hide_blocks_from(self, message: int) -> None:
        """Go back to before a message: hide all later blocks."""
        for at, block in enumerate(self.blocks):
            if block.seq >= message and not isinstance(block, b.EmptyBlock):
                self._put(at, b.EmptyBlock(seq=block.seq))

    # -- the answer ---------------------------------------------------------------------------------------------------

    def _speak(self, change: Callable[[b.AnswerBlock], b.AnswerBlock]) -> None:
        if self._spoken < 0:
            self._spoken = self._add(b.AnswerBlock(live=True))
        block = self.blocks[self._spoken]
        assert isinstance(block, b.AnswerBlock)
        self._put(self._spoken, change(block))

    def _end_thought(self, now: int) -> None:
        if self._thought >= 0 and self.blocks[self._thought].live:
            block = self.blocks[self._thought]
            assert isinstance(block, b.ThoughtBlock)
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
            self._add(b.ThoughtBlock(text=thinking, seq=envelope.seq))
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
                call = b.ShownCall(key=request.call, name=request.name, summary=touched(request.arguments))
                self._add_call(call, envelope.seq)

    # -- calls --------------------------------------------------------------------------------------------------------

    def _call(self, event: e.TrialStart | e.ExecutionStart | e.ExecutionOutput | e.ExecutionComplete, now: int) -> None:
        match event:
            case e.TrialStart(args_summary=summary):
                self._change_call(event.call, lambda call: replace(call, summary=summary or call.summary, began_ms=now))
            case e.ExecutionStart():
                fields = {"name": event.name, "effect": event.effect, "began_ms": now, "waits": False}
                self._change_call(
                    event.call, lambda call: replace(call, summary=event.args_summary or call.summary, **fields)
                )
            case e.ExecutionOutput(text=text):
                self._change_call(event.call, lambda call: replace(call, output=(call.output + text)[-b.OUTPUT_KEPT :]))
            case e.ExecutionComplete():
                if event.call not in self._at and not event.success:
                    self._add_call(b.ShownCall(key=event.call, name="call"), 0)
                self._change_call(event.call, lambda call: replace(call, completion=event, output="", waits=False))

    def _add_call(self, call: b.ShownCall, seq: int) -> None:
        last = self.blocks[-1] if self.blocks else None
        if isinstance(last, b.Calls):
            at = len(self.blocks) - 1
            self._put(at, replace(last, calls=(*last.calls, call), live=True))
        else:
            at = self._add(b.Calls(calls=(call,), seq=seq, live=True))
        self._at[call.key] = at

    def _change_call(self, key: CallKey, change: Callable[[b.ShownCall], b.ShownCall | None]) -> None:
        """None: it is shown no more."""
        at = self._at.get(key, -1)
        block = self.blocks[at] if at >= 0 else None
        if isinstance(block, b.Calls):
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
                return view
            case e.UserInputRequested(action=action):
                self._closed.discard(action)
                return view
            case e.RunEnd():
                self._closed |= {each.action for each in old_view.actions}
                return view
            case e.PermissionRequested(action=action):
                self._closed.discard(action)
            case _:
                return view
        block = self.blocks[self._at[event.call]] if event.call in self._at else None
        names = {call.key: call.name for call in block.calls} if isinstance(block, b.Calls) else {}
        *other_actions, last_action = view.actions
        return replace(view, actions=(*other_actions, replace(last_action, name=names.get(event.call, ""))))

    # -- places -------------------------------------------------------------------------------------------------------

    def _add(self, block: b.AnyBlock) -> int:
        self.blocks.append(block)
        self.changed.add(len(self.blocks) - 1)
        return len(self.blocks) - 1

    def _put(self, at: int, block: b.AnyBlock) -> None:
        if self.blocks[at] != block:
            self.blocks[at] = block
            self.changed.add(at)

    def _vanish(self, at: int) -> None:
        if at >= 0:
            self._put(at, b.EmptyBlock(seq=self.blocks[at].seq))


def _checked(call: b.ShownCall, completion: e.CheckCompleted) -> b.ShownCall | None:
    """That changed files have no errors is nothing to talk about."""
    if completion.success and call.summary == e.DIAGNOSTICS:
        return None
    return replace(call, completion=as_call(completion), output="")
