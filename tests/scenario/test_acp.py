"""`treadle acp` as editors use it: the protocol's own client, a real process, real files (E-02)."""

import asyncio
import base64
import json
import sys
import time
from typing import Any

import pytest

from tests.processes import running_with, unlike_any_other
from tests.scenario.command_line import NO_LOCAL_SERVER, CommandLine
from tests.scenario.editor import WAIT_S, Editor, a, acp, begin, editing
from tests.scenario.mcp_servers.kit import ODD

pytestmark = pytest.mark.thorough(one_of=8)

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TRIES = 5


def turn(text: str = "", *calls: tuple[str, dict[str, Any]], think: str = "") -> str:
    """One turn of a script; JSON texts and tables with quoted keys are TOML, too."""
    tables = [", ".join(f"{key} = {json.dumps(value)}" for key, value in arguments.items()) for _, arguments in calls]
    names = [json.dumps(name) for name, _ in calls]
    calls_text = ", ".join(
        f"{{ name = {name}, args = {{ {table} }} }}" for name, table in zip(names, tables, strict=True)
    )
    lines = [f"think = {json.dumps(think)}" if think else "", f"text = {json.dumps(text)}" if text else ""]
    return "\n".join(["[[turn]]", *filter(None, lines), f"call = [{calls_text}]" if calls_text else "", ""])


def command(words: str) -> tuple[str, dict[str, Any]]:
    return "run_command", {"command": words}


DONE = turn("All done.")


@pytest.mark.thorough(one_of=8)
async def test_a_prompt_is_streamed_with_thoughts_calls_and_diffs(cli: CommandLine) -> None:
    (cli.project / "a.txt").write_text("one\ntwo\n")
    script = cli.script(
        turn("Looking.", ("read_file", {"path": "a.txt", "start_line": 2}), think="Where is it?")
        + turn("", ("edit_file", {"path": "a.txt", "old_str": "two", "new_str": "three"}))
        + turn("", command("echo out; sleep 0.2; echo more"), command("exit 3"))
        + DONE
    )
    mode = ("--mode", "auto-edit")
    async with editing(cli, "--model", script, *mode, meta={"terminal_output": True}) as editor:
        session = await begin(editor, cli)
        answer = await editor.say(session, "Change it.")
        assert answer.stop_reason == "end_turn"
        assert editor.text == "Looking.All done."
        assert [update.content.text for update in editor.of("agent_thought_chunk")] == ["Where is it?"]
        assert editor.of("usage_update")
        assert not editor.of("user_message_chunk")  # the editor shows it already
        read, edit, ran, failed = (editor.calls()[key] for key in ("1.0", "2.0", "3.0", "3.1"))
        assert (read["title"], read["kind"], read["status"]) == ("Read a.txt", "read", "completed")
        assert [(each.path, each.line) for each in read["locations"]] == [(str(cli.project / "a.txt"), 2)]
        assert (edit["title"], edit["kind"], edit["status"]) == ("Edit a.txt", "edit", "completed")
        [diff] = edit["content"]
        assert (diff.type, diff.path) == ("diff", str(cli.project / "a.txt"))
        assert (diff.old_text, diff.new_text) == ("one\ntwo\n", "one\nthree\n")
        assert (ran["title"], ran["kind"], ran["status"]) == (
            "`echo out; sleep 0.2; echo more`",
            "execute",
            "completed",
        )
        assert [each.type for each in ran["content"]] == ["terminal"]
        live = [update.field_meta for update in editor.of("tool_call_update") if update.tool_call_id == "3.0"]
        output = "".join(meta["terminal_output"]["data"] for meta in live if meta and "terminal_output" in meta)
        assert output == "out\nmore\n"
        assert failed["status"] == "failed"
        await _the_same_after_loading(cli, editor, session)


async def _the_same_after_loading(cli: CommandLine, watched: Editor, session: str) -> None:
    """`session/load` replays the log: the watched updates, and the messages of the person."""
    old_updates, watched.updates = watched.updates, []
    await watched.agent.load_session(cwd=str(cli.project), session_id=session)
    user_chunks = watched.of("user_message_chunk")
    assert [update.content.text for update in user_chunks] == ["Change it."]
    assert watched.text == "Looking.All done."
    assert [update.content.text for update in watched.of("agent_thought_chunk")] == ["Where is it?"]
    again, watched.updates = watched.calls(), old_updates
    for key, call in watched.calls().items():
        assert [again[key][name] for name in ("title", "kind", "status", "content")] == [
            call[name] for name in ("title", "kind", "status", "content")
        ]


