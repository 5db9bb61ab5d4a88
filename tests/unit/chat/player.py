"""Plays a chat without any I/O: commands go through `transition`, and worker moves are what the engine appends for the
step that `decide` gives. The caller chooses freely among events that could happen. Checks the rules on the way."""

from collections import Counter
from collections.abc import Callable, Sequence

from treadle.base.types import CallKey, ChatId, make_call_key
from treadle.chat import snapshot
from treadle.chat.budget import admit, find_broken_limit, find_exhausted_limit
from treadle.chat.decide import (
    AppendEvents,
    CallModel,
    Compact,
    Restore,
    RunCalls,
    RunCheck,
    RunLimits,
    StayIdle,
    Step,
    Summarize,
    Wait,
    decide,
)
from treadle.chat.fold import fold, fold_all
from treadle.chat.state import ChatState, OpenCheck, build_summary, choose_next_queued, list_open_actions
from treadle.chat.transcript import build_entries
from treadle.chat.transitions import transition
from treadle.errors import InvalidInput, Refused
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, ToolRequest, Usage
from treadle.protocol.options import ChatOptions
from treadle.protocol.views import STATUSES

CHAT = ChatId("c_play")
COST = Usage(80, 20)
LIMITS = RunLimits(window=100_000, max_output=1_000)
Choose = Callable[[Sequence[str]], str]
"""Picks one of several things that could happen next."""


def valid_history(history: Sequence[Entry]) -> None:
    """Every provider demands this: after each answer with calls exactly its results, in order, and no others."""
    for index, entry in enumerate(history):
        previous_entry = history[index - 1] if index else None
        if isinstance(entry, AssistantEntry) and entry.calls:
            next_entry = history[index + 1] if index + 1 < len(history) else None
            assert isinstance(next_entry, ResultsEntry), f"calls without results: {entry}"
            assert [result.call for result in next_entry.results] == [call.call for call in entry.calls]
        if isinstance(entry, ResultsEntry):
            assert isinstance(previous_entry, AssistantEntry), f"results without calls: {entry}"
            assert previous_entry.calls, f"results without calls: {entry}"


