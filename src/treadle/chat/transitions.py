"""transition(state, command) → events, or a refusal: the only way callers change a chat. Pure; the caller appends
the events in one transaction fenced on the head, so that of many racing commands exactly one wins (A-04)."""

from typing import assert_never

import msgspec
from msgspec.structs import replace

from treadle.chat.applying import build_apply_events
from treadle.chat.closing import RECORD_LOST, close_call, close_calls, end_run, insert_turn_end
from treadle.chat.fold import change_options, find_position
from treadle.chat.fold_calls import CONTINUE
from treadle.chat.state import (
    MAX_QUEUE,
    Call,
    ChatState,
    can_start_queue,
    compute_status,
    is_asking_midway,
    needs_action,
    to_user_message,
)
from treadle.errors import InvalidInput, Refused, describe_unknown_names
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.events import Event
from treadle.protocol.options import NUMBER_BOUNDS, ChatOptions, check_numbers
from treadle.protocol.permissions import Offer, Rule, check_expiry, check_standing
from treadle.protocol.trace_context import normalize_traceparent
from treadle.protocol.views import QueueItem

Events = tuple[Event, ...]
FIXED_OPTIONS = ("root", "world", "archived")  # options that change only when the chat is idle
CREATION_LOST = (
    "The first record of chat {chat} cannot be read, and with it its mode, budgets, owner and folder. The chat can be "
    "shown and exported, and takes no commands. `treadle fsck` says what is damaged."
)


def transition(state: ChatState, command: c.Command) -> Events:
    """The events of a command; none: the requested state is in place. Refused or InvalidInput: nothing changes."""
    if state.creation_lost:
        raise Refused("unreadable", CREATION_LOST.format(chat=state.chat))
    harmless = c.ChangeOptions | c.Rename | c.RecordTitle | c.CloseJob | c.Expire
    if state.options.archived and not isinstance(command, harmless):
        raise Refused("archived", f"Chat {state.chat} is archived; unarchive it first.")
    return insert_turn_end(state, _carry_out(state, command))


def _carry_out(state: ChatState, command: c.Command) -> Events:
    match command:
        case c.Send():
            return _send(state, command)
        case c.SubmitResults():
            return _submit(state, command)
        case c.Decide():
            return _decide(state, command)
        case c.Answer():
            return _answer(state, command)
        case c.Interrupt():
            return _interrupt(state, command)
        case c.Edit():
            return _edit(state, command)
        case c.Rewind():
            return _rewind(state, command)
        case c.Restore():
            return _restore(state, command)
        case c.EditQueued():
            _get_queue_item(state, command.id)
            _require_text(command.content)
            return (e.QueueChanged("edited", command.id, command.content),)
        case c.DeleteQueued():
            return (e.QueueChanged("deleted", _get_queue_item(state, command.id).id),)
        case c.Promote():
            return _promote(state, command)
        case c.ExtendTurns():
            return _extend(state, command)
        case c.ChangeOptions():
            return _change(state, command)
        case c.RecordTitle(title=title, before=before, usage=usage, error=error):
            called = e.ModelCall("title", usage, title, error)
            return (called, e.TitleChanged(title, "model")) if title and state.title == before else (called,)
        case c.Rename():
            _require_text(command.title)
            return (e.TitleChanged(command.title.strip(), command.by),)
        case c.Compact():
            return _compact(state)
        case c.Apply():
            if compute_status(state) not in ("idle", "error"):
                raise _make_busy_error(state, "apply when it is idle")
            return build_apply_events(state, command)
        case c.CloseJob():
            return _close_job(state, command)
        case c.Expire():
            return _expire(state, command)
        case _ as never:
            assert_never(never)


def _require_text(text: str) -> None:
    if not text.strip():
        raise Refused("empty", "The text is empty; say something.")


def _make_busy_error(state: ChatState, advice: str) -> Refused:
    """A chat that works and one that waits for someone are different answers (law 6)."""
    chat_status = compute_status(state)
    words = {"requires_action": "waits for an answer", "pending": "has a run that is not finished"}
    text = f"Chat {state.chat} {words.get(chat_status, f'is {chat_status}')}; {advice}."
    return Refused("awaiting_action" if chat_status == "requires_action" else "busy", text)


def _get_queue_item(state: ChatState, item_id: str) -> QueueItem:
    if (item := next((item for item in state.queue if item.id == item_id), None)) is not None:
        return item
    raise Refused("no_such_queued", f"No queued message {item_id!r}; it may have been used already.")


def _send(state: ChatState, command: c.Send) -> Events:
    if not command.images:
        _require_text(command.content)
    traceparent = normalize_traceparent(command.traceparent)
    message = e.UserMessage(command.content, images=command.images, traceparent=traceparent)
    if state.run is None and not can_start_queue(state):
        return (message,)
    if state.run is not None and state.run.has_lost_record:
        return (e.ModelNotice("record_lost", RECORD_LOST), *end_run(state, "superseded"), message)
    if compute_status(state) == "requires_action" and command.delivery == "steering":
        return (*close_calls(state, "steering"), replace(message, delivery="steering"))
    if len(state.queue) >= MAX_QUEUE:
        raise Refused("queue_full", f"{MAX_QUEUE} messages are queued already; delete one or wait.")
    if not command.queue_id or any(item.id == command.queue_id for item in state.queue):
        raise InvalidInput("A message for a busy chat needs a queue_id of its own.")
    delivery: e.Delivery = "steering" if command.delivery == "steering" else "queued"
    return (e.QueueChanged("added", command.queue_id, command.content, delivery, command.images, traceparent),)