@pytest.mark.thorough(one_of=8)
async def test_approvals_have_our_scopes(cli: CommandLine) -> None:  # S-07, S-08
    ask = turn("", command("touch made.txt"))
    edit = turn("", ("write_file", {"path": "b.txt", "content": "b\n"}))
    script = cli.script(ask + DONE + ask + DONE + edit + DONE + ask + DONE)
    async with editing(cli, "--model", script, "--mode", "confirm") as editor:
        session = await begin(editor, cli)
        editor.choose = lambda _options: "reject"
        await editor.say(session, "First.")
        assert not (cli.project / "made.txt").exists()
        assert editor.calls()["1.0"]["status"] == "failed"
        tool_call, options = editor.asked[0]
        kinds = [option.kind for option in options]
        assert kinds == ["allow_once", "allow_always", "allow_always", "reject_once", "reject_always"]
        assert [option.option_id for option in options][:3] == ["once", "chat", "project"]
        assert "touch" in options[2].name
        assert "touch made.txt" in "".join(each.content.text for each in tool_call.content or ())  # type: ignore[union-attr]
        editor.choose = lambda _options: "project"
        await editor.say(session, "Second.")
        assert (cli.project / "made.txt").exists()
        assert "touch" in cli("rules").out
        editor.choose = lambda _options: "once"
        await editor.say(session, "Third.")
        tool_call, _ = editor.asked[2]
        [diff] = [each for each in tool_call.content or () if each.type == "diff"]
        assert (diff.path, diff.new_text) == (str(cli.project / "b.txt"), "b\n")
        assert (cli.project / "b.txt").read_text() == "b\n"
        (cli.project / "made.txt").unlink()
        await editor.say(session, "Fourth.")
        assert len(editor.asked) == 3  # the rule of the project answered
        assert (cli.project / "made.txt").exists()


async def test_cancelled_in_the_middle_of_a_command_and_of_a_question(cli: CommandLine) -> None:  # L-07
    nap = unlike_any_other()
    script = cli.script(turn("", command(f"echo begun; sleep {nap}")) + turn("", command("touch made.txt")) + DONE)
    async with editing(cli, "--model", script, "--mode", "auto-edit") as editor:
        session = await begin(editor, cli)
        editor.choose = lambda _options: "once"
        prompt_task = asyncio.create_task(editor.say(session, "Sleep."))
        await editor.until(lambda: "begun" in _output(editor, "1.0"))
        await editor.agent.cancel(session_id=session)
        assert (await prompt_task).stop_reason == "cancelled"
        assert not running_with(nap)
        assert editor.calls()["1.0"]["status"] == "failed"
        await editor.agent.set_session_mode(session_id=session, mode_id="confirm")
        editor.choose = lambda _options: "wait"
        prompt_task = asyncio.create_task(editor.say(session, "Again."))
        await editor.until(lambda: any(call.tool_call_id == "2.0" for call, _ in editor.asked))
        await editor.agent.cancel(session_id=session)
        assert (await prompt_task).stop_reason == "cancelled"
        assert not (cli.project / "made.txt").exists()
        assert (await editor.say(session, "Well?")).stop_reason == "end_turn"
        assert editor.text.endswith("All done.")


def _output(editor: Editor, call: str) -> str:
    return "".join(each.content.text for each in editor.calls().get(call, {}).get("content", []))


@pytest.mark.thorough(one_of=8)
async def test_killed_in_the_middle_of_a_command_and_loaded_again(cli: CommandLine) -> None:  # D-01, D-02
    nap = f"3.{unlike_any_other().replace('.', '')}"
    slow = f"echo x >> count; sleep {nap}; echo over"
    script = cli.script(turn("Working.", command(slow)) + turn("", command("touch made.txt")) + DONE)
    (cli.project / "count").write_text("")
    options = ("--model", script, "--mode", "auto-edit")
    async with editing(cli, *options) as editor:
        session = await begin(editor, cli)
        editor.choose = lambda _options: "once"
        prompt_task = asyncio.create_task(editor.say(session, "Work."))
        await asyncio.to_thread(_wait_for, nap)
        editor.process.kill()
        with pytest.raises(ConnectionError):
            await prompt_task
    async with editing(cli, *options) as editor:
        editor.choose = lambda _options: "once"
        listed = await editor.agent.list_sessions(cwd=str(cli.project))
        assert [each.session_id for each in listed.sessions] == [session]
        await editor.agent.load_session(cwd=str(cli.project), session_id=session)
        await editor.until(lambda: editor.text.endswith("All done."))
        assert [update.content.text for update in editor.of("user_message_chunk")] == ["Work."]
        assert {call["status"] for call in editor.calls().values()} == {"completed"}
        assert (cli.project / "made.txt").exists()
        assert (cli.project / "count").read_text() == "x\n"  # once


