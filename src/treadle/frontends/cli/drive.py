"""Driving a chat from a terminal: events go to a display, signals to the chat, and the end becomes an exit code.

Ctrl-C requests a stop, which is recorded, and the run settles; a second one leaves at once. With `detaches`, Ctrl-C
only leaves: the process watches a chat that existed before. SIGTERM and SIGHUP leave everything as a crash would, but
give the lease back."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Self

import msgspec

from treadle.base.inert import make_inert_line, print_note
from treadle.chat.state import compute_status
from treadle.errors import InvalidInput, TreadleError
from treadle.frontends.cli import options as o
from treadle.frontends.cli.keyboard import Keyboard
from treadle.frontends.cli.terminal import write_json_line
from treadle.frontends.presentation.notices import make_notice
from treadle.library.chat import Chat
from treadle.library.command_stream import CommandStream
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.commands import ChangeOptions
from treadle.protocol.files import FileChange
from treadle.protocol.views import JobView

_CODES: dict[e.EndReason, int] = {
    "done": o.EXIT_OK,
    "task_complete": o.EXIT_OK,
    "superseded": o.EXIT_OK,
    "interrupted": o.EXIT_INTERRUPTED,
    "error": o.EXIT_ERROR,
    "guard": o.EXIT_ERROR,
    "turn_cap": o.EXIT_TURN_CAP,
    "budget": o.EXIT_BUDGET,
    "incomplete": o.EXIT_INCOMPLETE,
}


class Show:
    """A display of events. Its other methods need not repeat facts that the events have shown."""

    def show_event(self, envelope: e.Envelope) -> None:
        raise NotImplementedError

    def set_changed_files(self, files: Sequence[FileChange], world: str) -> None:
        """Receive the net change of each file by the run that ends now, in the project or in a world of it."""

    def set_living_jobs(self, jobs: Sequence[JobView]) -> None:
        """The background commands that live on after the run that ends now."""

    def report_ready(self, chat: Chat) -> None:
        """From now on signals are heard."""

    def report_detach(self, chat: Chat, *, driven: bool) -> None:
        """Report that this process stops watching. `driven`: it drove the chat, which else goes on elsewhere."""


class JsonLines(Show):
    """The display of `--json`: one event a line, each flushed at once."""

    def show_event(self, envelope: e.Envelope) -> None:
        write_json_line(wire.to_json(envelope))
        sys.stdout.buffer.flush()

    def report_detach(self, chat: Chat, *, driven: bool) -> None:
        print_note(f"treadle: {describe_detach(chat, driven)}")


def describe_detach(chat: Chat, driven: bool) -> str:
    if driven:
        return f"left; nothing works on chat {chat.id} now · go on: treadle resume {chat.id}"
    return f"left; chat {chat.id} goes on elsewhere · watch: treadle resume {chat.id} · stop: treadle stop {chat.id}"


class Ending:
    """Listens for how a run ends, to say it as an exit code (U-01)."""

    def __init__(self) -> None:
        self.code = o.EXIT_OK
        self._capped = self._refused = False

    def observe_event(self, envelope: e.Envelope) -> None:
        match envelope.data:
            case e.LimitReached(kind="turns", scope="run") | e.UserInputRequested(purpose="limit"):
                self._capped = True
            case (e.PermissionCompleted() | e.UserInputCompleted()) as answer if answer.synthetic == e.HEADLESS:
                self._refused = True
            case e.SessionIdle(reason=reason):
                # With `--on-limit error` the run ends with an error, and the error is the cap.
                self.code = o.EXIT_TURN_CAP if self._capped and reason == "error" else _CODES[reason]
                if self.code == o.EXIT_OK and self._refused:
                    self.code = o.EXIT_REFUSED
            case e.ActionRequired():
                self.code = o.EXIT_TURN_CAP if self._capped else o.EXIT_WAITING


async def drive(chat: Chat, following: CommandStream, show: Show, after_seq: int, *, detaches: bool = False) -> int:
    """Carry out a command and show everything recorded behind `after_seq`, until the chat is idle or waits."""
    ending = Ending()
    steps: list[FileChange] = []
    with Signals(chat, detaches=detaches) as signals:
        show.report_ready(chat)
        run = None if isinstance(show, JsonLines) else (await chat.state()).run
        # Changes of the current run up to `after_seq`: made in another process, or before the chat waited.
        for earlier in await chat.events(run.first) if run is not None and run.first < after_seq else ():
            steps += get_steps(await chat.load_full_event(earlier)) if earlier.seq <= after_seq else ()
        async with aclosing(_complete(chat, following, after_seq)) as events:
            async for envelope in events:
                ending.observe_event(envelope)
                if isinstance(show, JsonLines):
                    show.show_event(envelope)
                    continue
                envelope = await chat.load_full_event(envelope)
                if isinstance(envelope.data, e.SessionIdle):
                    state = await chat.state()
                    show.set_changed_files(await chat.files.net(steps), state.options.world)
                    jobs = await chat.jobs() if state.jobs or state.pending_jobs else ()
                    show.set_living_jobs([job.view for job in jobs if is_open_job(job.view)])
                    steps.clear()
                steps += get_steps(envelope)
                show.show_event(envelope)
        return ending.code
    if detaches and signals.ended_by == signal.SIGINT:
        show.report_detach(chat, driven=chat.driven_here)
    return 128 + signals.ended_by


def is_open_job(view: JobView) -> bool:
    """True if a background command runs, or has changes that are not committed."""
    return view.status in ("running", "elsewhere") or view.pending > 0


def get_steps(envelope: e.Envelope) -> tuple[FileChange, ...]:
    return envelope.data.files if isinstance(envelope.data, e.FilesChanged | e.Undone | e.Redone) else ()


async def _complete(chat: Chat, following: CommandStream, last_seq: int) -> AsyncGenerator[e.Envelope, None]:
    """Every record once and in order, also those that were written before the following began. When its run has ended,
    queued messages are driven too: no other process may be there to do so."""
    for envelope in await chat.events(last_seq):
        last_seq = envelope.seq
        yield envelope
    while True:
        async for envelope in following:
            if envelope.seq > last_seq + 1:
                for missed in await chat.events(last_seq):
                    if missed.seq < envelope.seq:
                        yield missed
            if envelope.seq == 0 or envelope.seq > last_seq:
                yield envelope
                last_seq = envelope.seq or last_seq
        for envelope in (unseen := await chat.events(last_seq)):
            last_seq = envelope.seq
            yield envelope
        began = any(isinstance(envelope.data, e.UserMessage) for envelope in unseen)
        if not began and compute_status(await chat.state()) not in ("pending", "running"):
            return
        following = chat.resume()


def list_ending_signals() -> list[signal.Signals]:
    """The signals that end a program from outside. A hangup that is ignored stays ignored: `nohup` asks for that."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGTERM] if is_ignored else [signal.SIGTERM, signal.SIGHUP]


