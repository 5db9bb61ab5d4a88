"""`treadle run` against a fake OpenAI server and against scripts: its output and the order of its events."""

from pathlib import Path

import pytest

from tests.scenario.command_line import CommandLine
from treadle.testing.fake_openai import FakeOpenAI, Reply

pytestmark = pytest.mark.thorough(one_of=8)

KEY = "sk-test-51a0c3d9e7b2f4a6c8d0"
ROUNDS = [
    Reply(text="Looking.", calls=[("list_directory", {"path": "."})]),
    Reply(calls=[("write_file", {"path": "a.txt", "content": "one\ntwo\n"})]),
    Reply(calls=[("run_command", {"command": "wc -l < a.txt"})]),
    Reply(text="There are two lines.", chunk_size=4),
]
HELLO = '[[turn]]\ntext = "Hello there."\n'


def test_events_of_three_tool_rounds_come_in_order(cli: CommandLine) -> None:  # L-02, L-12, V-01
    with FakeOpenAI(ROUNDS) as fake:
        env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": fake.base_url}
        run_result = cli("run", "Count the lines.", "--model", "openai:gpt-4.1", "--json", env=env)
    assert (run_result.code, run_result.err) == (0, "")
    recorded = [event for event in run_result.events if not event.get("ephemeral")]
    assert [event["seq"] for event in recorded] == list(range(1, len(recorded) + 1))
    turn_start, end = ["assistant.turn_start", "assistant.message"], "assistant.turn_end"
    call = ["tool.execution_start", "tool.execution_complete"]
    expected = ["session.created", "user.message", *turn_start, *call, end]
    expected += [*turn_start, "checkpoint.created", *call, "workspace.files_changed", end]
    expected += [
        *turn_start,
        "tool.trial_start",
        "permission.completed",
        *call,
        end,
        *turn_start,
        end,
        "session.run_end",
    ]
    assert [event["type"] for event in recorded] == expected
    assert len(run_result.of("assistant.turn_start")) == 4 == len(fake.requests)
    assert run_result.types.count("session.idle") == 1
    assert run_result.types[-1] == "session.idle"
    assert run_result.of("tool.execution_complete")[-1]["result"].startswith("2")
    live = [event for event in run_result.events if event.get("ephemeral")]
    assert live
    assert all("seq" not in event for event in live)
    assert "".join(data["text"] for data in run_result.of("assistant.message_delta")) == "Looking.There are two lines."
    assert [header["authorization"] for header in fake.headers] == [f"Bearer {KEY}"] * 4


def test_the_key_is_nowhere(cli: CommandLine) -> None:  # M-13
    replies = [
        Reply(calls=[("run_command", {"command": "env; echo key=$OPENAI_API_KEY"})]),
        Reply(status=401, error={"message": f"Incorrect API key provided: {KEY}", "type": "invalid_request_error"}),
    ]
    with FakeOpenAI(replies, in_order=True) as fake:
        env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": fake.base_url}
        run = ["run", "Print the environment.", "--model", "openai:gpt-4.1", "--auto-approve-commands", "--json"]
        events = cli(*run, env=env)
        results = [cli("show", "last", env=env), cli("export", "last", env=env), cli("config", env=env)]
    assert events.code == 1
    assert "key=\n" in events.of("tool.execution_complete")[0]["result"]
    for result in (events, *results):
        assert KEY not in result.out + result.err
    files = list(cli.files())
    assert any(path.name == "treadle.db" for path in files)
    for path in (*files, *cli.project.rglob("*")):
        assert KEY.encode() not in (path.read_bytes() if path.is_file() else b"")


def test_text_shows_the_answer_and_what_calls_touch(cli: CommandLine) -> None:
    with FakeOpenAI(ROUNDS) as fake:
        env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": fake.base_url}
        run_result = cli("run", "Count the lines.", "--model", "openai:gpt-4.1", env=env)
    assert run_result.code == 0
    assert run_result.out.splitlines() == [
        "Looking.",
        "● list_directory . … 0 entries",
        "● write_file a.txt … +2 \N{MINUS SIGN}0",
        "  │ +one",
        "  │ +two",
        "● run_command wc -l < a.txt … exit 0, 1 line",
        "  │ 2",
        "There are two lines.",
    ]
    assert "4 turns · 3 calls · 40 tokens in, 20 out · $0.0002" in run_result.err
    assert "treadle run --chat c_" in run_result.err


