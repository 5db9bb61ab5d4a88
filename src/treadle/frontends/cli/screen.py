"""The display of a run: the answer as it comes, a line for every call, and at the end what it cost."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from treadle.base.inert import make_inert, make_inert_line
from treadle.base.types import CallKey, ChatId
from treadle.chat.state import ChatState
from treadle.frontends.cli.drive import Show, describe_detach
from treadle.frontends.cli.terminal import Terminal
from treadle.frontends.presentation import notices
from treadle.frontends.presentation.overview import get_usage
from treadle.frontends.presentation.styled import Span, format_model_name, join_spans, shorten_to_tail
from treadle.library.chat import Chat
from treadle.protocol import events as e
from treadle.protocol.content import Usage
from treadle.protocol.views import Coalescer, JobView, summarize_arguments

if TYPE_CHECKING:
    from treadle.frontends.cli.prose import Prose

_PLAN_MARKS = {"pending": "·", "in_progress": ">", "done": "✓"}
_TICK_S = 0.25
_FRAMES, _ASCII_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "-\\|/"


class Activity:
    """The status line of a silent activity: a model that thinks, a command that runs. It moves and counts the seconds,
    so that waiting does not look like hanging. On a terminal only."""

    def __init__(self, terminal: Terminal, *, moves: bool) -> None:
        self._terminal, self._moves = terminal, moves and terminal.live
        self._text = self._tail = ""
        self._since, self._ticks = 0.0, 0
        self._timer: asyncio.TimerHandle | None = None

    def show(self, text: str, tail: str = "") -> None:
        """Show the activity `text` and its last news, `tail`. The clock of the same text continues."""
        if text != self._text:
            self._since = time.monotonic()
        is_shown = text == self._text and self._terminal.status_line
        self._text, self._tail = text, tail
        self._draw(with_clock=bool(is_shown))
        if self._moves and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def end(self) -> None:
        """It is over: the same again begins anew."""
        self._text = ""

    def _tick(self) -> None:
        self._timer = None
        if self._terminal.status_line:
            self._ticks += 1
            with suppress(OSError):  # a timer has no caller to report to; the next event raises the error
                self._draw(with_clock=True)
            self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _draw(self, *, with_clock: bool) -> None:
        frames, seconds = _ASCII_FRAMES if self._terminal.ascii else _FRAMES, int(time.monotonic() - self._since)
        clock = frames[self._ticks % len(frames)] + (f" {seconds} s" if seconds else "")
        parts = (self._text, clock if with_clock else "", self._tail)
        self._terminal.show_status(" ".join(part for part in parts if part))


class Screen(Show):
    """Shows a run. `echo` shows the user's own messages too, for a log that is read instead of lived."""

    def __init__(
        self, terminal: Terminal | None = None, *, echo: bool = False, asks: bool = False, watches: bool = False
    ) -> None:
        self._terminal = terminal = terminal or Terminal()
        self._echo = echo
        self._asks = asks  # true if a person is there: a dialogue asks the questions of the chat
        self._watches = watches  # it was there before and is left by Ctrl-C: that is told once
        self._coalescer = Coalescer()
        self._timer: asyncio.TimerHandle | None = None
        self._prose: Prose | None = None
        if terminal.has_columns:
            from treadle.frontends.cli import prose  # not needed for a pipe, which gets the text as it is

            self._prose = prose.Prose(terminal.stream, lambda: terminal.width, markup=terminal.colours)
        self._activity = Activity(terminal, moves=not echo)
        self._asked: set[CallKey] = set()  # calls whose change a person was shown, and need not see again
        self._received = ""  # the text of the present answer that came live; shown or about to be
        self._calls: dict[CallKey, tuple[str, str]] = {}
        self.seq = 0  # the last recorded event that was shown
        self._began = time.monotonic()
        self._waits_since = 0.0  # since when a person is asked: that is not the run's time
        self._usage = Usage()
        self._turns = self._done = 0
        self._ended = False
        self._changed: Sequence[e.FileChange] = ()  # the net file changes of the run, counted from its beginning
        self._world = ""  # the world of those changes; empty for the project itself
        self._living: Sequence[JobView] = ()

    def begin(self, chat: ChatId, model: str, root: str, *, resumed: bool = False) -> None:
        head = f"{'resuming' if resumed else 'chat'} {chat} · "
        room = max(40, self._terminal.width - len(head) - 4)
        model_text = format_model_name(model, room // 2)
        root_text = shorten_to_tail(make_inert_line(root), room - len(model_text))
        self._terminal.write_note(f"{head}{model_text} · {root_text}", "dim")

    def load_calls(self, state: ChatState) -> None:
        """Calls that were under way before this process began."""
        if state.run is not None and state.run.check is not None:
            self._calls[state.run.check.check] = ("check", state.run.check.command)
        for call in state.calls:
            arguments = msgspec.json.encode(call.arguments).decode() if call.arguments else call.request.arguments
            self._calls[call.key] = (call.request.name, summarize_arguments(arguments))

    def load_totals(self, state: ChatState) -> None:
        """Take over the totals of the whole chat, of which only the end was shown."""
        self._usage, self._turns, self._done = state.totals.usage, state.totals.turns, state.totals.tool_calls

    def set_changed_files(self, files: Sequence[e.FileChange], world: str) -> None:
        self._changed, self._world = files, world

    def mark_as_asked(self, action: e.OpenAction) -> None:
        if action.kind == "permission" and action.call:
            self._asked.add(action.call)

    def report_ready(self, chat: Chat) -> None:
        if self._watches:
            stop = "Esc stops the run" if self._asks else f"stop the run: treadle stop {chat.id}"
            self._terminal.write_note(f"   Ctrl-C leaves; {stop}", "dim")
            self._watches = False

    def report_detach(self, chat: Chat, *, driven: bool) -> None:
        self._end_text()
        self._terminal.tell(f"── {describe_detach(chat, driven)}", "yellow")

    def set_living_jobs(self, jobs: Sequence[JobView]) -> None:
        self._living = jobs

    def show_event(self, envelope: e.Envelope) -> None:
        event = envelope.data
        self.seq = envelope.seq or self.seq
        self._usage += get_usage(event) or Usage()
        if self._waits_since:
            self._began += time.monotonic() - self._waits_since
            self._waits_since = 0.0
        match event:
            case e.MessageDelta(text=text):
                self._received += text
                self._say(self._coalescer.feed(text, time.monotonic()))
                if self._timer is None:  # text must not hang until more of it comes
                    self._timer = asyncio.get_running_loop().call_later(Coalescer.INTERVAL_S, self._say_due_text)
            case e.ReasoningDelta():
                self._activity.show("thinking …")
            case e.TurnStart():
                self._activity.show("waiting for the model …")
            case e.AssistantReset():
                self._coalescer.reset()
                if self._prose is not None:
                    self._prose.drop()
                if self._received:
                    self._terminal.write_note("(that answer was broken off and is begun again)", "dim")
                self._received = ""
            case e.AssistantMessage():
                self._show_answer(event)
            case e.TurnEnd():
                self._activity.end()
                self._turns += 1
            case e.TrialStart() | e.ExecutionStart() | e.ExecutionOutput() | e.ExecutionComplete():
                self._show_call(event)
            case e.CheckStarted(check=check, command=command):
                self._calls[check] = ("check", command)
                self._activity.show(f"● check {command} …")
            case e.CheckCompleted(check=check):
                command = self._calls.get(check, ("", ""))[1]
                self._terminal.show(notices.format_check_lines(command, event, self._terminal.width))
            case e.UserMessage():
                self._show_user_message(event)
            case e.PlanUpdated(steps=steps):
                for step in steps:
                    mark = _PLAN_MARKS.get(step.status, "·")
                    text = make_inert_line(step.text, self._terminal.width - 4)
                    self._terminal.write_line(f"  {mark} {text}", *(() if step.status == "in_progress" else ("dim",)))
            case e.TaskComplete(summary=summary) if summary:
                self._terminal.stream(join_spans(Span("✓", ("green",)), " "))
                self._show_full_text(summary)
            case e.ModelCall(purpose="summary", text=text) if text:
                self._show_full_text(text)
            case e.RunEnd():
                self._ended = True
            case e.SessionIdle():
                self._show_idle(envelope.chat, event)
            case e.ActionRequired(actions=actions):
                self._show_waiting(envelope.chat, actions)
            case _:
                self._show_notice(event)

    def _say_due_text(self) -> None:
        self._timer = None
        with suppress(BrokenPipeError):  # a timer has no caller to report to; the next event raises the error
            self._say(self._coalescer.take_due(time.monotonic()))

    def _say(self, text: str) -> None:
        """Write a piece of the answer: formatted as Markdown on a terminal, otherwise as it is."""
        if self._prose is not None:
            self._prose.feed(make_inert(text))  # before it is wrapped: an escape is wider than its character
        else:
            self._terminal.stream(text)

    def _end_prose(self) -> None:
        if self._prose is not None:
            self._prose.end()

    def _end_text(self) -> None:
        self._say(self._coalescer.flush())
        self._coalescer.reset()
        self._end_prose()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _show_answer(self, message: e.AssistantMessage) -> None:
        self._end_text()
        missing = message.content.removeprefix(self._received) if self._received else message.content
        if missing != message.content or not self._received:
            self._say(missing)
            self._end_prose()
        if message.content:
            self._terminal.end_line()
        if message.partial:
            self._terminal.write_line("(cut short)", "dim")
        self._received = ""
        for request in message.tool_requests:
            self._calls[request.call] = (request.name, summarize_arguments(request.arguments))

    def _show_call(self, event: e.TrialStart | e.ExecutionStart | e.ExecutionOutput | e.ExecutionComplete) -> None:
        name, summary = self._calls.get(event.call, ("", ""))
        match event:
            case e.TrialStart() | e.ExecutionStart():
                summary = event.args_summary or summary
                self._calls[event.call] = (event.name, summary)
                if event.name not in notices.QUIET:
                    self._activity.show(f"● {event.name} {make_inert_line(summary, 60)} …")
            case e.ExecutionOutput(text=text):
                last = text.rstrip("\n").rpartition("\n")[2]
                self._activity.show(f"● {name} {make_inert_line(summary, 60)} …", last)
            case e.ExecutionComplete():
                self._done += 1
                self._activity.end()
                lines = notices.format_call_lines(name or "call", summary, event, self._terminal.width)
                has_shown_diff = event.call in self._asked and event.success and event.diff_stat is not None
                self._terminal.show(lines[:1] if has_shown_diff else lines)

    def _show_user_message(self, message: e.UserMessage) -> None:
        if message.source == "check":
            self._terminal.write_note("> (check)", "dim")
            for line in make_inert(message.content).split("\n"):
                self._terminal.write_note(f"  {line}", "dim")
        elif message.source != "person":
            self._terminal.write_note(f"> ({message.source}) {make_inert_line(message.content, 200)}", "dim")
        elif self._echo or message.delivery != "idle":
            self._terminal.write_line(f"> {message.content}", "cyan")

    def _show_full_text(self, text: str) -> None:
        """A text that is there at once."""
        self._say(text)
        self._end_prose()
        self._terminal.end_line()

    def _show_notice(self, event: e.Event) -> None:
        if styled_notice := notices.make_notice(event):
            self._terminal.tell(*styled_notice)
        if isinstance(event, e.TurnRetry):
            self._activity.show("waiting to try again …")

    def _show_idle(self, chat: ChatId, idle: e.SessionIdle) -> None:
        self._end_text()
        if self._turns or self._done or self._ended:
            seconds = 0 if self._echo else time.monotonic() - self._began
            spent = notices.format_cost(self._usage, self._turns, self._done, seconds)
            self._terminal.tell(f"── {notices.describe_end(idle)} · {spent}", "dim")
            for line in notices.describe_changes(chat, self._changed, self._world):
                self._terminal.tell(f"   {line}", "dim")
            for line in notices.describe_living_jobs(chat, self._living):
                self._terminal.tell(f"   {line}", "yellow")
            self._changed = self._living = ()
        else:
            self._terminal.write_note(f"── nothing to do: the chat is idle ({notices.describe_end(idle)})", "dim")
        self._terminal.tell(f"   {notices.suggest_next_step(chat, idle.reason)}", "dim")

    def _show_waiting(self, chat: ChatId, actions: tuple[e.OpenAction, ...]) -> None:
        self._end_text()
        if all(action.of_person for action in actions):
            self._waits_since = time.monotonic()
        if self._asks:
            return
        self._terminal.write_note(f"── chat {chat} waits for someone", "yellow")
        for action in actions:
            for line in notices.describe_request(action):
                self._terminal.write_note(f"   {line}")
            self._terminal.write_note(f"   answer with: {notices.suggest_answer(chat, action)}", "dim")
