"""Looking at chats from the command line: list, show, export, import, fork, compare, check."""

import json
import sqlite3

import pytest

from tests.scenario.command_line import CommandLine
from treadle.testing.fake_openai import FakeOpenAI, Reply

pytestmark = pytest.mark.thorough(one_of=8)

HELLO = '[[turn]]\ntext = "Hello."\n'
LOOK = '[[turn]]\ntext = "Let me see."\ncall = [{ name = "list_directory", args = { path = "." } }]\n'


@pytest.fixture
def model(cli: CommandLine) -> str:
    return cli.script(LOOK + HELLO)


def test_chats_are_listed_newest_first(cli: CommandLine, model: str) -> None:
    assert cli("chats", "--json").out == ""
    assert "no chats yet" in cli("chats").err
    first = cli("run", "The first.", "--model", model, "--json").events[0]["chat"]
    second = cli("run", "The second.", "--model", model, "--json").events[0]["chat"]
    listed = cli("chats", "--json").lines
    assert [chat["chat"] for chat in listed] == [second, first]
    assert [chat["title"] for chat in listed] == ["The second.", "The first."]
    newest = listed[0]
    assert (newest["status"], newest["turns"], newest["model"], newest["leased"]) == ("idle", 2, model, False)
    lines = cli("chats").out.splitlines()
    assert [line.split()[0] for line in lines] == [second, first]


def test_a_chat_in_error_says_why(cli: CommandLine) -> None:
    failing = cli.script('[[turn]]\nfail = { kind = "auth", message = "the key was refused" }\n')
    assert cli("run", "Hello.", "--model", failing).code == 1
    (listed,) = cli("chats", "--json").lines
    assert listed["last_error"] == {"class": "auth", "message": "the key was refused"}
    assert "auth: the key was refused" in cli("chats").out
    assert cli("show", "last", "--json").lines[0]["last_error"] == listed["last_error"]
    assert "the key was refused" in cli("show", "last").out + cli("show", "last").err


def test_a_chat_that_was_cut_off_is_pending(cli: CommandLine, model: str) -> None:
    cli("run", "Look.", "--model", model, env={"TREADLE_FAULTS": "kill@model.before_call#2"})
    assert cli("chats", "--json").lines[0]["status"] == "pending"
    listed = cli("chats").out
    assert ("was cut off" in listed, "pending" in listed) == (True, False)  # U-08: words, not names of states


def test_a_chat_is_named_by_its_beginning_if_that_is_enough(cli: CommandLine, model: str) -> None:
    chats = [cli("run", "Hi.", "--model", model, "--json").events[0]["chat"] for _ in range(2)]
    assert cli("show", chats[0][:10], "--json").lines[0]["chat"] == chats[0]
    assert cli("show", chats[0][2:10], "--json").lines[0]["chat"] == chats[0]
    ambiguous = cli("show", "c_")
    assert ambiguous.code == 2
    assert "is the beginning of 2 chats" in ambiguous.err


