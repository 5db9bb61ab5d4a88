"""Tools, a policy and a workspace that answer from the record: its outcome is all that the engine sees of a call."""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from treadle.base.types import CallKey, ChatId
from treadle.engine.effects import Spilled
from treadle.engine.examination import CHANGED, summarize
from treadle.errors import Conflict, RootChanged, ToolError, TrialLost
from treadle.library.replay.models import WatchedLog
from treadle.library.replay.recording import CallRecord, ReplayStore
from treadle.ports.model import ModelRequest
from treadle.ports.policy import Verdict
from treadle.ports.snapshots import Effect as FileEffect
from treadle.ports.snapshots import Plan
from treadle.ports.toolset import Invocation, Outcome, Question, Rehearsal, Settlement, Tool, Trial
from treadle.protocol import events as e
from treadle.protocol.content import ToolRequest
from treadle.protocol.files import FileChange
from treadle.protocol.options import ChatOptions, Project
from treadle.protocol.tools import Effect, ToolKind, ToolSpec, is_read_only_command

_CHANGE_FIELDS = ("files", "source", "uncaptured", "git")
NEVER_BEGUN = "The record ends before this call begins."
"""The text of a call that has not begun. It does not run beside those that did begin."""


class RecordedTools:
    """A `Toolset`: the tool behind a name is what the calls of this name in the present turn say about it."""

    def __init__(self, log: WatchedLog) -> None:
        self._log = log

    async def prepare_tools(self, chat: ChatId, options: ChatOptions) -> Sequence[str]:
        """Return the notices about MCP servers at this place of the record."""
        notices: list[str] = []
        while (next_one := self._log.stage.recording.find_event(self._log.state.head + 1 + len(notices))) is not None:
            if not (isinstance(next_one.data, e.ModelNotice) and next_one.data.kind == "mcp" and next_one.epoch):
                break
            notices.append(next_one.data.text)
        return notices

    async def await_tool(self, request: ToolRequest, options: ChatOptions) -> str:
        return ""

    def resolve_call(self, request: ToolRequest, options: ChatOptions) -> ToolRequest:
        return request

    def list_specs(self, options: ChatOptions) -> Sequence[ToolSpec]:
        return ()

    def find(self, name: str, options: ChatOptions) -> Tool | ToolSpec | None:
        spec = _derive_spec(name, [call for call in self._list_calls() if call.request.name == name])
        return spec if spec.kind != "function" else RecordedTool(spec, self._log.stage)

    def parse_arguments(self, spec: ToolSpec, text: str) -> dict[str, Any] | str:
        for call in self._list_calls():
            if call.start is None and text == call.request.arguments and is_before_change(self._log.stage):
                return _read(text)
            has_name = spec.name in (call.request.name, call.start.name if call.start is not None else "")
            if has_name and text == call.request.arguments:
                # If a person changed the arguments later, the log has only the text itself.
                return _read(text) if call.edits else _find_final_arguments(call, text)
            if has_name and (edit := _read(text)) in call.edits:
                return _find_final_arguments(call, text) if edit == call.edits[-1] else edit
        return _read(text)

    def _list_calls(self) -> list[CallRecord]:
        return self._log.stage.recording.turn_calls(self._log.state.head)