def _wait_for(word: str) -> None:
    """Until a command with this word runs."""
    deadline = time.monotonic() + WAIT_S
    while not running_with(word):
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def test_attached_files_pictures_and_unsaved_buffers(cli: CommandLine) -> None:
    (cli.project / "a.txt").write_text("saved\n")
    path = str(cli.project / "a.txt")
    edit = ("edit_file", {"path": "a.txt", "old_str": "saved", "new_str": "mine"})
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-saved\n+mine\n*** End Patch"
    script = cli.script(
        turn("", ("read_file", {"path": "a.txt"}))
        + turn("", edit, ("apply_patch", {"patch": patch}))
        + turn("Save it, please.")
        + turn("", ("read_file", {"path": "a.txt"}), edit)
        + DONE
    )
    async with editing(cli, "--model", script, "--mode", "auto-edit") as editor:
        session = await begin(editor, cli)
        editor.buffers[path] = "typed, not saved\n"
        await editor.say(
            session,
            "Look at ",
            a.ResourceContentBlock(type="resource_link", name="a.txt", uri=f"file://{path}"),
            a.EmbeddedResourceContentBlock(
                type="resource", resource=a.TextResourceContents(uri=f"file://{path}#L1-2", text="typed")
            ),
            acp.image_block(base64.b64encode(PNG).decode(), "image/png"),
        )
        calls = editor.calls()
        assert "typed, not saved" in calls["1.0"]["content"][0].content.text
        assert [calls[key]["status"] for key in ("2.0", "2.1")] == ["failed", "failed"]
        assert "unsaved changes" in calls["2.0"]["content"][0].content.text
        assert (cli.project / "a.txt").read_text() == "saved\n"
        editor.buffers[path] = "saved\n"
        await editor.say(session, "Saved.")
        assert (cli.project / "a.txt").read_text() == "mine\n"
    events = cli("export", "last").of("user.message")
    assert events[0]["content"] == "Look at @a.txt@a.txt:1-2\n\na.txt:1-2, as attached:\n```\ntyped\n```"
    assert events[0]["images"][0]["media_type"] == "image/png"


@pytest.mark.parametrize(("finish", "stop"), [("length", "max_tokens"), ("content_filter", "refusal")])
async def test_a_prompt_whose_answer_was_cut_says_why(cli: CommandLine, finish: str, stop: str) -> None:  # E-02
    script = cli.script(f'[[turn]]\ntext = "Once upon"\nfinish = "{finish}"\n')
    async with editing(cli, "--model", script) as editor:
        session = await begin(editor, cli)
        assert (await editor.say(session, "A story.")).stop_reason == stop


async def test_a_folder_that_no_system_can_have_is_refused(cli: CommandLine) -> None:  # E-02
    async with editing(cli, "--model", cli.script(DONE)) as editor:
        with pytest.raises(acp.RequestError, match="absolute path"):
            await editor.agent.new_session(cwd=f"{cli.project}/a\0b", mcp_servers=[])
        assert (await editor.agent.list_sessions(cwd="/a\0b")).sessions == []


async def test_servers_of_every_transport_are_passed_on(cli: CommandLine) -> None:  # E-01, E-02
    servers = [
        a.SseMcpServer(type="sse", name="old", url="http://127.0.0.1:1/sse", headers=[]),
        a.HttpMcpServer(type="http", name="new", url="http://127.0.0.1:1/sse", headers=[]),
    ]
    async with editing(cli, "--model", cli.script(DONE)) as editor:
        new_session = await editor.agent.new_session(cwd=str(cli.project), mcp_servers=servers)
        await editor.say(new_session.session_id, "Go.")
        assert "of the editor is not used" not in editor.text