class Player:
    def __init__(self, options: ChatOptions) -> None:
        self.log: list[e.Envelope] = []
        self.state = ChatState(chat=CHAT)
        self.time_ms = 1_000
        self.epoch = 1
        self.fresh = True
        """The worker has just begun and must settle what the one before it left open."""
        self.append(0, e.SessionCreated(options))

    # -- writing ------------------------------------------------------------------------------------------------------

    def append(self, epoch: int, *events: e.Event) -> None:
        queue = choose_next_queued(self.state) if self.state.run is None else None
        for event in events:
            envelope = e.Envelope(self.state.head + 1, CHAT, self.time_ms, event, epoch)
            assert isinstance(event, e.UserMessage) is False or self._in_turn(event, epoch, queue)
            self.log.append(envelope)
            self.state = fold(self.state, envelope)
        self.check()

    def _in_turn(self, event: e.Event, epoch: int, queue: object) -> bool:
        """L-08: a worker starts a run only with the message whose turn it is."""
        if not isinstance(event, e.UserMessage) or event.delivery != "queued" or epoch == 0:
            return True
        return queue is not None and getattr(queue, "id", "") == event.queue_id

    def command(self, command: c.Command) -> str:
        """Carry out a command; the code of its refusal, or nothing."""
        old_state, old_bytes = self.state, snapshot.encode(self.state)
        try:
            events = transition(self.state, command)
        except (Refused, InvalidInput) as refusal:
            assert self.state is old_state
            assert snapshot.encode(self.state) == old_bytes, "a refusal changed the state"
            return refusal.reason if isinstance(refusal, Refused) else "invalid"
        if events:
            self.append(0, *events)
        return ""

    def crash(self) -> None:
        """Everything but the log is forgotten, as after kill -9; another worker comes."""
        stored = [wire.decode(CHAT, wire.encode(envelope)) for envelope in self.log]
        again = fold_all(ChatState(chat=CHAT), stored)
        assert again == self.state
        self.state = again
        self.epoch += 1
        self.fresh = True

    # -- the worker ---------------------------------------------------------------------------------------------------

    def work(self, choose: Choose) -> Step:
        """Make one move of a worker: the work of the engine for the step that the rules give."""
        if self.fresh:
            self.fresh = False
            self._recover(choose)
        step = decide(self.state, lambda: LIMITS)
        match step:
            case CallModel(final=final):
                self._call_model(final, choose)
            case RunCalls(calls=()):
                self._recover(choose)
            case RunCalls():
                self._run_calls(step, choose)
            case Compact(trigger=trigger):
                self._compact(trigger, choose)
            case Restore(request=request):
                self._restore(request, choose)
            case RunCheck(check=check):
                self._check_work(check, choose)
            case Summarize():
                self._worker(e.ModelCall("summary", COST, "done"))
            case AppendEvents(events=events):
                self._worker(*events)
            case Wait() | StayIdle():
                self.fresh = True
        return step

    def _worker(self, *events: e.Event) -> None:
        self.append(self.epoch, *events)

    def _recover(self, choose: Choose) -> None:
        state = self.state
        if state.open_turn is not None:
            self._worker(e.TurnRetry(state.open_turn.turn, 1, "worker_lost", usage=state.open_turn.reserved))
        if state.run is not None and state.run.interrupting:
            return
        for call in state.calls:
            if call.phase == "started":
                self._worker(e.ExecutionComplete(call.key, False, error="unknown", synthetic="unknown"))

    def _call_model(self, final: bool, choose: Choose) -> None:
        run = self.state.run
        assert run is not None
        assert not run.applies, "the model is asked for what a person applies"  # L-18
        if self.state.open_turn is None:
            start = e.TurnStart(self.state.turn + 1, "scripted:x", COST, final)
            events = admit(self.state, run, start, self.time_ms)
            self._worker(*events)
            if events[-1] is not start:
                return
        elif self.state.open_turn.attempts and (
            over := find_broken_limit(self.state, run, self.state.open_turn.reserved, self.time_ms)
        ):
            return self._worker(over)
        open_turn = self.state.open_turn
        assert open_turn is not None
        turn = open_turn.turn
        match choose(
            ["calls", "calls", "calls", "calls", "text", "text", "nothing", "retry", "fail", "context", "stop", "die"]
        ):
            case "calls":
                names = [choose(["read", "write", "client", "ask", "approve", "bad", "done"]) for _ in range(3)]
                tool_names = ["same"] * 3 if choose(["work", "work", "rut"]) == "rut" else names[: int(choose("123"))]
                requests = tuple(
                    ToolRequest(
                        make_call_key(turn, position), name, "{}" if name == "same" else f'{{"n":{turn}}}', "id_1"
                    )
                    for position, name in enumerate(tool_names)
                )
                usage_and_reason = (COST, "tool_calls")
                self._worker(e.AssistantMessage(turn, choose(["", "I look."]), (), requests, False, *usage_and_reason))
            case "text":
                self._worker(e.AssistantMessage(turn, "Done.", usage=COST))
            case "nothing":
                self._worker(e.AssistantMessage(turn, usage=COST))
            case "retry" if open_turn.failures < 5:
                self._worker(e.TurnRetry(turn, open_turn.failures + 1, "network", usage=COST))
            case "context" if not open_turn.forced_compaction:
                retry = e.TurnRetry(turn, open_turn.failures + 1, "context_limit")
                self._worker(retry, e.CompactionStart("context_limit"))
            case "stop":
                self.command(c.Interrupt())
                if choose(["text", "silence"]) == "silence":
                    return self._worker(e.TurnEnd(turn, COST, "interrupted"))
                self._worker(e.AssistantMessage(turn, "Par", (), (), True, COST, "interrupted"))
            case "die":
                self.crash()
            case _:
                self._worker(e.SessionError("bad_request", "no"))

    def _run_calls(self, step: RunCalls, choose: Choose) -> None:
        for call in step.calls:
            run = self.state.run
            assert run is not None
            if (over := find_exhausted_limit(self.state, run, self.time_ms)) is not None:
                return self._worker(over)
            start = e.ExecutionStart(call.key, call.request.name, {"n": 1})
            completion = e.ExecutionComplete(call.key, True, "ok")
            match call.request.name:
                case "client":
                    self._worker(start, e.ExternalToolRequested(call.key, "client", {}, call.key, 300.0))
                case "ask":
                    self._worker(start, e.UserInputRequested(call.key, "Which?", call=call.key))
                case "approve" if call.phase == "requested":
                    if choose(["tried", "not"]) == "tried":
                        self._worker(e.TrialStart(call.key, call.request.name, {"n": 1}, plan={"network": True}))
                        if choose(["go", "go", "die"]) == "die":
                            return self.crash()
                    return self._worker(e.PermissionRequested(call.key, call.key, shown="x", hash="h"))
                case "write_file" if call.phase == "requested" and choose(["allowed", "ask"]) == "ask":
                    return self._worker(e.PermissionRequested(call.key, call.key, shown="x", hash="h"))
                case "bad":
                    self._worker(start, e.ExecutionComplete(call.key, False, error="no such tool"))
                case "done":
                    self._worker(start)
                    self._worker(completion, e.TaskComplete("all done"))
                case _:
                    self._worker(start)
                    if choose(["finish", "finish", "die", "stop"]) == "die":
                        return self.crash()
                    self._worker(completion)

    def _check_work(self, check: OpenCheck, choose: Choose) -> None:
        run = self.state.run
        assert run is not None
        if run.check is None:
            self._worker(e.CheckStarted(check.check, check.command, check.attempt, check.paths))
        match choose(["passed", "failed", "failed", "lost", "die", "stop"]):
            case "passed":
                self._worker(e.CheckCompleted(check.check, True, "fine"))
            case "failed":
                self._worker(e.CheckCompleted(check.check, False, "broken"))
            case "lost":
                self._worker(e.CheckCompleted(check.check, False, synthetic="lost"))
            case "die":
                self.crash()
            case _:
                self.command(c.Interrupt())

    def _compact(self, trigger: e.Trigger, choose: Choose) -> None:
        run = self.state.run
        if run is not None and (over := find_broken_limit(self.state, run, COST, self.time_ms)) is not None:
            return self._worker(e.CompactionComplete(trigger, False, error="budget"), over)
        upto = len(self.state.history) // 2
        while upto < len(self.state.history) and isinstance(self.state.history[upto], ResultsEntry):
            upto += 1
        if choose(["made", "failed"]) == "failed" or upto <= self.state.compaction.upto:
            return self._worker(e.CompactionComplete(trigger, False, error="no"))
        completion = e.CompactionComplete(trigger, True, 100, 50, COST, "so far", upto, (2,), upto)
        self._worker(e.ModelCall("compaction", COST), completion)

    def _restore(self, request: e.RestoreRequested, choose: Choose) -> None:
        match choose(["done", "refused", "fault", "die"]):
            case "die":
                self.crash()
            case "fault":
                self._worker(e.SessionError("internal", "x"))
            case how:
                kind = {"undo": e.Undone, "redo": e.Redone, "keep": e.ChangesKept}[request.kind]
                self._worker(kind(request.restore, error="" if how == "done" else "no space"))

    # -- checking -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        state = self.state
        assert [envelope.seq for envelope in self.log] == list(range(1, len(self.log) + 1))
        valid_history(build_entries(state))
        assert len(state.queue) <= 20
        self._check_status()
        self._check_calls()
        self._check_turns()
        self._check_runs()
        self._check_budget()

    def _check_status(self) -> None:
        chat_summary = build_summary(self.state)
        assert chat_summary.status in STATUSES
        step = decide(self.state, lambda: LIMITS)
        if isinstance(step, Wait):
            assert chat_summary.status == "requires_action", chat_summary.status
            assert list_open_actions(self.state), "waits for nobody"
        elif isinstance(step, StayIdle):
            assert chat_summary.status in ("idle", "error")
        else:
            assert chat_summary.status in ("pending", "running", "interrupting"), (chat_summary.status, step)
        assert chat_summary.runnable == (not isinstance(step, Wait | StayIdle))
        self._check_ends(step)

    def _check_ends(self, step: Step) -> None:
        """The rules never talk to themselves for ever: a few records, then an effect, a wait or rest."""
        state = self.state
        for _ in range(12):
            if not isinstance(step, AppendEvents):
                return
            for event in step.events:
                state = fold(state, e.Envelope(state.head + 1, CHAT, self.time_ms, event, self.epoch))
            step = decide(state, lambda: LIMITS)
        raise AssertionError(f"decide goes in circles: {step}")

    def _check_calls(self) -> None:
        requested_keys: list[CallKey] = []
        for envelope in self.log:
            if isinstance(envelope.data, e.AssistantMessage):
                requested_keys.extend(request.call for request in envelope.data.tool_requests)
        results = Counter(x.data.call for x in self.log if isinstance(x.data, e.ExecutionComplete))
        assert len(set(requested_keys)) == len(requested_keys), "a call key repeats"
        assert all(count == 1 for count in results.values()), "a call has two results"
        open_keys = {call.key for call in self.state.calls if call.phase != "done"}
        assert set(requested_keys) - set(results) == open_keys
        if self.state.run is None:
            assert not list_open_actions(self.state)
            assert not self.state.calls
            assert self.state.open_turn is None
            assert self.state.answered_turn is None

    def _check_turns(self) -> None:
        """A turn is a bracket around its calls: nothing of it comes later, and the next one does not begin within it
        (L-02). Its cost is spent with its message, once."""
        open_turn, waited_for = 0, set[CallKey]()
        spent, turn_usages = Usage(), dict[int, Usage | None]()
        for envelope in self.log:
            match envelope.data:
                case e.TurnStart(turn=turn):
                    assert not open_turn, f"turn {turn} begins within turn {open_turn}"
                    open_turn = turn
                case e.AssistantMessage(turn=turn, tool_requests=requests, usage=usage):
                    assert turn == open_turn
                    waited_for = {request.call for request in requests}
                    turn_usages[turn] = usage
                    spent += usage or Usage()
                case e.ExecutionComplete(call=call):
                    waited_for.remove(call)
                case e.TurnEnd(turn=turn, usage=usage):
                    assert (turn, waited_for) == (open_turn, set()), f"turn {turn} ends before {waited_for}"
                    open_turn = 0
                    assert turn_usages.get(turn, usage) == usage, (
                        "the end of a turn tells another cost than its message"
                    )
                    spent += Usage() if turn in turn_usages else usage
                case e.TurnRetry(usage=usage) | e.ModelCall(usage=usage):
                    spent += usage
                case e.UserMessage() | e.RunEnd():
                    assert not open_turn, f"turn {open_turn} is open at {envelope.seq}"
        if self.state.run is None:
            assert spent == self.state.totals.usage

    def _check_runs(self) -> None:
        """Exactly one end for every run, and after an error nothing but the end (L-12)."""
        inside = failed = False
        for envelope in self.log:
            match envelope.data:
                case e.UserMessage():
                    inside = True
                case e.SessionError():
                    failed = inside
                case e.RunEnd():
                    assert inside, "an end without a run"
                    inside = failed = False
                case e.TurnStart() | e.AssistantMessage() | e.ExecutionStart():
                    assert not failed, f"goes on after an error at {envelope.seq}"
        assert inside == (self.state.run is not None)

    def _check_budget(self) -> None:
        """Never overspent by more than one call (fault 30)."""
        run, budget = self.state.run, self.state.options.run_budget
        if run is not None and budget.tokens:
            assert run.usage.tokens <= budget.tokens + COST.tokens
        if run is not None and budget.turns:
            assert run.turns <= budget.turns
        chat = self.state.options.chat_budget
        if chat.tokens:
            assert self.state.totals.usage.tokens <= chat.tokens + COST.tokens

    def check_fold(self, position: int) -> None:
        """Snapshots are caches: folding goes on from any of them as if it had never stopped (law 9)."""
        early_state = fold_all(ChatState(chat=CHAT), self.log[:position])
        read = snapshot.decode(snapshot.encode(early_state))
        assert read == early_state
        assert read is not None
        assert fold_all(read, self.log[position:]) == self.state