def _list_client_calls(state: ChatState) -> list[Call]:
    return [call for call in state.calls if call.action is not None and call.action.kind == "external_tool"]


def _submit(state: ChatState, command: c.SubmitResults) -> Events:
    waiting = _list_client_calls(state)
    if compute_status(state) != "requires_action" or not waiting:
        raise Refused("not_awaiting_action", f"Chat {state.chat} waits for no tool results.")
    expected = {call.action.tool_call_id: call for call in waiting if call.action is not None}
    result_ids = [result.tool_call_id for result in command.results]
    if len(set(result_ids)) != len(result_ids) or set(result_ids) != set(expected):
        raise Refused("results_mismatch", f"Send exactly one result for each of {sorted(expected)}; got {result_ids}.")
    events: list[Event] = []
    for result in command.results:
        call = expected[result.tool_call_id]
        completion = replace(
            _build_completion(call, _format_result(result), not result.is_error), synthetic=result.failure
        )
        events += (e.ExternalToolCompleted(call.key, result.is_error, command.by), completion)
    return tuple(events)


def _format_result(result: c.Result) -> str:
    if isinstance(result.output, str):
        return result.output
    try:
        return msgspec.json.encode(result.output).decode()
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"The output of {result.tool_call_id} is no JSON: {error}.") from error


def _build_completion(call: Call, text: str, success: bool) -> e.ExecutionComplete:
    first = text.strip().partition("\n")[0][:120]
    texts = (text, "") if success else ("", text or "The tool failed.")
    return e.ExecutionComplete(call.key, success, *texts, first)


def _decide(state: ChatState, command: c.Decide) -> Events:
    for call in state.calls:
        if call.phase == "asking" and call.action is not None and call.action.action == command.action:
            break
    else:
        raise Refused("no_such_action", f"No open approval {command.action!r}; it may have been answered already.")
    if call.action.hash != command.hash:
        raise Refused("hash_mismatch", "The approval does not match the request; look at it again.")
    if command.rule is not None:
        _check_offered(call.action.offers, command.rule, command)
    allowed = command.decision == "allow"
    completion = e.PermissionCompleted(command.action, command.decision, command.by, feedback=command.feedback)
    completion = replace(completion, arguments=command.arguments if allowed else None, rule=command.rule)
    if allowed:
        return (completion,)
    text = "The user refused this call." + (f" They said: {command.feedback}" if command.feedback else "")
    return (completion, e.ExecutionComplete(call.key, False, error=text, result_summary="refused"))


def _check_offered(offers: tuple[Offer, ...], rule: Rule, command: c.Decide) -> None:
    """InvalidInput for a rule that is not one of the offers, or has a wider scope than was offered (S-07)."""
    check_expiry(rule)
    if not any(offer.allows_rule(rule, command.decision) for offer in offers):
        wish = f"{rule.effect} {rule.tool} {rule.pattern} with the scope {rule.scope}"
        text = f"The approval {command.action!r} offers no such rule: {wish}. Choose one of its offers and scopes."
        raise InvalidInput(text)


def _answer(state: ChatState, command: c.Answer) -> Events:
    question = state.question
    if question is not None and question.action == command.action:
        if command.answer not in question.options:
            raise InvalidInput(f"Answer with one of {', '.join(question.options)}; got {command.answer!r}.")
        completion = e.UserInputCompleted(command.action, command.answer, command.by)
        if question.name == "limit" and command.answer == CONTINUE:
            return (completion, e.LimitExtended(state.options.max_turns, command.by))
        return (completion,)
    for call in state.calls:
        action = call.action
        if action is not None and action.kind == "user_input" and action.action == command.action:
            _require_text(command.answer)
            completion = e.UserInputCompleted(command.action, command.answer, command.by)
            if is_asking_midway(call, command.action):
                return (completion,)
            return (completion, _build_completion(call, command.answer, True))
    raise Refused("no_such_action", f"No open question {command.action!r}; it may have been answered already.")


def _interrupt(state: ChatState, command: c.Interrupt) -> Events:
    if state.run is None and state.compacting:
        return () if state.compaction_stopped else (e.Interrupted(command.by),)
    if state.run is None:
        raise Refused("not_running", f"Chat {state.chat} is not running.")
    if state.run.interrupting:
        return ()
    ends = (*close_calls(state, "interrupted"), e.RunEnd("interrupted")) if needs_action(state) else ()
    return (e.Interrupted(command.by), *ends)