async def test_modes_models_commands_and_the_life_of_a_session(cli: CommandLine) -> None:
    (cli.project / "a.txt").write_text("a\n")
    steps = '[[turn]]\ncall = [{ name = "update_plan", args = { steps = [{ text = "Look", status = "done" }] } }]\n'
    script = cli.script(turn("", ("write_file", {"path": "b.txt", "content": "b\n"})) + steps + DONE + turn("Copy."))
    other_script = cli.script(DONE, "other.toml")
    reviewer = cli.home / "agents" / "reviewer.md"
    reviewer.parent.mkdir(parents=True)
    reviewer.write_text("---\nname: reviewer\n---\nYou review.\n")
    server = a.AcpMcpServer(type="acp", name="files", server_id="1")
    async with editing(cli, "--model", script, "--mode", "auto-edit") as editor:
        new_session = await editor.agent.new_session(cwd=str(cli.project), mcp_servers=[server])
        session = new_session.session_id
        assert new_session.modes is not None
        assert new_session.modes.current_mode_id == "auto-edit"
        current_values = {each.id: each.current_value for each in new_session.config_options or ()}
        assert current_values == {"mode": "auto-edit", "model": script, "reasoning_effort": "default", "agent": "none"}
        await editor.until(lambda: "files" in editor.text)  # it is said that it is not used
        [commands] = editor.of("available_commands_update")
        assert {"undo", "compact", "mode"} <= {each.name for each in commands.available_commands}
        await editor.say(session, "Write.")
        assert [each.content for each in editor.of("plan")[0].entries] == ["Look"]
        assert "b.txt" in (await _get_answer(editor, session, "/changes"))
        assert "Undone: 1 change" in (await _get_answer(editor, session, "/undo"))
        assert not (cli.project / "b.txt").exists()
        await editor.say(session, "/redo")
        assert (cli.project / "b.txt").exists()
        await editor.say(session, "/mode ask")
        assert editor.of("current_mode_update")[-1].current_mode_id == "ask"
        config_reply = await editor.agent.set_config_option(session_id=session, config_id="model", value=other_script)
        assert config_reply is not None
        assert {each.id: each.current_value for each in config_reply.config_options}["model"] == other_script
        await editor.agent.set_config_option(session_id=session, config_id="model", value=script)
        for value in ("reviewer", "none"):
            config_reply = await editor.agent.set_config_option(session_id=session, config_id="agent", value=value)
            assert config_reply is not None
            assert {each.id: each.current_value for each in config_reply.config_options}["agent"] == value
        copy = await editor.agent.fork_session(session_id=session, cwd=str(cli.project))
        assert (await _get_answer(editor, copy.session_id, "Go on.")) == "Copy."
        await editor.agent.close_session(session_id=session)
        with pytest.raises(acp.RequestError, match="load it first"):
            await editor.say(session, "Hello?")
        await editor.agent.resume_session(session_id=session, cwd=str(cli.project))
        assert not editor.of("user_message_chunk")  # nothing is replayed
        assert (await _get_answer(editor, session, "Go on.")) == "Copy."
        with pytest.raises(acp.RequestError, match="works in"):
            await editor.agent.load_session(cwd=str(cli.folder), session_id=session)
        with pytest.raises(acp.RequestError, match="whole disk"):
            await editor.agent.new_session(cwd="/", mcp_servers=[])


async def test_the_editor_passes_mcp_servers_on(cli: CommandLine) -> None:  # E-01
    pytest.importorskip("mcp")
    notes = cli.folder / "notes"
    server = a.McpServerStdio(name="odd one", command=sys.executable, args=["-S", ODD, str(notes)], env=[])
    script = cli.script((turn("", ("odd-one__note", {"text": "hello"})) + DONE) * TRIES)
    async with editing(cli, "--model", script) as editor:
        session = await begin(editor, cli, [server])
        editor.choose = lambda _options: "once"
        for _ in range(TRIES):  # on a busy machine the first call of the model does not wait for the server long enough
            await editor.say(session, "Take a note.")
            if any(call["status"] == "completed" for call in editor.calls().values()):
                break
        assert len(editor.asked) == 1
        command_names = [each.name for each in editor.of("available_commands_update")[-1].available_commands]
        assert "odd-one:tidy" in command_names  # its prompts, once it has started
    assert notes.read_text() == "hello\n"


async def _get_answer(editor: Editor, session: str, text: str) -> str:
    """Send a text; return the text of the answer."""
    old_length = len(editor.text)
    await editor.say(session, text)
    return editor.text[old_length:].strip(" \n*")


async def test_questions_are_buttons_or_are_answered_in_words(cli: CommandLine) -> None:  # T-07
    script = cli.script(
        turn("", ("ask_user", {"question": "Which one?", "options": ["left", "right"]}))
        + turn("", ("ask_user", {"question": "And why?"}))
        + DONE
    )
    async with editing(cli, "--model", script) as editor:
        session = await begin(editor, cli)
        editor.choose = lambda options: options[1].option_id
        answer = await editor.say(session, "Ask me.")
        assert answer.stop_reason == "end_turn"
        call, options = editor.asked[0]
        assert (call.title, [option.name for option in options][:2]) == ("Which one?", ["left", "right"])
        assert editor.text.strip().endswith("And why?")
        await editor.say(session, "Because.")
        assert editor.text.endswith("All done.")
    answers = [data["answer"] for data in cli("export", "last").of("user_input.completed")]
    assert answers == ["right", "Because."]


async def test_what_cannot_be_done_is_said(cli: CommandLine) -> None:
    cli.environment |= NO_LOCAL_SERVER
    async with editing(cli) as editor:
        with pytest.raises(acp.RequestError, match="no model is set") as refused:
            await begin(editor, cli)
        assert refused.value.code == -32000
        with pytest.raises(acp.RequestError, match="no model is set"):
            await editor.agent.authenticate(method_id="environment")
        with pytest.raises(acp.RequestError, match="no session"):
            await editor.say("c_none", "Hello?")
        with pytest.raises(acp.RequestError, match="no chat"):
            await editor.agent.load_session(cwd=str(cli.project), session_id="c_none")
