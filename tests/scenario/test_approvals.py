"""Approvals as durable actions: asked in one process, answered in another, once, for exactly what was shown (S-07,
S-08, fault 6)."""

import json
import signal
from pathlib import Path

import msgspec
import pytest

from tests.scenario.command_line import CommandLine, end
from tests.scenario.kit import Stage, change, of, play
from treadle.adapters.models.scripted import Call, Say
from treadle.errors import InvalidInput
from treadle.frontends.cli.options import EXIT_WAITING
from treadle.protocol import events as e
from treadle.protocol.commands import ChangeOptions
from treadle.protocol.permissions import Rule

COUNT = '[[turn]]\ncall = [{ name = "run_command", args = { command = "echo x >> count" } }]\n'
TEST = '[[turn]]\ncall = [{ name = "run_command", args = { command = "touch built; make test" } }]\n'
SECRET = '[[turn]]\ncall = [{ name = "write_file", args = { path = ".env", content = "A=2\\n" } }]\n'
DONE = '[[turn]]\ntext = "All done."\n'
ASK = ("--mode", "confirm", "--interactive", "--json")


def ask(cli: CommandLine, script: str, *flags: str) -> str:
    """Begin a run that stops at a question; the chat's id."""
    run_result = cli("run", "Work.", "--model", cli.script(script), *ASK, *flags)
    assert run_result.code == EXIT_WAITING, run_result.err
    assert run_result.types[-1] == "session.action_required", run_result.types
    return str(run_result.events[0]["chat"])


def count(cli: CommandLine) -> int:
    path = cli.project / "count"
    return path.read_text().count("x") if path.exists() else 0


def test_asked_by_a_process_that_was_killed_and_answered_from_another(cli: CommandLine) -> None:  # S-08
    env = {"TREADLE_FAULTS": "kill@append.after:permission.requested"}
    killed = end(cli.start("run", "Work.", "--model", cli.script(COUNT + DONE), *ASK, env=env))
    assert killed.code == -signal.SIGKILL
    (pending,) = cli("pending", "--json").lines
    assert (pending["action"], pending["name"], pending["reason"] != "") == ("1.0", "run_command", True)
    assert "command: echo x >> count" in pending["text"]
    approved = cli("approve", pending["id"], "--json")
    assert approved.code == 0
    assert approved.types[0] == "permission.requested"  # the approved action comes first
    order = ["permission.requested", "permission.completed", "tool.execution_start", "tool.execution_complete"]
    assert [kind for kind in approved.types if kind in order] == order
    assert approved.types[-1] == "session.idle"
    assert count(cli) == 1
    assert cli("pending", "--json").out == ""


@pytest.mark.thorough(one_of=8)
def test_without_a_name_the_only_approval_is_meant(cli: CommandLine) -> None:  # S-08
    nothing = cli("approve")
    assert (nothing.code, "no chat waits for an approval" in nothing.err) == (1, True)
    first, second = ask(cli, COUNT + DONE), ask(cli, COUNT + DONE)
    several = cli("approve")
    assert several.code == 2
    assert all(f"treadle approve {chat}:1.0" in several.err for chat in (first, second))
    assert cli("approve", second).code == 0
    assert cli("approve", "--deny").code == 0
    assert count(cli) == 1
    assert cli("pending", "--json").out == ""


def test_an_answer_counts_once(cli: CommandLine) -> None:  # fault 6
    chat = ask(cli, COUNT + DONE)
    assert cli("approve", chat).code == 0
    again = cli("approve", chat)
    assert again.code == 1
    assert "asks for no approval (any more)" in again.err
    assert cli("approve", f"{chat}:1.0").code == 1
    assert cli("approve", "1.0").code == 1
    assert count(cli) == 1


def test_of_several_front_ends_one_wins(cli: CommandLine) -> None:  # fault 6
    chat = ask(cli, COUNT + DONE)
    answers = [
        cli.start("approve", chat, "--leave", *(["--deny", "--feedback", "No."] if number % 2 else []))
        for number in range(4)
    ]
    codes = sorted(end(process).code for process in answers)
    assert codes == [0, 1, 1, 1]
    resumed = cli("resume", chat, "--json")
    assert resumed.code == 0
    exported = cli("export", chat)
    decisions = [data["decision"] for data in exported.of("permission.completed")]
    assert len(decisions) == 1
    assert len(exported.of("tool.execution_complete")) == 1
    assert count(cli) == (1 if decisions == ["allow"] else 0)


