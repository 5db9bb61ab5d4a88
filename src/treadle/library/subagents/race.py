"""The tool `race` (L-22): attempts side by side, each a chat in a world of its own. The winner, chosen by the logs, is
recorded and then committed, as the one change of the call. The others stay for inspection."""

import asyncio
import re
from collections.abc import AsyncIterator, Generator, Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from treadle.adapters.tools.builtin.base import truncate_utf8
from treadle.adapters.tools.builtin.interaction import MOST_TASKS
from treadle.base.file_system import reach_faultpoint
from treadle.base.inert import make_inert_line
from treadle.base.types import CallKey
from treadle.chat.applying import find_last_answer
from treadle.diff.changes import count
from treadle.errors import InvalidInput, ToolError
from treadle.library.chat import Chat
from treadle.library.subagents import delegate
from treadle.library.subagents.children import (
    Children,
    ChildResult,
    Home,
    compute_share,
    list_descendants,
    make_child,
    make_child_options,
    make_failure,
)
from treadle.library.subagents.delegate import build_outcome, format_effect
from treadle.ports.toolset import Invocation, Outcome
from treadle.protocol.commands import ChangeOptions, Race
from treadle.protocol.events import CheckCompleted, CheckStarted, Envelope, RunEnd
from treadle.protocol.options import Budget, ChatOptions, OptionKeywords, RaceKeywords
from treadle.protocol.subagent_events import Child, decode_children
from treadle.protocol.tools import RACE_TOOL
from treadle.protocol.views import ChildView, RaceResult, build_race_result

SHOWN = 20_000  # So many bytes of the diff of an attempt the judge sees.
VERDICT = {
    "type": "object",
    "properties": {"choice": {"type": "integer"}, "why": {"type": "string"}},
    "required": ["choice", "why"],
    "additionalProperties": False,
}
_QUESTION = """\
Several attempts were made at the same task. Choose the one to keep: the one that does what the task asks, correctly \
and completely, with the least that is not needed.

<task>
{task}
</task>

{attempts}

Answer with the number of your choice and with why, in one or two sentences.
"""
_ATTEMPT = "<attempt number={number}>\n{said}\n\n{diff}\n</attempt>"


def has_passed_check(child_result: ChildResult, events: Sequence[Envelope], check: str) -> bool | None:
    """True if the check succeeded when the attempt last reported that it was done; None without a check."""
    if not check:
        return None
    keys: set[CallKey] = set()
    success = False
    for envelope in events:
        match envelope.data:
            case CheckStarted(check=key, command=command) if command == check:
                keys.add(key)
            case CheckCompleted(check=key, success=check_success, synthetic="") if key in keys:
                success = check_success
    return success and child_result.ended_well


def find_end(events: Sequence[Envelope]) -> int:
    return max((envelope.time_ms for envelope in events if isinstance(envelope.data, RunEnd)), default=0)


def select_eligible(attempts: Sequence[ChildResult]) -> list[ChildResult]:
    """Those that may win: they ended well, passed the check if there is one, and changed something."""
    return [each for each in attempts if each.ended_well and each.has_passed is not False and each.effect.files]


def choose(contenders: Sequence[ChildResult], *, first: bool) -> tuple[ChildResult, str]:
    """The winner without a judge: the first that passed, or the smallest change."""
    if first:
        return min(contenders, key=lambda each: (each.ended_ms, each.number)), "the first to pass the check"
    has_check = contenders[0].has_passed is not None
    words = "the smallest change that passes the check" if has_check else "the smallest change"
    return min(contenders, key=lambda each: (each.size, each.number)), words


def format_question(task: str, contenders: Sequence[ChildResult], diffs: Sequence[str]) -> str:
    texts: list[str] = []
    for each, diff in zip(contenders, diffs, strict=True):
        answer = find_last_answer(each.state).strip()
        texts.append(_ATTEMPT.format(number=each.number, said=answer, diff=truncate_utf8(diff, SHOWN)))
    return _QUESTION.format(task=task, attempts="\n\n".join(texts))


def make_judge_options(options: ChatOptions) -> ChatOptions:
    return replace(
        options, mode="read-only", tools=(), output_schema=VERDICT, interactive=False, instructions="", skills=()
    )