class Signals:
    """For the length of a block: SIGINT interrupts the chat's run, or with `detaches` ends the block; so do SIGTERM and
    SIGHUP. `ended_by` is the signal that ended it. A second SIGINT ends the process."""

    def __init__(self, chat: Chat, *, detaches: bool = False) -> None:
        self._chat, self._detaches = chat, detaches
        self._work = asyncio.current_task()
        self._stopping: asyncio.Task[None] | None = None
        self._cancels = 0  # of `_work`, by signals
        self._ending_signals, self._old_interrupt = list_ending_signals(), signal.getsignal(signal.SIGINT)
        self.ended_by = 0

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        for number in self._ending_signals:
            loop.add_signal_handler(number, self._leave, number)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, *self._ending_signals):
            loop.remove_signal_handler(number)
        signal.signal(signal.SIGINT, self._old_interrupt)
        if self._stopping is not None:
            self._stopping.cancel()
        work, self._work = self._work, None  # a late refusal of the interrupt must not cancel what follows the block
        if work is not None:
            for _cancel in range(self._cancels):
                work.uncancel()
        return kind is asyncio.CancelledError and self._cancels > 0

    def _interrupt(self) -> None:
        if self._stopping is not None or self.ended_by:
            Keyboard.restore_now()
            os._exit(o.EXIT_INTERRUPTED)
        if self._detaches:
            return self._leave(signal.SIGINT)
        self._stopping = asyncio.create_task(self._stop())

    async def _stop(self) -> None:
        try:
            await self._chat.interrupt()
        except TreadleError:  # it has just ended, or waits for someone; or the log cannot be written
            self._leave(signal.SIGINT)

    def _leave(self, number: int) -> None:
        self.ended_by = number
        if self._work is not None:
            self._cancels += 1
            self._work.cancel()


class _LastWords(JsonLines):
    """Keeps what the model said last, and tells what goes wrong."""

    text = ""

    def show_event(self, envelope: e.Envelope) -> None:
        match envelope.data:
            case e.AssistantMessage(content=content) if content:
                self.text = content
            case e.SessionError() | e.TurnRetry() | e.LimitReached() as odd:
                _say((make_notice(odd) or ("",))[0])


async def print_output(chat: Chat, text: str, schema: str, after_seq: int) -> int:
    """Carry out `treadle run --output-schema`: give the task, and again what is wrong with the answer, until it fits;
    then print it as one JSON value, and nothing else."""
    from treadle.library.structured import AGAIN, REPAIRS, Shape, Unfit

    try:
        schema_object = msgspec.json.decode(schema)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the output schema is no valid JSON: {error}") from error
    if not isinstance(schema_object, dict):
        raise InvalidInput("the output schema must be a JSON object")
    shape: Shape[object] = Shape(schema_object)
    await chat.command(ChangeOptions({"output_schema": shape.schema}))
    show = _LastWords()
    for repairs_left in range(REPAIRS, -1, -1):
        code = await drive(chat, chat.send(text, traceparent=os.environ.get("TRACEPARENT", "")), show, after_seq)
        after_seq = (await chat.state()).head
        if code != o.EXIT_OK:
            return code
        try:
            output = shape.read(show.text)
        except Unfit as unfit:
            _say(f"the answer does not fit the output schema{'; asked again' if repairs_left else ''}:\n{unfit}")
            text = AGAIN.format(problem=unfit)
            continue
        write_json_line(msgspec.json.format(msgspec.json.encode(output), indent=2))
        return o.EXIT_OK
    return o.EXIT_ERROR


def _say(text: str) -> None:
    for line in text.split("\n"):
        print_note(f"treadle: {make_inert_line(line, 500)}")