def test_a_file_that_changed_behind_the_diff_is_asked_for_again(cli: CommandLine) -> None:  # S-08, fault 6
    (cli.project / ".env").write_text("A=1\n")
    read = '[[turn]]\ncall = [{ name = "read_file", args = { path = ".env" } }]\n'
    chat = ask(cli, read + SECRET + DONE)
    assert "may hold secrets" in cli("pending").out  # S-18
    cli("approve", chat)  # it is read, and now the edit is asked for
    pending_text = cli("pending").out
    assert "-A=1" in pending_text
    assert "+A=2" in pending_text
    (cli.project / ".env").write_text("A=1\nB=secret\n")
    again = cli("approve", chat, "--json")
    assert again.types[-1] != "session.idle" or not again.of("tool.execution_complete")[-1]["success"]
    assert (cli.project / ".env").read_text() == "A=1\nB=secret\n"


def test_a_refusal_with_feedback(cli: CommandLine) -> None:
    chat = ask(cli, COUNT + DONE)
    denied = cli("approve", chat, "--deny", "--feedback", "Not here.", "--json")
    assert denied.code == 0
    assert "Not here." in denied.of("tool.execution_complete")[0]["error"]
    assert count(cli) == 0


def test_an_edited_command_runs_instead(cli: CommandLine) -> None:  # S-08
    chat = ask(cli, COUNT + DONE)
    approval = cli("approve", chat, "--edit", "echo xxx >> count", "--json")
    assert approval.code == 0
    assert approval.of("permission.completed")[0]["arguments"] == {"command": "echo xxx >> count"}
    assert approval.of("tool.execution_start")[0]["arguments"]["command"] == "echo xxx >> count"
    assert count(cli) == 3


def test_it_says_what_it_approves_before_it_does(cli: CommandLine) -> None:
    chat = ask(cli, TEST + DONE)
    approval = cli("approve", chat)
    assert approval.err.index("allowing in chat") < approval.err.index("command: touch built; make test")
    assert "severity: medium" in approval.err
    assert "asked because: it writes files" in approval.err


def test_what_is_asked_for_holds_no_escapes(cli: CommandLine) -> None:  # S-12
    script = '[[turn]]\ncall = [{ name = "run_command", args = { command = "make \\u001b[2Jx\\u0007" } }]\n'
    chat = ask(cli, script + DONE)
    for result in (cli("pending"), cli("approve", chat, "--deny"), cli("rules")):
        assert not set(result.out + result.err) & {"\x1b", "\x07"}


@pytest.mark.thorough(one_of=8)
def test_remembered_in_the_chat_and_in_the_project(cli: CommandLine) -> None:  # S-07
    (cli.project / "Makefile").write_text("test:\n\t@echo x >> count\n")
    script = '[[turn]]\ncall = [{ name = "run_command", args = { command = "make test" } }]\n'
    chat = ask(cli, script + script + DONE)
    approval = cli("approve", chat, "--remember", "chat", "--json")
    assert (approval.code, count(cli)) == (0, 2)  # the second one was not asked for
    auto = [data for data in approval.of("permission.completed") if data["auto_approved"]]
    assert "allowed by the chat rule `allow make test`" in auto[0]["feedback"]
    assert json.loads(cli("rules", "--chat", chat, "--json").out)["pattern"] == "make test"
    assert cli("rules", "--json").out == ""
    other_chat = ask(cli, script + DONE)
    assert cli("approve", other_chat, "--remember", "project", "--expires", "7d").code == 0
    (rule,) = cli("rules", "--json").lines
    assert (rule["pattern"], rule["scope"], rule["root"]) == ("make test", "project", str(cli.project))
    assert rule["expires_ms"] > rule["created_ms"]
    headless = cli("run", "Work.", "--model", cli.script(script + DONE), "--mode", "confirm", "--json")
    assert headless.of("tool.execution_complete")[0]["success"]
    assert cli("rules", "revoke", rule["id"]).code == 0
    headless = cli("run", "Work.", "--model", cli.script(script + DONE), "--mode", "confirm", "--json")
    assert not headless.of("tool.execution_complete")[0]["success"]
    assert "treadle rules add --allow 'make test'" in headless.of("tool.execution_complete")[0]["error"]