def test_show_tells_a_chat_from_its_log(cli: CommandLine, model: str) -> None:
    ran = cli("run", "What is here?", "--model", model)
    show_result = cli("show", "last")
    assert show_result.out == f"> What is here?\n{ran.out}"
    chat_json = json.loads(cli("show", "last", "--json").out)
    assert [message["role"] for message in chat_json["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert (chat_json["last_end"], chat_json["options"]["model"]) == ("done", model)


def test_export_and_import_keep_the_log(cli: CommandLine, model: str) -> None:  # D-08
    chat = cli("run", "Look.", "--model", model, "--json").events[0]["chat"]
    exported = cli("export", chat)
    assert exported.types[0] == "session.created"
    assert [event["seq"] for event in exported.events] == list(range(1, len(exported.events) + 1))
    assert all(exported.types)
    import_result = cli("import", "-", input=exported.out)
    assert import_result.code == 1
    assert "exists already" in import_result.err
    copy = cli("import", "-", "--new-id", input=exported.out).out.strip()
    assert copy not in ("", chat)
    length = len(exported.events)
    compared = cli("diff-runs", chat, copy).out
    assert compared.startswith(f"The first difference is at {length + 1}: ")
    assert "session.imported" in compared  # nothing else is new but what import says itself
    other_env = {"TREADLE_HOME": str(cli.folder / "other")}
    assert cli("import", "-", input=exported.out, env=other_env).out.strip() == chat
    again = cli("export", "last", env=other_env).events
    assert [event["data"] for event in again[:length]] == [event["data"] for event in exported.events]
    assert again[length]["type"] == "session.imported"
    broken = cli("import", "-", input="{}\n", env=other_env)
    assert broken.code == 1
    assert "Line 1" in broken.err
    assert cli("import", str(cli.folder / "missing")).code == 2


def test_fork_goes_its_own_way(cli: CommandLine, model: str) -> None:  # D-07
    chat = cli("run", "Look.", "--model", model, "--json").events[0]["chat"]
    other_model = cli.script(LOOK + '[[turn]]\ntext = "Something else."\n' * 2, "other.toml")
    forked = cli("fork", f"{chat}@7", "--model", other_model)
    assert forked.code == 0
    copy = forked.out.strip()
    assert cli("run", "Go on.", "--chat", copy, "--json").of("assistant.message")[-1]["content"] == "Something else."
    compared = cli("diff-runs", chat, copy)
    assert compared.code == 1
    assert compared.out.startswith("The first difference is at 8")
    assert cli("fork", f"{chat}@999").code == 2


def test_fsck_finds_and_mends(cli: CommandLine, model: str) -> None:  # D-06
    assert "nothing to check" in cli("fsck").err
    cli("run", "Look.", "--model", model)
    assert (cli("fsck").code, "is sound" in cli("fsck").err) == (0, True)
    with sqlite3.connect(cli.home / "treadle.db") as database:
        database.execute("UPDATE events SET body = x'00' WHERE place = (SELECT max(place) - 1 FROM events)")
    database.close()
    fsck_result = cli("fsck")
    assert fsck_result.code == 1
    assert fsck_result.out.startswith("found: record")
    assert "treadle fsck --repair" in fsck_result.err
    mended = cli("fsck", "--repair")
    assert (mended.code, mended.out.startswith("mended: record")) == (0, True)
    assert cli("fsck").code == 0


def test_config_tells_where_every_value_comes_from(cli: CommandLine) -> None:  # E-06
    cli.home.mkdir(exist_ok=True)
    (cli.home / "config.toml").write_text('model = "openai:a"\nmax_turns = 7\nnonsense = 1\n', encoding="utf-8")
    key = "sk-test-very-secret-indeed"
    env = {"TREADLE_MODEL": "openai:b", "OPENAI_API_KEY": key, "OPENAI_BASE_URL": "http://me:hush@localhost:1/v1"}
    config_result = cli("config", "--json", env=env)
    config = json.loads(config_result.out)
    assert config["settings"]["model"] == {"value": "openai:b", "source": "environment TREADLE_MODEL"}
    assert config["settings"]["max_turns"] == {"value": 7, "source": f"file {cli.home / 'config.toml'}"}
    assert config["settings"]["mode"] == {"value": "ask", "source": "default"}
    assert (config["keys"]["OPENAI_API_KEY"], config["keys"]["GROQ_API_KEY"]) == ("set", "not set")
    assert (config["environment"]["OPENAI_BASE_URL"], config["environment"]["GROQ_BASE_URL"]) == (
        "http://localhost:1/v1",
        "",
    )
    assert "no setting 'nonsense'" in config_result.err
    text = cli("config", env=env)
    assert "max_turns" in text.out
    for secret in (key, "hush"):
        assert secret not in config_result.out + config_result.err + text.out + text.err


def test_a_wrong_setting_is_named_with_its_file(cli: CommandLine) -> None:
    cli.home.mkdir(exist_ok=True)
    (cli.home / "config.toml").write_text('max_turns = "many"\n', encoding="utf-8")
    run_result = cli("run", "Hi.", "--model", "scripted:x")
    assert run_result.code == 2
    assert "config.toml: max_turns = 'many' does not fit" in run_result.err


def test_replay_brings_the_same_events_offline(cli: CommandLine, model: str) -> None:  # D-07
    with FakeOpenAI([Reply(text="Let me see.", calls=[("list_directory", {"path": "."})]), Reply(text="Hi.")]) as fake:
        env = {"OPENAI_BASE_URL": fake.base_url}
        events = cli("run", "Look.", "--model", "openai:gpt-4.1", "--json", env=env)
    replayed = cli("replay", "last")
    assert replayed.code == 0, replayed.out
    recorded = [event for event in events.events if "seq" in event]
    assert f"the same {len(recorded)} events" in replayed.out
    cli("run", "Look.", "--model", model, env={"TREADLE_FAULTS": "kill@model.before_call#2"})
    assert cli("resume", "last").code == 0
    assert cli("replay", "last").code == 0
