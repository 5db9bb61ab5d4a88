"""The facts beside the conversation: the state of the chat, from events alone."""

from contextlib import suppress

import msgspec
from msgspec.structs import replace

from treadle.base.types import ChatId
from treadle.protocol import events as e
from treadle.protocol.content import PlanStep, Usage
from treadle.protocol.options import ChatOptions
from treadle.protocol.subagent_events import decode_children
from treadle.protocol.views import QueueItem


class Overview(msgspec.Struct, frozen=True):
    title: str = ""
    options: ChatOptions = ChatOptions()
    busy: bool = False  # a run or a compaction is under way, in this process or another
    stopping: bool = False
    activity: str = ""  # in a few words
    began_ms: int = 0  # when the run began
    plan: tuple[PlanStep, ...] = ()
    queue: tuple[QueueItem, ...] = ()
    jobs: tuple[str, ...] = ()  # the handles of background commands that have not ended
    children: tuple[ChatId, ...] = ()  # chats that calls of the run began and that are not at rest yet
    actions: tuple[e.OpenAction, ...] = ()
    usage: Usage = Usage()  # of the whole chat
    run_usage: Usage = Usage()  # of the run that is under way, or of the last one
    turns: int = 0
    calls: int = 0
    tokens: int = 0
    window: int = 0
    cost: float = 0.0
    sandbox: str = ""
    branch: str = ""
    last_end: str = ""


def get_usage(event: e.Event) -> Usage | None:
    """The cost that a recorded event adds to its chat; None if it adds nothing."""
    spending = e.TurnEnd | e.TurnRetry | e.ModelCall | e.SubagentCompleted
    return event.usage if isinstance(event, spending) else None


def apply_event(view: Overview, envelope: e.Envelope) -> Overview:
    event = envelope.data
    if (spent := get_usage(event)) is not None:
        view = replace(view, usage=view.usage + spent, run_usage=view.run_usage + spent)
    match event:
        case e.SessionCreated(options=options):
            return replace(view, options=options)
        case e.OptionsChanged(changes=changes):
            with suppress(msgspec.ValidationError):  # of a newer Treadle
                options = msgspec.convert({**msgspec.to_builtins(view.options), **changes}, ChatOptions)
                return replace(view, options=options)
            return view
        case e.TitleChanged(title=title):
            return replace(view, title=title)
        case e.UserMessage():
            view = replace(view, queue=tuple(item for item in view.queue if item.id != event.queue_id))
            return view if view.busy and not event.edits else _begin_run(view, event, envelope.time_ms)
        case e.TurnStart():
            return replace(view, busy=True, activity="waiting for the model", turns=view.turns + 1)
        case e.SubagentCompleted(chat=chat):
            return replace(view, children=tuple(each for each in view.children if each != chat))
        case e.ReasoningDelta() | e.MessageDelta():
            activity = "thinking" if isinstance(event, e.ReasoningDelta) else "answering"
            return view if view.activity == activity else replace(view, activity=activity)
        case e.ExecutionStart(name=name, plan=plan):
            new_children = tuple(child.chat for child in decode_children(plan) if child.chat not in view.children)
            return replace(view, activity=f"running {name}", busy=True, children=(*view.children, *new_children))
        case e.TrialStart(name=name):
            return replace(view, activity=f"running {name}", busy=True)
        case e.ExecutionComplete(sandbox=sandbox):
            view = replace(view, calls=view.calls + 1, sandbox=sandbox or view.sandbox)
            return replace(view, activity="working" if view.busy else "")
        case e.Interrupted():
            return replace(view, stopping=True, activity="stopping")
        case e.CompactionStart(trigger=trigger):
            view = replace(view, busy=True, began_ms=envelope.time_ms) if trigger == "manual" else view  # idle before
            return replace(view, activity="summing up")
        case e.CompactionComplete(trigger="manual"):
            return replace(view, busy=False, stopping=False, activity="")
        case e.PlanUpdated(steps=steps):
            return replace(view, plan=steps)
        case e.UsageInfo(tokens=tokens, window=window, cost=cost):
            return replace(view, tokens=tokens, window=window or view.window, cost=cost)
        case e.SandboxNotice(level=level):
            return replace(view, sandbox=level)
        case e.GitBranchCreated(branch=branch):
            return replace(view, branch=branch)
        case e.JobStarted(job=job):
            return replace(view, jobs=(*view.jobs, job))
        case e.JobEnded(job=job):
            return replace(view, jobs=tuple(each for each in view.jobs if each != job))
        case e.PermissionCompleted() | e.UserInputCompleted():
            still = _update_actions(view.actions, event)
            return replace(view, actions=still, activity=view.activity if still else "working")
        case e.QueueChanged():
            return replace(view, queue=_update_queue(view.queue, event))
        case e.RunEnd(reason=reason):
            steps = () if all(step.status == "done" for step in view.plan) else view.plan
            view = replace(view, busy=False, stopping=False, activity="", last_end=reason)
            return replace(view, plan=steps, actions=(), children=())
        case _:
            return replace(view, actions=_update_actions(view.actions, event))


def _begin_run(view: Overview, message: e.UserMessage, now_ms: int) -> Overview:
    title = view.title or message.content.strip().partition("\n")[0][:80]
    view = replace(view, busy=True, activity="starting", began_ms=now_ms, title=title)
    return replace(view, turns=0, calls=0, run_usage=Usage())


def _update_queue(queue: tuple[QueueItem, ...], event: e.QueueChanged) -> tuple[QueueItem, ...]:
    match event.op:
        case "added":
            return (*queue, QueueItem(event.id, event.content, event.delivery))
        case "deleted":
            return tuple(item for item in queue if item.id != event.id)
        case "edited":
            return tuple(replace(item, content=event.content) if item.id == event.id else item for item in queue)
        case "promoted":
            promoted = [replace(item, delivery="steering") for item in queue if item.id == event.id]
            return (*promoted, *(item for item in queue if item.id != event.id))


def _update_actions(actions: tuple[e.OpenAction, ...], event: e.Event) -> tuple[e.OpenAction, ...]:
    """Open actions as the log tells them; `action_required` tells all of them at once, and with more of each."""
    added_actions: tuple[e.OpenAction, ...] = ()
    match event:
        case e.PermissionRequested(action=action, call=call):
            item = e.OpenAction(action, "permission", call, text=event.shown, hash=event.hash, reason=event.reason)
            added_actions = (replace(item, severity=event.severity, offers=event.offers, network=event.network),)
        case e.UserInputRequested(action=action, call=call):
            item = e.OpenAction(action, "user_input", call, event.purpose, text=event.question, options=event.options)
            added_actions = (item,)
        case e.PermissionCompleted(action=action) | e.UserInputCompleted(action=action):
            pass
        case _:
            return actions
    return (*(each for each in actions if each.action != action), *added_actions)