def _edit(state: ChatState, command: c.Edit) -> Events:
    _require_text(command.content)
    if find_position(state, command.message) is None:
        raise Refused("no_such_message", f"No message of yours at {command.message} in this conversation.")
    edited = e.UserMessage(command.content, edits=command.message)
    restored = _request_restore(state, command.message, command.restore) if command.files else ()
    if state.run is None:
        return (*restored, edited)
    if compute_status(state) != "requires_action":
        raise _make_busy_error(state, "interrupt it before you edit")
    return (*close_calls(state, "superseded"), e.RunEnd("superseded"), *restored, edited)


def _request_restore(state: ChatState, message: int, name: str, merge: bool = False, by: str = "person") -> Events:
    if state.restoring is not None:
        raise _make_busy_error(state, "wait until its files are restored")
    if not name:
        raise InvalidInput("Restoring files needs a name for it, chosen by the caller (restore).")
    return (e.RestoreRequested(name, "undo", since=message, merge=merge, by=by),)


def _rewind(state: ChatState, command: c.Rewind) -> Events:
    if state.run is not None:
        raise _make_busy_error(state, "interrupt it before you go back")
    if find_position(state, command.message) is None and (
        command.conversation or not 0 < command.message <= state.head
    ):
        raise Refused("no_such_message", f"No message of yours at {command.message} in this conversation.")
    if not (command.conversation or command.files):
        raise InvalidInput("Say what goes back: the conversation, the files, or both.")
    message, by = command.message, command.by
    back = _request_restore(state, message, command.restore, command.merge, by) if command.files else ()
    return (*back, e.SessionRewound(message, by)) if command.conversation else back


def _restore(state: ChatState, command: c.Restore) -> Events:
    if state.run is not None or state.restoring is not None:
        raise _make_busy_error(state, f"{command.kind} when it is idle")
    if not command.restore:
        raise InvalidInput("A request to restore needs a name of its own, chosen by the caller (restore).")
    if command.kind == "redo" and not command.of:
        raise InvalidInput("Name the undo to redo (of).")
    if command.since < 0 or command.upto < 0:
        raise InvalidInput("since and upto are seqs of this chat's log; they cannot be negative.")
    return (e.RestoreRequested(**msgspec.structs.asdict(command)),)


def _promote(state: ChatState, command: c.Promote) -> Events:
    item = _get_queue_item(state, command.id)
    if state.run is None:
        return (to_user_message(item, "queued"),)
    if compute_status(state) == "requires_action":
        return (*close_calls(state, "steering"), to_user_message(item, "steering"))
    return (e.QueueChanged("promoted", command.id),)


def _extend(state: ChatState, command: c.ExtendTurns) -> Events:
    if not 1 <= command.turns <= NUMBER_BOUNDS["max_turns"].most:
        raise InvalidInput("Extend the limit by at least one turn, and by at most a million.")
    if state.run is None:
        raise Refused("not_running", f"Chat {state.chat} is not running.")
    question, extended = state.question, e.LimitExtended(command.turns, command.by)
    if question is not None and question.name == "limit":
        return (e.UserInputCompleted(question.action, CONTINUE, command.by), extended)
    return (extended,)


def _change(state: ChatState, command: c.ChangeOptions) -> Events:
    if unknown := describe_unknown_names("option", command.changes, ChatOptions.__struct_fields__):
        raise InvalidInput(unknown)
    try:
        options = change_options(state.options, command.changes)
        check_numbers(options, command.changes)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"These options do not fit: {error}.") from error
    for rule in options.rules:
        if rule not in state.options.rules:
            check_standing(rule)
    if options == state.options:
        return ()
    at_work = state.run is not None or state.compacting or state.restoring is not None
    if at_work and any(getattr(options, name) != getattr(state.options, name) for name in FIXED_OPTIONS):
        raise _make_busy_error(state, "root, world and archived change only when it is idle")
    return (e.OptionsChanged(command.changes, command.by),)


def _compact(state: ChatState) -> Events:
    if state.run is not None or state.compacting:
        raise _make_busy_error(state, "compact it when it is idle")
    if len(state.transcript) < 2:
        raise Refused("empty", "There is nothing to compact yet.")
    return (e.CompactionStart("manual"),)


def _close_job(state: ChatState, command: c.CloseJob) -> Events:
    open_jobs = state.pending_jobs if command.settlement else state.jobs
    if all(job.job != command.job for job in open_jobs):
        return ()
    fact: e.Event = e.JobEnded(command.job, command.ending, command.code, command.by, command.concerns, command.pending)
    if command.settlement:
        fact = e.JobSettled(command.job, command.settlement, command.by)
    return (fact,) if command.files_changed is None else (fact, command.files_changed)


def _expire(state: ChatState, command: c.Expire) -> Events:
    waiting = _list_client_calls(state)
    due = [call for call in waiting if call.action is not None and 0 < call.action.deadline_ms <= command.now_ms]
    if not due or compute_status(state) != "requires_action":
        return ()
    if state.options.on_deadline == "error":
        failed = e.SessionError("deadline", "Client tools did not answer in time.")
        return (*close_calls(state, "deadline"), failed, e.RunEnd("error"))
    return tuple(event for call in due for event in close_call(call, "deadline"))