def parse_verdict(answer: str, contenders: Sequence[ChildResult]) -> tuple[ChildResult, str] | None:
    """Return the judge's choice and reason; None if its answer names no attempt."""
    read: object = None
    if json_match := re.search(r"\{.*\}", answer, re.DOTALL):
        try:
            read = msgspec.json.decode(json_match[0])
        except msgspec.MsgspecError:
            read = None
    reply = read if isinstance(read, dict) else {}
    number = reply.get("choice")
    if not isinstance(number, int) and (number_match := re.search(r"\d+", answer)):
        number = int(number_match[0])
    for each in contenders:
        if each.number == number:
            return each, f"the judge's choice: {str(reply.get('why') or '').strip() or 'no reason given'}"
    return None


WON = "won"
LOST = "lost"
LABEL = "race"
_NOT_ONE = "No attempt won: {}. Nothing was committed; their worlds stay to be looked at."


async def plan_race(home: Home, invocation: Invocation) -> list[Child]:
    order = _parse_order(invocation)
    if invocation.options.mode == "read-only":
        raise ToolError("In mode read-only nothing can be committed, so there is nothing to race for.")
    children = [
        make_child(invocation, number, f"attempt {number}: {order.task}", model, world=True)
        for number, model in enumerate(order.models, 1)
    ]
    if order.judge:
        children.append(make_child(invocation, len(children) + 1, "judge", order.judge, world=False))
    return children


