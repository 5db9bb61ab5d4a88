"""Rules that hold for every tool: it is shown before it is allowed, stopped with its run, looked at by the
hooks, cleaned of secrets, and the state that it leaves behind reaches later calls, in this process or the next."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.kit import Gate, Stage, of, play, results, until
from treadle import Chat
from treadle.adapters.models.scripted import Call, Say
from treadle.ports.policy import Verdict
from treadle.ports.toolset import Invocation, Outcome, Rehearsal, Settlement, Trial
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.content import KnownFile, Shell
from treadle.protocol.options import ChatOptions
from treadle.protocol.permissions import Offer, Rule
from treadle.protocol.tools import ToolSpec, compute_digest


class Odd:
    """A tool that can do everything a tool may do."""

    def __init__(self, name: str = "odd") -> None:
        self.spec = ToolSpec(name, timeout_s=30.0)
        self.shown = "as it is"
        self.gate: Gate | None = None
        self.outcome = Outcome("done")
        self.ran: list[Invocation] = []
        self.stopped: list[str] = []

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        return None

    async def preview(self, invocation: Invocation) -> str:
        return self.shown

    async def run(self, invocation: Invocation) -> Outcome:
        self.ran.append(invocation)
        if self.gate is not None:
            await self.gate.pass_through()
        return self.outcome

    async def plan_trial(self, invocation: Invocation) -> Trial | None:
        return None

    async def rehearse(self, invocation: Invocation) -> Rehearsal | None:
        return None

    async def stop(self, invocation: Invocation) -> Outcome | None:
        self.stopped.append(invocation.call)
        return None

    async def settle(self, invocation: Invocation) -> Settlement:
        return "run_again"


class Asking:
    """A policy that asks for everything."""

    rule = Rule("allow", "odd", scope="chat", id="r_1")

    async def review(self, spec: ToolSpec, invocation: Invocation, options: ChatOptions) -> Verdict:
        if self.rule in options.rules:
            return Verdict("allow", "a rule of this chat")
        return Verdict("ask", "it is odd", "medium", "odd", (Offer(self.rule, "all of it"),))


async def read_action(chat: Chat) -> e.OpenAction:
    (action,) = await chat.actions()
    return action


async def test_a_person_sees_the_preview_and_the_answer_holds_for_it(stage: Stage) -> None:  # S-08
    odd = Odd()
    chat = stage.agent([Call("odd"), Say("Good.")], odd, policy=Asking()).chat(interactive=True)
    await play(chat.send("Go."))
    action = await read_action(chat)
    assert (action.text, action.reason, action.severity) == ("odd\n\nas it is", "it is odd", "medium")
    await play(chat.approve(action))
    assert len(odd.ran) == 1


async def test_what_changed_since_it_was_allowed_is_asked_for_again(stage: Stage) -> None:  # S-08, fault 6
    stage.replayed = False  # the recorded policy shows what was shown, and that is the point here
    odd = Odd()
    chat = stage.agent([Call("odd"), Say("Good.")], odd, policy=Asking()).chat(interactive=True)
    await play(chat.send("Go."))
    first = await read_action(chat)
    odd.shown = "something else"
    await play(chat.approve(first))
    assert odd.ran == []
    again = await read_action(chat)
    assert "has changed" in again.reason
    assert again.hash != first.hash
    await play(chat.approve(again))
    assert len(odd.ran) == 1


async def test_an_edited_call_is_run_as_it_was_edited(stage: Stage) -> None:  # S-08
    odd = Odd()
    chat = stage.agent([Call("odd", n=1), Say("Good.")], odd, policy=Asking()).chat(interactive=True)
    await play(chat.send("Go."))
    await play(chat.approve(await read_action(chat), arguments={"n": 2}))
    assert [ran.arguments for ran in odd.ran] == [{"n": 2}]


async def test_an_answer_can_become_a_rule_of_the_chat(stage: Stage) -> None:  # S-07
    odd = Odd()
    agent = stage.agent([Call("odd"), Call("odd"), Say("Good.")], odd, policy=Asking())
    chat = agent.chat(interactive=True)
    await play(chat.send("Go."))
    action = await read_action(chat)
    events = await play_command(chat, c.Decide(action.action, "allow", action.hash, rule=action.offers[0].rule))
    assert len(odd.ran) == 2
    assert [decision.auto_approved for decision in of(events, e.PermissionCompleted)] == [False, True]
    assert (await chat.state()).options.rules == (Asking.rule,)


async def play_command(chat: Chat, command: c.Command) -> list[e.Envelope]:
    head = (await chat.state()).head
    await chat.command(command)
    return await play(chat.resume(after_seq=head))


async def test_an_interrupt_stops_what_the_call_started(stage: Stage) -> None:  # L-07
    stage.replayed = False
    odd = Odd()
    odd.gate = Gate()
    chat = stage.agent([Call("odd")], odd).chat()
    following = asyncio.ensure_future(play(chat.send("Go.")))
    await odd.gate.entered.wait()
    await chat.interrupt()
    await following
    assert odd.stopped == ["1.0"]


async def test_a_worker_that_leaves_stops_nothing_and_the_next_one_goes_on(stage: Stage) -> None:  # D-02
    odd = Odd()
    odd.gate = Gate()
    chat = stage.agent([Call("odd"), Say("Good.")], odd).chat()
    await until(chat.send("Go."), lambda event: isinstance(event, e.ExecutionStart))
    await odd.gate.entered.wait()
    await stage.kill()
    assert odd.stopped == []
    odd.gate = None
    again = stage.agent([Call("odd"), Say("Good.")], odd).chat(chat.id)
    await play(again.resume())
    assert len(odd.ran) == 2
    assert odd.stopped == []


async def test_a_run_that_was_stopped_while_nobody_drove_it_is_stopped_by_the_next_worker(stage: Stage) -> None:
    """Fault 22: a cancelled run is not continued, and what it had started ends."""
    stage.replayed = False
    odd = Odd()
    odd.gate = Gate()
    chat = stage.agent([Call("odd")], odd).chat()
    await until(chat.send("Go."), lambda event: isinstance(event, e.ExecutionStart))
    await odd.gate.entered.wait()
    await stage.kill()
    idle = stage.agent([Call("odd")], odd).chat(chat.id)
    await idle.interrupt()
    await play(idle.resume())
    assert await idle.status() == "idle"
    assert (len(odd.ran), odd.stopped) == (1, ["1.0"])


async def test_a_call_that_takes_too_long_is_stopped(stage: Stage) -> None:
    odd = Odd()
    odd.spec = ToolSpec("odd", timeout_s=0.05)
    odd.gate = Gate()
    chat = stage.agent([Call("odd"), Say("Oh.")], odd).chat()
    await play(chat.send("Go."))
    assert odd.stopped == ["1.0"]
    assert "stopped after 0.05 seconds" in (await results(chat))[0]


async def test_what_a_call_leaves_behind_reaches_later_calls_after_a_restart(stage: Stage) -> None:  # T-11, T-13, T-14
    odd = Odd()
    odd.outcome = Outcome(
        "cut", output="ab" * 32, known_files=(KnownFile("a.py", "1"), KnownFile("b.py", "2")), shell=Shell("src")
    )
    chat = stage.agent([Call("odd"), Say("One.")], odd).chat()
    await play(chat.send("Go."))
    odd.outcome = Outcome("done", known_files=(KnownFile("a.py", "3"),))
    await stage.kill()
    again = stage.agent([Call("odd"), Say("One."), Call("odd"), Call("odd"), Say("Two.")], odd).chat(chat.id)
    await play(again.send("Again."))
    _, second, third = odd.ran
    assert second.shell == third.shell == Shell("src")
    assert second.known_files == {"a.py": "1", "b.py": "2"}
    assert third.known_files == {"b.py": "2", "a.py": "3"}
    assert third.outputs == {"1.0": "ab" * 32}


class Guarding:
    def __init__(self) -> None:
        self.after_: list[str] = []

    async def before_call(self, spec: ToolSpec, invocation: Invocation) -> str:
        return "Not on a Sunday." if invocation.arguments.get("day") == "sunday" else ""

    async def after_call(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        self.after_.append(outcome.text)
        return Outcome(f"{outcome.text}, and looked at")


async def test_hooks_see_every_call_before_and_after(stage: Stage) -> None:  # E-03
    odd, hooks = Odd(), Guarding()
    chat = stage.agent([Call("odd", day="sunday"), Call("odd"), Say("Good.")], odd, hooks=hooks).chat()
    await play(chat.send("Go."))
    assert await results(chat) == ["Not on a Sunday.", "done, and looked at"]
    assert (len(odd.ran), hooks.after_) == (1, ["done"])


@pytest.mark.parametrize("success", [True, False])
async def test_no_secret_gets_into_the_log(stage: Stage, success: bool) -> None:  # S-11
    odd = Odd()
    odd.outcome = Outcome("the key is hunter2", summary="hunter2", success=success)
    chat = stage.agent(
        [Call("odd"), Say("Good.")], odd, redact=lambda text: text.replace("hunter2", "[redacted]")
    ).chat()
    await play(chat.send("Go."))
    (completion,) = of(await chat.events(), e.ExecutionComplete)
    assert "hunter2" not in f"{completion}"
    assert await results(chat) == ["the key is [redacted]"]


async def test_no_secret_gets_into_a_whole_output_that_is_kept(stage: Stage, tmp_path: Path) -> None:  # S-11, T-11
    command = "seq 1 300; for n in 1 2; do printf '%s%s\\n' ghp_abcdefghijklmnopqrst uvwxyzABCDEFGHIJ; done; seq 1 300"
    steps = [Call("run_command", command=command), Say("Good.")]
    chat = stage.agent(steps, builtin=True).chat(root=str(tmp_path), auto_approve_commands=True)
    await play(chat.send("Go."))
    (completion,) = of(await chat.events(), e.ExecutionComplete)
    full_output = await stage.store.get_blob(completion.output)
    assert full_output.count(b"redacted") == 2
    assert b"uvwxyzABCDEFGHIJ" not in full_output


async def test_the_answer_is_bound_to_what_was_shown_and_a_secret_was_not(stage: Stage) -> None:  # S-08, S-11, D-07
    """A reader of the log, where the secret never was, can tell that the hash is that of the question."""
    odd = Odd()
    odd.shown = "the key is hunter2"
    steps = [Call("odd"), Say("Good.")]
    agent = stage.agent(steps, odd, policy=Asking(), redact=lambda text: text.replace("hunter2", "[redacted]"))
    chat = agent.chat(interactive=True)
    await play(chat.send("Go."))
    action = await read_action(chat)
    assert action.text == "odd\n\nthe key is [redacted]"
    assert action.hash == compute_digest(["odd", {}, action.text])
    await play(chat.approve(action))
    assert len(odd.ran) == 1