class RecordedTool:
    """Implements `treadle.ports.toolset.Tool`."""

    def __init__(self, spec: ToolSpec, stage: ReplayStore) -> None:
        self.spec, self._stage = spec, stage

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        call_record = self._stage.recording.calls.get(invocation.call)
        if (call_record is None or call_record.start is None) and is_before_change(self._stage):
            return {}  # a copy was cut between the checkpoint and the call that it stands before
        call = self._get_call(invocation)
        if call.is_lost and call.complete is not None:
            raise TrialLost(call.complete.error)
        skipped = call.complete is not None and call.complete.synthetic == "skipped"  # a check that could not be run
        if (call.refused or skipped) and call.complete is not None:
            raise Conflict(call.complete.error, {file.path: file.digest for file in call.complete.seen})
        if self.spec.read_only and not call.parallel and call.start_seq == self._stage.recording.cut:
            raise ToolError(NEVER_BEGUN)  # a copy was cut before its refusal; reads that run, run together
        return call.start.plan if call.start is not None else None

    async def run(self, invocation: Invocation) -> Outcome:
        call = self._get_call(invocation)
        question = next((question for question in call.questions if question.seq > self._stage.now), None)
        epoch, ask_model = self._stage.epoch, invocation.ask_model
        for sample in call.samples:  # the model is asked again, as far as this worker did: it says what it said
            is_due = self._stage.now < sample.seq < (question.seq if question is not None else math.inf)
            if is_due and sample.epoch == epoch and ask_model is not None:
                await self._stage.wait_for_turn(sample)
                with suppress(ToolError):
                    await ask_model(ModelRequest("", ()))
        request = question.data if question is not None and question.epoch == epoch else None
        if question is not None and isinstance(request, e.UserInputRequested):
            await self._stage.wait_for_turn(question)
            return Outcome("", question=Question(request.question, request.options, request.plan))
        outcome, complete = call.completed, call.complete
        if outcome is None or complete is None or complete.synthetic == "interrupted" or outcome.epoch != epoch:
            await self._stage.perish()
        await self._stage.wait_for_turn(outcome)
        return Outcome(
            complete.result if complete.success else complete.error, complete.result_summary, complete.success,
            complete.diff_stat, facts=call.facts, output=complete.output, sandbox=complete.sandbox,
            known_files=complete.seen, shell=complete.shell, effect=complete.effect, images=complete.images,
            hosts=complete.hosts, **_collect_changes(call),
        )  # fmt: skip

    async def preview(self, invocation: Invocation) -> str:
        return ""

    async def plan_trial(self, invocation: Invocation) -> Trial | None:
        began = _find_next_trial(self._get_call(invocation), self._stage)
        return None if began is None else Trial(began.plan or {})

    async def rehearse(self, invocation: Invocation) -> Rehearsal | None:
        inputs = self._stage.recording.list_inputs(self._stage.now)
        if any(isinstance(envelope.data, e.Interrupted) for envelope in inputs):
            await self._stage.admit_interrupt()
        await self._stage.require_due()  # the worker may have died meanwhile
        return Rehearsal("")

    async def stop(self, invocation: Invocation) -> Outcome | None:
        if self._is_unknown(invocation):
            return Outcome("", **_collect_changes(self._get_call(invocation)))
        return find_interrupted_changes(self._stage, invocation.call)

    async def settle(self, invocation: Invocation) -> Settlement:
        """An intent that was found out to be done left the same events as one that was run again."""
        return "unknown" if self._is_unknown(invocation) else "run_again"

    def _is_unknown(self, invocation: Invocation) -> bool:
        call = self._get_call(invocation)
        here = call.completed is not None and call.completed.epoch == self._stage.epoch
        return here and call.complete is not None and call.complete.synthetic == "unknown"

    def _get_call(self, invocation: Invocation) -> CallRecord:
        return self._stage.recording.calls[invocation.call]