def test_retries_are_told_and_the_answer_is_not_shown_twice(cli: CommandLine) -> None:  # M-11, fault 7
    replies = [Reply(status=429), Reply(text="Once.", cut_after=260), Reply(text="Once.")]
    with FakeOpenAI(replies, in_order=True) as fake:
        env = {"OPENAI_BASE_URL": fake.base_url}
        run_result = cli("run", "Say it.", "--model", "openai:x", env=env)
    assert run_result.code == 0
    assert "retry 1 (rate_limit)" in run_result.err
    assert "retry 2 (cut_stream)" in run_result.err
    assert run_result.out.splitlines()[-1] == "Once."


def test_a_prompt_from_standard_input(cli: CommandLine) -> None:
    run_result = cli("run", "-", "--model", cli.script(HELLO), "--json", input="Say hello.\n")
    assert run_result.of("user.message")[0]["content"] == "Say hello.\n"


def test_chat_goes_on_with_a_chat_and_changes_only_what_is_named(cli: CommandLine) -> None:
    model = cli.script(HELLO + '[[turn]]\ntext = "Again."\n')
    first = cli("run", "Hello.", "--model", model, "--mode", "confirm", "--json")
    chat = first.events[0]["chat"]
    env = {"TREADLE_MODE": "read-only", "TREADLE_MAX_TURNS": "3"}
    second = cli("run", "Hello?", "--chat", chat[:9], "--max-turns", "7", "--json", env=env)
    assert second.code == 0
    assert {event["chat"] for event in second.events} == {chat}
    assert second.events[0]["seq"] == len([event for event in first.events if "seq" in event]) + 1
    assert second.of("session.options_changed")[0]["changes"] == {"max_turns": 7}
    assert second.of("assistant.message")[0]["content"] == "Again."


def test_options_of_a_new_chat_are_in_the_log(cli: CommandLine) -> None:
    system = cli.folder / "system.md"
    system.write_text("Be short.", encoding="utf-8")
    arguments = ["--system", str(system), "--tools", "read_file, list_directory", "--max-turns", "5"]
    arguments += ["--on-limit", "error", "--budget-usd", "0.5", "--mode", "autopilot", "--json"]
    run_result = cli("run", "Hello.", "--model", cli.script(HELLO), *arguments)
    options = run_result.of("session.created")[0]["options"]
    assert options["root"] == str(cli.project)
    assert (options["system_prompt"], options["tools"]) == ("Be short.", ["read_file", "list_directory"])
    assert (options["max_turns"], options["on_limit"], options["mode"]) == (5, "error", "autopilot")
    assert options["run_budget"]["usd"] == 0.5


def test_the_preset_strict_is_for_new_chats_and_for_old_ones(cli: CommandLine) -> None:  # S-15, L-03
    model = cli.script(HELLO + '[[turn]]\ntext = "Again."\n')
    first = cli("run", "Hello.", "--model", model, "--preset", "strict", "--max-turns", "4", "--json")
    options = first.of("session.created")[0]["options"]
    assert (options["mode"], options["max_turns"], options["strict_paths"]) == ("confirm", 4, True)
    again = cli("run", "Hello?", "--chat", "last", "--preset", "strict", "--mode", "review", "--json")
    changes = again.of("session.options_changed")[0]["changes"]
    assert (changes["mode"], changes["max_turns"]) == ("review", 20)


def test_every_budget_has_a_flag_for_new_chats_and_for_old_ones(cli: CommandLine) -> None:  # L-11
    model = cli.script(HELLO + '[[turn]]\ntext = "Again."\n')
    flags = ["--budget-tokens", "100000", "--budget-wall-s", "90", "--budget-turns", "9", "--budget-tool-calls", "8"]
    first = cli("run", "Hello.", "--model", model, "--budget-usd", "0.5", *flags, "--json")
    budget = {"turns": 9, "tokens": 100_000, "usd": 0.5, "wall_s": 90.0, "tool_calls": 8}
    assert first.of("session.created")[0]["options"]["run_budget"] == budget
    again = cli("run", "Hello?", "--chat", "last", "--budget-turns", "0", "--budget-wall-s", "30", "--json")
    changes = again.of("session.options_changed")[0]["changes"]
    del budget["turns"]  # none is not recorded
    assert changes == {"run_budget": budget | {"wall_s": 30.0}}