def test_nothing_to_remember_is_said_before_anything_is_answered(cli: CommandLine) -> None:
    script = '[[turn]]\ncall = [{ name = "run_command", args = { command = "python3 -c 1" } }]\n'
    chat = ask(cli, script + DONE)
    refused = cli("approve", chat, "--remember", "user")
    assert refused.code == 2
    assert "no rule is offered" in refused.err
    assert len(cli("pending", "--json").lines) == 1


def test_rules_by_hand(cli: CommandLine) -> None:
    assert cli("rules", "add", "--allow", "make test").code == 0
    assert cli("rules", "add", "--deny", "git push *", "--scope", "user", "--expires", "12h").code == 0
    assert cli("rules", "add", "--allow", "docs/**", "--tool", "edit_file").code == 0
    listed = cli("rules", "list").out
    assert "git push *" in listed
    assert "docs/**" in listed
    for wrong in (["--allow", "python *"], ["--allow"], ["make"], ["--allow", "x", "--scope", "chat"],
                  ["--allow", "make", "--expires", "soon"], ["--allow", "make", "--expires", "9999999999999d"],
                  ["--allow", "make", "--expires", "999999999999w"], ["--allow", "x", "--expires", "9" * 5_000 + "d"],
                  ["--allow", "python3"], ["--allow", "env"]):  # fmt: skip
        assert cli("rules", "add", *wrong).code == 2, wrong
    assert cli("rules").code == 0
    assert len(cli("rules", "--json").lines) == 3
    assert cli("rules", "revoke", "r_nothing").code == 1


def test_rules_with_an_odd_expiry_or_damage_are_still_listed(cli: CommandLine) -> None:
    assert cli("rules", "add", "--allow", "make test").code == 0
    path = Path(cli.environment["TREADLE_HOME"]) / "rules.json"
    saved = json.loads(path.read_text())
    saved["rules"].append({"effect": "deny", "tool": "run_command", "pattern": "rm *", "scope": "user", "id": "r_2"})
    saved["rules"][0]["expires_ms"] = 863_999_999_999_999_913_600_000  # as older versions saved 9999999999999d
    saved["rules"][1]["created_ms"] = 10**18
    path.write_text(json.dumps(saved))
    listed = cli("rules")
    assert listed.code == 0
    assert "until 999" in listed.out
    assert cli("rules", "--json").code == 0
    assert cli("rules", "add", "--deny", "mv *").code == 0
    saved["rules"].append({"effect": "perhaps"})
    path.write_text(json.dumps(saved))
    listed = cli("rules")
    assert listed.code == 0
    assert "make test" in listed.out
    assert "rm *" in listed.out
    assert "no rule allows anything" in listed.err


async def test_a_chat_takes_no_rule_that_counts_once_or_never_ends(stage: Stage) -> None:  # S-07
    agent = stage.agent([Say("Done.")])
    chat = agent.chat()
    await play(chat.send("Work."))
    for rule in (Rule("allow", "x", scope="once"), Rule("allow", "x", expires_ms=10**18)):
        with pytest.raises(InvalidInput):
            agent.chat(rules=(rule,))
        with pytest.raises(InvalidInput):
            await chat.carry_out(ChangeOptions({"rules": [msgspec.to_builtins(rule)]}))
    assert (await chat.state()).options.rules == ()


async def test_the_library_makes_rules_too(stage: Stage) -> None:  # S-07
    chat = stage.agent([[Call("change", n=1), Call("change", n=2)], Say("Done.")], change).chat(
        mode="confirm", interactive=True
    )
    await play(chat.send("Work."))
    (action,) = await chat.actions()
    assert action.offers[0].covers == "every call of change, with any arguments"
    assert await chat.arguments(action) == {"n": 1}
    events = await play(chat.approve(action, rule=action.offers[0].rule))
    assert len(of(events, e.ExecutionComplete)) == 2
    (rule,) = (await chat.state()).options.rules
    assert rule.id