class RecordedPolicy:
    """Implements `treadle.ports.policy.Policy`."""

    def __init__(self, stage: ReplayStore) -> None:
        self._stage = stage

    async def review(self, spec: ToolSpec, invocation: Invocation, options: ChatOptions) -> Verdict:
        call = self._stage.recording.calls[CallKey(invocation.call)]
        if _find_next_trial(call, self._stage) is None:
            return self._find_recorded_verdict(call, invocation)
        # The card that was answered before the trial, if it showed the words alone: then the engine does not say that
        # the effect has changed since.
        earlier = [request for seq, request in call.asks if seq <= self._stage.now]
        later = [request for seq, request in call.asks if seq > self._stage.now]
        is_unchanged = earlier and later and not later[0].reason.endswith(CHANGED)
        return Verdict("review", approval_text=earlier[-1].shown if is_unchanged else "")

    def _find_recorded_verdict(self, call: CallRecord, invocation: Invocation) -> Verdict:
        if call.permission_request is not None:
            request = next((request for seq, request in call.asks if seq > self._stage.now), None)
            if request is None and invocation.edited:
                return Verdict("allow")
            request = request or call.permission_request
            # That it is asked for again, because it would do something else by now, the engine says itself.
            reason = request.reason
            if request is not call.asks[0][1]:
                reason = reason.removesuffix(CHANGED).removesuffix("; ")
            return Verdict("ask", reason, request.severity, request.shown, request.offers, wants=request.network)
        if call.ruled is not None:
            discards = call.ruled.decision == "allow" and not call.ruled.auto_approved
            unasked = call.ruled.synthetic == e.HEADLESS
            return Verdict("discard" if discards else call.ruled.decision, call.ruled.feedback, unasked=unasked)
        return Verdict("allow")

    async def judge(
        self,
        spec: ToolSpec,
        invocation: Invocation,
        options: ChatOptions,
        rehearsal: Rehearsal | None,
        verdict: Verdict,
    ) -> Verdict:
        return self._find_recorded_verdict(self._stage.recording.calls[CallKey(invocation.call)], invocation)


def _find_next_trial(call: CallRecord, stage: ReplayStore) -> e.TrialStart | None:
    """The trial that this worker recorded before anything else of this call."""
    coming = [(seq, event) for seq, event in (*call.trials, *call.asks) if seq > stage.now]
    seq, event = min(coming, key=lambda pair: pair[0], default=(0, None))
    at = stage.recording.find_event(seq)
    return event if isinstance(event, e.TrialStart) and at is not None and at.epoch == stage.epoch else None


def _derive_spec(name: str, calls: Sequence[CallRecord]) -> ToolSpec:
    """Derive the specification of a tool from its recorded calls, all of one name."""
    starts = [call.start for call in calls if call.start is not None]
    trials = [trial for call in calls for _, trial in call.trials]
    real = [each.name for each in trials] + [start.name for call in calls if (start := call.start) and not call.refused]
    kinds: list[ToolKind] = [call.kind for call in calls if call.kind != "function"]
    writing = any(call.parallel and call.start is not None and call.start.plan is not None for call in calls)
    all_starts: list[e.ExecutionStart | e.TrialStart] = [*starts, *trials]
    keys = ["", *(key for start in all_starts for key in start.arguments)]
    probes = [ToolSpec(name, summary_argument=key) for key in keys]
    effects = {start.effect for start in starts}
    effect: Effect = "execute"
    if effects:
        effect = "edit" if effects <= {"read", "edit"} else "none" if effects == {"none"} else "execute"
    looking = [start for start in starts if start.effect == "read" and not start.read_only]
    arguments = (pair for start in looking for pair in start.arguments.items())
    # A command that only reads is known by its words.
    commands = (key for key, value in arguments if isinstance(value, str) and is_read_only_command(value))
    fitting = (p for p in probes if all(summarize(p, dict(s.arguments)) == s.args_summary for s in all_starts))
    ran = any((call.parallel and not writing) or (call.request.repaired and not call.refused) for call in calls)
    return ToolSpec(
        real[0] if real else name, kind=kinds[0] if kinds else "function",
        read_only=ran or any(start.read_only for start in starts), parallel=writing, timeout_s=0.0,
        summary_argument=next(fitting, probes[0]).summary_argument, effect=effect,
        command_argument=next(commands, ""),
    )  # fmt: skip


def _collect_changes(call: CallRecord) -> dict[str, Any]:
    fields = {} if call.files is None else {name: getattr(call.files, name) for name in _CHANGE_FIELDS}
    return fields | ({"conflicts": call.conflict.conflicts} if call.conflict is not None else {})