class _Race:
    def __init__(self, home: Home, invocation: Invocation) -> None:
        self._home, self._invocation = home, invocation
        self._order = _parse_order(invocation)
        self._group = Children(home, invocation)
        children = decode_children(invocation.plan)
        self._attempts = [child for child in children if child.world]
        self._judge = next((child for child in children if not child.world), None)
        self._judged: list[ChildResult] = []

    @property
    def _first_wins(self) -> bool:
        order = self._order
        return bool(order.check) and not order.judge and not order.all

    async def run(self) -> Outcome:
        with self._home.worker.lend_place(self._invocation.chat):
            contenders = await self._run_attempts()
            reach_faultpoint("race.rested")
            if (choice := await self._choose_winner(contenders)) is None:
                return self._report_no_winner(contenders)
            winner, reason = choice
            # In the log of each attempt how it came out; of the winner first, before anything is committed.
            for each in sorted(contenders, key=lambda each: each is not winner):
                labels = (LABEL, WON if each is winner else LOST)
                if each.state.options.labels != labels:
                    await self._home.chat(each.child.chat).command(ChangeOptions({"labels": list(labels)}, by=LABEL))
            reach_faultpoint("race.noted")
            try:
                effect = await self._group.commit(winner.child)
                won = replace(winner, effect=effect, committed=not effect.conflicts)
            except ToolError as error:  # the costs of the attempts are recorded all the same
                won = replace(winner, problem=str(error))
        return self._report_winner([won if each is winner else each for each in contenders], won, reason)

    async def _run_attempts(self) -> list[ChildResult]:
        """All of them at rest, in the order of their numbers."""
        checks = (self._order.check,) if self._order.check else ()
        options = make_child_options(self._invocation.options, await self._compute_share())
        options = replace(options, checks=checks, labels=(LABEL,))
        work = {asyncio.create_task(self._attempt(child, options)): child for child in self._attempts}
        contenders: list[ChildResult] = []
        try:
            pending = set(work)
            while pending:
                finished, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                contenders += [task.result() for task in finished]
                if self._first_wins and select_eligible(contenders):
                    break
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
        at_rest = {each.number for each in contenders}
        stopped = await self._group.end([child for child in self._attempts if child.number not in at_rest])
        contenders += [await self._make_contender(each) for each in stopped]
        return sorted(contenders, key=lambda each: each.number)

    async def _compute_share(self) -> Budget:
        """The part of the parent's budget for each attempt, and for the judge."""
        call = self._invocation
        state = await self._home.deps.log.load(call.chat)
        return compute_share(state, call.call, decode_children(call.plan), self._home.deps.clock.now_ms())

    async def _attempt(self, child: Child, options: ChatOptions) -> ChildResult:
        attempt_options = replace(options, model=child.model or options.model)
        try:
            chat = await self._group.begin(child, self._order.task, attempt_options)
        except ToolError as error:
            return make_failure(child, error)
        return await self._make_contender(ChildResult(child, await self._group.wait_for_child(child, chat)))

    async def _make_contender(self, child_result: ChildResult) -> ChildResult:
        events = await self._home.chat(child_result.child.chat).events()
        has_passed = has_passed_check(child_result, events, self._order.check)
        effect = await self._group.compute_effect(child_result.child)
        return replace(child_result, effect=effect, has_passed=has_passed, ended_ms=find_end(events))

    async def _choose_winner(self, contenders: list[ChildResult]) -> tuple[ChildResult, str] | None:
        """Return the winner and the reason. A recorded winner stays, even if its world changes before the commit."""
        noted = [each for each in contenders if WON in each.state.options.labels]
        able = noted or select_eligible(contenders)
        if not able:
            return None
        if self._judge is not None and (noted or len(able) > 1):
            if (judged := await self._ask(self._judge, able)) is not None:
                return judged
            winner, reason = choose(able, first=False)
            return winner, f"{reason}; the judge made no choice"
        return choose(able, first=self._first_wins)

    async def _ask(self, judge: Child, able: list[ChildResult]) -> tuple[ChildResult, str] | None:
        diffs = [await self._home.worlds.diff(each.child.world) for each in able]
        text = format_question(self._order.task, able, diffs)
        options = make_judge_options(make_child_options(self._invocation.options, await self._compute_share()))
        try:
            chat = await self._group.begin(judge, text, replace(options, model=judge.model))
        except ToolError as error:
            self._judged.append(make_failure(judge, error))
            return None
        state = await self._group.wait_for_child(judge, chat)
        self._judged.append(ChildResult(judge, state))
        return parse_verdict(find_last_answer(state), able)

    def _report_winner(self, all_of: list[ChildResult], won: ChildResult, reason: str) -> Outcome:
        child = won.child
        head = f"Attempt {child.number} wins ({make_inert_line(child.model, 80)}): {make_inert_line(reason, 300)}."
        if won.effect.conflicts:
            names = ", ".join(make_inert_line(each.path, 200) for each in won.effect.conflicts[:10])
            head += f" It was not committed, because {names} changed in the project meanwhile. Bring it in: "
            head += f"treadle world rebase {child.world}, then treadle world commit {child.world}."
        if won.problem:
            head += f" It could not be committed: {make_inert_line(won.problem.rstrip('.'), 300)}. Bring it in: "
            head += f"treadle world commit {child.world}."
        location = f"not committed, in world {child.world}" if won.problem else "changed in the project"
        lines = [head, "", *map(_format_line, all_of), "", *format_effect(won.effect, location)]
        all_results = [*all_of, *self._judged]
        outcome = build_outcome(self._invocation, all_results, ["\n".join(lines).rstrip()], success=won.committed)
        return replace(outcome, summary=f"attempt {child.number} wins: {make_inert_line(reason, 80)}")

    def _report_no_winner(self, contenders: list[ChildResult]) -> Outcome:
        reason = "none of them changed anything to its end"
        if self._order.check:
            has_passed = any(each.has_passed for each in contenders)
            reason = "none of them passed the check"
            reason = "the attempts that passed the check changed nothing" if has_passed else reason
        lines = [_NOT_ONE.format(reason), "", *map(_format_line, contenders)]
        all_results = [*contenders, *self._judged]
        outcome = build_outcome(self._invocation, all_results, ["\n".join(lines)], success=False)
        return replace(outcome, summary="no attempt won")


def _format_line(child_result: ChildResult) -> str:
    check = {None: "", True: "passed", False: "not passed"}[child_result.has_passed]
    size, files = child_result.size
    facts = (
        child_result.state.last_end or "done",
        check,
        f"{count(files, 'file')}, {count(size, 'line')}" if files else "no change",
        f"{count(child_result.state.totals.turns, 'turn')}",
        f"${child_result.state.totals.usage.usd:.4f}" if child_result.state.totals.usage.usd else "",
        f"chat {child_result.child.chat}",
        f"world {child_result.child.world}",
    )
    model = make_inert_line(child_result.child.model, 60)
    return f"[{child_result.child.number}] {model}: " + " · ".join(fact for fact in facts if fact)


