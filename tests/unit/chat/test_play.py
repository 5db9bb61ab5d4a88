"""Any sequence of commands and legal worker moves keeps the rules: a stateful property test (D-01, L-03 to L-20)."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.faults.chance import examples
from tests.unit.chat.player import LIMITS, Player
from treadle.chat.decide import RunCalls, StayIdle, decide
from treadle.chat.state import build_summary, list_open_actions
from treadle.protocol import commands as c
from treadle.protocol.content import UserEntry
from treadle.protocol.events import OpenAction
from treadle.protocol.options import Budget, ChatOptions

OPTIONS = st.builds(
    ChatOptions,
    mode=st.sampled_from(["auto-edit", "autopilot"]),
    interactive=st.booleans(),
    max_turns=st.integers(1, 5),
    on_limit=st.sampled_from(["", "ask", "answer", "error"]),
    run_budget=st.builds(Budget, turns=st.integers(0, 4), tokens=st.sampled_from([0, 0, 250, 900])),
    chat_budget=st.builds(Budget, tokens=st.sampled_from([0, 0, 2_000]), tool_calls=st.sampled_from([0, 0, 6])),
    on_deadline=st.sampled_from(["continue", "error"]),
    summarize=st.booleans(),
)


class ChatMachine(RuleBasedStateMachine):
    @initialize(options=OPTIONS)
    def begin(self, options: ChatOptions) -> None:
        self.player = Player(options)
        self.sent = 0

    # -- commands -----------------------------------------------------------------------------------------------------

    @rule(delivery=st.sampled_from(["queued", "steering"]), copies=st.sampled_from([1, 1, 1, 25]))
    def send(self, delivery: str, copies: int) -> None:
        for _ in range(copies):
            self.sent += 1
            full = len(self.player.state.queue) == 20
            refused = self.player.command(c.Send(f"say {self.sent}", delivery, queue_id=f"q{self.sent}"))  # type: ignore[arg-type]
            assert refused in (("", "queue_full") if full else ("",))  # L-08

    @rule()
    def interrupt(self) -> None:
        self.player.command(c.Interrupt())

    @rule(pick=st.integers(0, 5))
    def edit(self, pick: int) -> None:
        message_seqs = [entry.seq for entry in self.player.state.history if isinstance(entry, UserEntry)]
        self.player.command(c.Edit(message_seqs[pick % len(message_seqs)] if message_seqs and pick else 999, "better"))

    @rule(op=st.sampled_from([c.Promote, c.DeleteQueued]), pick=st.integers(0, 3))
    def queue(self, op: type[c.Promote] | type[c.DeleteQueued], pick: int) -> None:
        queue = self.player.state.queue
        self.player.command(op(queue[pick % len(queue)].id if queue else "q0"))

    @rule(
        command=st.sampled_from(
            [c.ExtendTurns(2), c.Compact(), c.Rename("new"), c.ChangeOptions({"max_turns": 3}), c.EditQueued("q1", "x")]
        )
    )
    def send_other_command(self, command: c.Command) -> None:
        self.player.command(command)

    @rule(content=st.sampled_from(["text", None]))
    def apply(self, content: str | None) -> None:
        """L-18: an idle chat takes it, and only that; then nothing but its one call is to be done."""
        old_status = build_summary(self.player.state).status
        refused = self.player.command(c.Apply("a.txt", content))
        if old_status not in ("idle", "error"):
            assert refused in ("busy", "awaiting_action")
        elif content is None:
            assert refused == "no_such_block"
        else:
            assert refused == ""
            step = decide(self.player.state, lambda: LIMITS)
            assert isinstance(step, RunCalls)
            assert [call.request.name for call in step.calls] == ["write_file"]

    @rule(data=st.data())
    def archive_and_back(self, data: st.DataObject) -> None:
        if self.player.command(c.ChangeOptions({"archived": True})) == "":
            assert self.player.command(c.Send("hello", queue_id="late")) == "archived"
            assert self.player.work(lambda options: data.draw(st.sampled_from(options))) == StayIdle()
            self.player.command(c.ChangeOptions({"archived": False}))

    @rule(late=st.booleans())
    def expire(self, late: bool) -> None:
        """A-05"""
        self.player.command(c.Expire(self.player.time_ms + (1_000_000 if late else 0)))

    @precondition(lambda self: list_open_actions(self.player.state))
    @rule(good=st.booleans(), pick=st.integers(0, 3), choice=st.sampled_from(["continue", "stop", "allow", "deny"]))
    def answer(self, good: bool, pick: int, choice: str) -> None:
        actions = list_open_actions(self.player.state)
        refused = self.player.command(self._answer(actions, actions[pick % len(actions)], choice, good))
        if not good:
            assert refused

    def _answer(self, actions: tuple[OpenAction, ...], action: OpenAction, choice: str, good: bool) -> c.Command:
        match action.kind:
            case "permission":
                decision = "allow" if choice in ("allow", "continue") else "deny"
                return c.Decide(action.action, decision, action.hash if good else "other")  # type: ignore[arg-type]
            case "external_tool":
                ids = [each.tool_call_id for each in actions if each.kind == "external_tool"]
                results = tuple(c.Result(each, {"ok": True}) for each in reversed(ids))
                return c.SubmitResults(results if good else (*results, c.Result("0.9")))
            case "user_input":
                text = choice if choice in ("continue", "stop") else "continue"
                return c.Answer(action.action if good else "nobody", text)

    # -- the worker ---------------------------------------------------------------------------------------------------

    @rule(data=st.data(), moves=st.integers(1, 12))
    def work(self, data: st.DataObject, moves: int) -> None:
        for _ in range(moves):
            self.player.work(lambda options: data.draw(st.sampled_from(options)))

    @rule()
    def crash(self) -> None:
        self.player.crash()

    @rule(seconds=st.integers(1, 1_000))
    def wait(self, seconds: int) -> None:
        self.player.time_ms += seconds * 1_000

    @rule(position=st.integers(0, 200))
    def snapshots_are_caches(self, position: int) -> None:
        self.player.check_fold(position % (len(self.player.log) + 1))

    def teardown(self) -> None:
        if hasattr(self, "player"):
            self._finish()

    def _finish(self) -> None:
        """After any events: with a model that just answers, the chat comes to rest or waits for a person."""
        player = self.player
        for _ in range(1_000):  # a full queue takes some hundred steps
            if not build_summary(player.state).runnable:
                break
            player.work(lambda options: "text" if "text" in options else options[0])
        else:
            pytest.fail("the chat never comes to rest")


ChatMachine.TestCase.settings = settings(
    max_examples=examples(120),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
TestChatMachine = ChatMachine.TestCase