def _find_final_arguments(call: CallRecord, text: str) -> dict[str, Any] | str:
    if call.start is None and call.trials:
        return call.trials[-1][1].arguments
    if call.start is None:
        return _read(text) if call.permission_request is not None or call.ruled is not None else NEVER_BEGUN
    unread = call.refused and not call.start.arguments and call.ruled is None
    if unread and call.complete is not None and (call.permission_request is None or call.edits):
        return call.complete.error
    return call.start.arguments


def _read(text: str) -> dict[str, Any]:
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(text, type=dict[str, Any])
    return {}


class RecordedRestorer:
    """Implements `treadle.engine.deps.Restorer`."""

    def __init__(self, stage: ReplayStore) -> None:
        self._stage = stage

    async def carry_out(self, chat: ChatId, project: Project, request: e.RestoreRequested) -> FileEffect:
        due = (await self._stage.require_due()).data
        if not isinstance(due, e.Restored):
            return FileEffect(())
        if due.error:
            raise ToolError(due.error)
        return FileEffect(due.files, due.conflicts, git=due.git)

    async def is_apply_decided(self, chat: ChatId, project: Project, request: e.RestoreRequested) -> bool:
        return False

    async def preview(self, chat: ChatId, project: Project, request: e.RestoreRequested) -> Plan:
        return Plan(())

    async def read_texts(
        self, project: Project, changes: Sequence[FileChange]
    ) -> list[tuple[bytes | None, bytes | None]]:
        return [(None, None) for _ in changes]

    async def release(self, chat: ChatId, project: Project, request: e.RestoreRequested) -> None:
        pass


async def replay_branch(stage: ReplayStore) -> e.GitBranchCreated | None:
    due = (await stage.require_due()).data
    return due if isinstance(due, e.GitBranchCreated) else None


def replay_root(stage: ReplayStore) -> str:
    """Which folder a worker found the root to be, where it looked for the first time or found another one."""
    due = stage.find_due()
    event = due.data if due is not None else None
    if isinstance(event, e.SessionError) and event.error_class == RootChanged.code:
        raise RootChanged(event.message)
    if isinstance(event, e.OptionsChanged) and event.by == "treadle":
        return str(event.changes.get("root_id", ""))
    return ""


async def replay_spill(stage: ReplayStore, files: Sequence[FileChange]) -> Spilled:
    """Where the log has only the first of many changes, so has the replay."""
    for envelope in stage.recording.events[stage.now :]:
        event = envelope.data
        if isinstance(event, e.FilesChanged | e.Restored) and event.files == tuple(files):
            return Spilled(event.files, event.manifest, event.total)
    return Spilled(tuple(files))


def is_before_change(stage: ReplayStore) -> bool:
    """True if this worker has yet to record the events before a run's first change."""
    coming = (envelope for envelope in stage.recording.iterate_outputs(stage.now) if envelope.epoch == stage.epoch)
    return any(isinstance(envelope.data, e.CheckpointCreated | e.GitBranchCreated) for envelope in coming)


def find_interrupted_changes(stage: ReplayStore, call: CallKey) -> Outcome | None:
    """Return the changes that a stopped call had made by then, or None."""
    outcome = Outcome("")
    for envelope in stage.recording.iterate_outputs(stage.now):
        match envelope.data:
            case e.FilesChanged(call=key) as change if key == call:
                outcome = replace(outcome, **{name: getattr(change, name) for name in _CHANGE_FIELDS})
            case e.WorkspaceConflict(call=key, conflicts=conflicts) if key == call:
                outcome = replace(outcome, conflicts=conflicts)
            case e.SubagentCompleted(call=key) as fact if key == call:
                outcome = replace(outcome, facts=(*outcome.facts, fact))
            case _:
                break
    return outcome if outcome != Outcome("") else None