def _parse_order(invocation: Invocation) -> Race:
    try:
        return msgspec.convert(invocation.arguments, Race)
    except msgspec.ValidationError as error:
        raise ToolError(f"This is no race: {error}.") from error


class AgentSubagents:
    def __init__(self, home: Home) -> None:
        self._home = home

    async def plan(self, invocation: Invocation) -> dict[str, Any]:
        way = plan_race if invocation.name == RACE_TOOL else delegate.plan_delegation
        return {"children": msgspec.to_builtins(await way(self._home, invocation))}

    async def delegate(self, invocation: Invocation) -> Outcome:
        return await delegate.delegate(self._home, invocation)

    async def race(self, invocation: Invocation) -> Outcome:
        return await _Race(self._home, invocation).run()

    async def stop(self, invocation: Invocation) -> Outcome | None:
        group = Children(self._home, invocation)
        with self._home.worker.lend_place(invocation.chat):
            child_results = await group.end(decode_children(invocation.plan))
        if not child_results:
            return None
        result_pairs = [(each, await group.call_off(each.child)) for each in child_results]
        merged = [
            replace(each, effect=effect, committed=True) if effect is not None else each
            for each, effect in result_pairs
        ]
        return delegate.build_outcome(invocation, merged, [])


LOOK_S = 0.5
ATTEMPTS = 4


def make_race_order(task: str, attempts: int, models: tuple[str, ...], check: str, judge: str, all_of: bool) -> Race:
    """Models are given out in turn. InvalidInput if it makes no sense."""
    number = attempts or (len(models) if len(models) > 1 else ATTEMPTS)
    if not task.strip():
        raise InvalidInput("Say what the attempts are to do.")
    if not 1 <= number <= MOST_TASKS:
        raise InvalidInput(f"A race has 1 to {MOST_TASKS} attempts; got {number}.")
    if number < len(models):
        raise InvalidInput(f"There are {len(models)} models for {number} attempts; give as many attempts or more.")
    return Race(task, tuple(models[place % len(models)] for place in range(number)), check, judge, all_of)


def make_race(task: str, keywords: RaceKeywords, model: str) -> tuple[Race, OptionKeywords]:
    """The race that is meant, and the options of its chats, which have this model if nothing else is said."""
    models = tuple(keywords.pop("models", ())) or (keywords.get("model") or model,)
    attempts, check, judge = keywords.pop("attempts", 0), keywords.pop("check", ""), keywords.pop("judge", "")
    race_order = make_race_order(task, attempts, models, check, judge, keywords.pop("all", False))
    return race_order, cast(OptionKeywords, keywords)


class RunningRace:
    """Await it to run the race, or iterate over its attempts. Without an order it goes on with the race of its chat."""

    def __init__(self, home: Home, chat: Chat, race_order: Race | None = None) -> None:
        self.chat, self._home, self._order = chat, home, race_order
        self._result: RaceResult | None = None

    def __await__(self) -> Generator[Any, None, RaceResult]:
        return self._run().__await__()

    async def __aiter__(self) -> AsyncIterator[list[ChildView]]:
        """The rows of its attempts whenever one has changed; the last ones when it is over, with `result`."""
        await self.chat.open()
        running = asyncio.ensure_future(self._run())
        last_rows: list[ChildView] = []
        try:
            while True:
                over = bool((await asyncio.wait({running}, timeout=LOOK_S if last_rows else 0.05))[0])
                if (rows := await self.rows()) != last_rows or over:
                    last_rows = rows
                    yield rows
                if over:
                    running.result()
                    return
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @property
    def result(self) -> RaceResult:
        assert self._result is not None, "the race is not over"
        return self._result

    async def rows(self) -> list[ChildView]:
        """Return its attempts as they are now; any worker may drive them."""
        return await list_descendants(self._home.deps, self.chat.id)

    async def _run(self) -> RaceResult:
        following = self.chat.resume() if self._order is None else self.chat.race(self._order)
        async for _ in following:
            pass
        events = [await self.chat.load_full_event(each) for each in await self.chat.events()]
        self._result = build_race_result(self.chat.id, events)
        return self._result