@pytest.mark.parametrize("kind", ["turns", "tool_calls"])
def test_a_budget_of_turns_or_calls_ends_the_run(cli: CommandLine, kind: str) -> None:  # L-11
    look = '[[turn]]\ncall = [{ name = "list_directory", args = { path = "." } }]\n'
    flag = f"--budget-{kind.replace('_', '-')}"
    run_result = cli("run", "Look.", "--model", cli.script(look + look + HELLO), flag, "1", "--json")
    assert run_result.code == 55
    assert run_result.of("session.idle")[0]["why"] == f"stopped at the budget: 1 of 1 {kind.replace('_', ' ')}"


def test_the_root_is_the_git_root_and_never_everything(cli: CommandLine) -> None:  # S-02
    model = cli.script(HELLO)
    inner = cli.project / "src" / "deep"
    inner.mkdir(parents=True)
    (cli.project / ".git").mkdir()
    inner_run = cli("run", "Hi.", "--model", model, "--json", "--root", str(inner))
    assert inner_run.of("session.created")[0]["options"]["root"] == str(inner)
    user = cli.environment["HOME"]
    for refused in ("/", user):
        run_result = cli("run", "Hi.", "--model", model, "--json", "--root", refused)
        assert (run_result.code, run_result.out) == (2, "")
        assert "--force-root" in run_result.err
    forced = cli("run", "Hi.", "--model", model, "--json", "--root", user, "--force-root")
    assert forced.of("session.created")[0]["options"]["root"] == str(Path(user).resolve())


def test_control_characters_never_reach_the_terminal(cli: CommandLine) -> None:  # S-12
    (cli.project / "evil\x1b]0;owned\x07.txt").write_text("\x1b[2Jgone\n", encoding="utf-8")
    script = r"""
[[turn]]
text = "A\u001b[31mred\u009b5m \u202eback\u0007"
call = [
  { name = "run_command", args = { command = "printf '\\033[2Jx\\r\\n\\007'; ls; exit 3" } },
  { name = "read_file", args = { path = "no\u001b[5m\nsuch" } },
  { name = "unknown\u001b[1m", args = {} },
]
[[turn]]
text = "Done."
"""
    for command in (["run", "\x1b[7mHi.", "--model", cli.script(script)], ["show", "last"], ["chats"]):
        result = cli(*command)
        assert result.code == 0
        output = result.out + result.err
        assert not [c for c in output if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e")]


def test_the_marker_ends_a_run_and_is_never_shown_or_stored(cli: CommandLine) -> None:  # L-15
    model = cli.script('[model]\nchunk = 3\n[[turn]]\ntext = "It works. [TASK_COMPLETE]"\n')
    arguments = ["run", "Work.", "--model", model, "--mode", "autopilot", "--completion", "marker"]
    assert cli(*arguments).out == "It works. \n"
    events = cli(*arguments, "--json")
    assert "TASK_COMPLETE" not in events.out.replace("session.task_complete", "")
    assert [idle["reason"] for idle in events.of("session.idle")] == ["task_complete"]


def test_a_home_inside_the_project_is_warned_about(cli: CommandLine) -> None:  # S-09
    inside = {"TREADLE_HOME": str(cli.project / "data")}
    assert "lies inside the project" in cli("run", "Hi.", "--model", cli.script(HELLO), env=inside).err
    assert "lies inside" not in cli("run", "Hi.", "--model", cli.script(HELLO)).err


def test_show_in_short_has_one_line_for_calls_that_follow_each_other(cli: CommandLine) -> None:
    look = '[[turn]]\ncall = [{ name = "list_directory", args = { path = "." } }]\n'
    cli("run", "Look.", "--model", cli.script(look + look + HELLO))
    show_result = cli("show", "last", "--short")
    assert "● listed 2 folders\n" in show_result.err
    assert "list_directory" not in show_result.out
    assert " · 2 calls · " in show_result.err
