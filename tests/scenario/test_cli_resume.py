"""`treadle resume`: after kill -9, and with what a chat waits for."""

import json
import signal

import pytest

from tests.scenario.command_line import CommandLine, end, until
from treadle import DynamicTool
from treadle.sync import Agent

pytestmark = pytest.mark.thorough(one_of=8)

COUNT = '[[turn]]\ncall = [{ name = "run_command", args = { command = "echo x >> count" } }]\n'
WRITE = '[[turn]]\ncall = [{ name = "write_file", args = { path = "a.txt", content = "a" } }]\n'
DONE = '[[turn]]\ntext = "All done."\n'


@pytest.mark.thorough(one_of=8)
def test_after_kill_9_nothing_is_done_twice(cli: CommandLine) -> None:  # D-01, D-02
    model = cli.script(COUNT + WRITE + COUNT + DONE)
    env = {"TREADLE_FAULTS": "kill@tool.write_after"}
    process = cli.start("run", "Work.", "--model", model, "--json", env=env)
    killed = end(process)
    assert killed.code == -signal.SIGKILL
    assert (cli.project / "a.txt").read_text() == "a"
    resumed = cli("resume", "last", "--json")
    assert resumed.code == 0
    seqs = [event["seq"] for event in killed.events + resumed.events if "seq" in event]
    assert seqs == list(range(1, len(seqs) + 1))  # together the two outputs are the log
    exported = cli("export", "last")
    assert [event["seq"] for event in exported.events] == seqs
    assert (cli.project / "count").read_text() == "x\nx\n"
    calls = [data["call"] for data in exported.of("tool.execution_complete")]
    assert calls == ["1.0", "2.0", "3.0"] == [data["call"] for data in exported.of("tool.execution_start")]


def test_resume_shows_the_call_that_was_under_way(cli: CommandLine) -> None:
    model = cli.script(WRITE + DONE)
    env = {"TREADLE_FAULTS": "kill@tool.write_after"}
    assert end(cli.start("run", "Work.", "--model", model, env=env)).code == -signal.SIGKILL
    show_result = cli("show", "last")
    assert "unfinished · go on: treadle resume c_" in show_result.err
    resumed = cli("resume", "last")
    assert resumed.out.splitlines() == [
        "● write_file a.txt … +1 \N{MINUS SIGN}0",
        "  │ Created a.txt (+1 -0). (Found done after a restart.)",
        "All done.",
    ]
    assert resumed.err.startswith("resuming c_")


def test_killed_in_the_middle_of_an_answer(cli: CommandLine) -> None:
    model = cli.script('[[turn]]\ntext = "A long answer."\nhang = true\n')
    process = cli.start("run", "Talk.", "--model", model, "--json")
    until(process, "assistant.message_delta")
    process.kill()
    end(process)
    cli.script(DONE)
    resumed = cli("resume", "last", "--json")
    assert resumed.code == 0
    assert resumed.of("assistant.turn_retry")[0]["class"] == "worker_lost"
    assert [data["content"] for data in resumed.of("assistant.message")] == ["All done."]


def test_resume_drives_queued_messages_too(cli: CommandLine) -> None:  # L-08, D-01
    model = cli.script('[[turn]]\ntext = "A long answer."\nhang = true\n')
    process = cli.start("run", "First.", "--model", model, "--json")
    until(process, "assistant.message_delta")
    process.kill()
    end(process)
    with Agent(store=cli.home / "treadle.db") as agent:
        for text in ("Second.", "Third."):
            agent.chat(agent.chats()[0].summary.chat).send(text)()
    cli.script('[[turn]]\ntext = "One."\n[[turn]]\ntext = "Two."\n[[turn]]\ntext = "Three."\n')
    resumed = cli("resume", "last", "--json")
    assert resumed.code == 0
    assert [data["content"] for data in resumed.of("assistant.message")] == ["One.", "Two.", "Three."]
    assert [data["turn"] for data in resumed.of("assistant.turn_end")] == [1, 2, 3]


def test_an_idle_chat_has_nothing_to_go_on_with(cli: CommandLine) -> None:
    cli("run", "Hi.", "--model", cli.script(DONE))
    resume_result = cli("resume", "last")
    assert (resume_result.code, resume_result.out) == (0, "")
    assert "nothing to do" in resume_result.err


def test_an_approval_waits_and_is_given_by_another_process(cli: CommandLine) -> None:  # S-08
    model = cli.script(COUNT + DONE)
    run_result = cli("run", "Work.", "--model", model, "--mode", "confirm", "--interactive")
    assert run_result.code == 56
    assert "waits for your approval of" in run_result.err
    assert "command: echo x >> count" in run_result.err
    assert not (cli.project / "count").exists()
    again = cli("resume", "last")
    assert (again.code, "waits for your approval" in again.err) == (56, True)
    refused = cli("resume", "last", "--answer", "yes")
    assert refused.code == 1
    assert "asks no question" in refused.err
    approved = cli("resume", "last", "--approve", "--json")
    assert approved.code == 0
    assert approved.types[-1] == "session.idle"
    assert (cli.project / "count").read_text() == "x\n"
    assert cli("resume", "last", "--approve").code == 1


def test_a_refusal_with_feedback_reaches_the_model(cli: CommandLine) -> None:
    cli("run", "Work.", "--model", cli.script(COUNT + DONE), "--mode", "confirm", "--interactive")
    denied = cli("resume", "last", "--deny", "--feedback", "Use a file instead.", "--json")
    assert denied.code == 0
    result = denied.of("tool.execution_complete")[0]
    assert not result["success"]
    assert "Use a file instead." in result["error"]
    assert not (cli.project / "count").exists()


def test_results_of_a_client_tool_are_handed_in(cli: CommandLine) -> None:
    model = cli.script('[[turn]]\ncall = [{ name = "weather", args = { city = "Ulm" } }]\n' + DONE)
    with Agent(cli.home / "treadle.db") as agent:
        chat = agent.chat(model=model, root=str(cli.project), dynamic_tools=(DynamicTool("weather"),)).open()
    waits = cli("run", "Weather?", "--chat", chat.id)
    assert waits.code == 56
    assert "waits for the result of weather" in waits.err
    assert "city = Ulm" in waits.err
    in_json = cli("resume", chat.id, "--json")
    assert (in_json.code, in_json.types) == (56, ["session.action_required"])
    call = in_json.of("session.action_required")[0]["actions"][0]["tool_call_id"]
    assert cli("resume", chat.id, "--results", "-", input="nonsense").code == 2
    wrong = json.dumps({"results": [{"tool_call_id": "other", "output": 1}]})
    assert cli("resume", chat.id, "--results", "-", input=wrong).code == 1
    right = json.dumps({"results": [{"tool_call_id": call, "output": {"sky": "blue"}}]})
    resume_result = cli("resume", chat.id, "--results", "-", "--json", input=right)
    assert resume_result.code == 0
    assert "blue" in resume_result.of("tool.execution_complete")[0]["result"]
    assert resume_result.of("assistant.message")[-1]["content"] == "All done."


def test_killed_in_the_last_answer_at_the_turn_cap(cli: CommandLine) -> None:  # L-03, D-01
    model = cli.script(COUNT + DONE)
    env = {"TREADLE_FAULTS": "kill@model.before_call#2"}
    arguments = ["run", "Work.", "--model", model, "--max-turns", "1", "--on-limit", "answer", "--json"]
    assert cli(*arguments, env=env).code == -signal.SIGKILL
    resumed = cli("resume", "last", "--json")
    assert resumed.code == 53
    assert [data["content"] for data in resumed.of("assistant.message")] == ["All done."]
