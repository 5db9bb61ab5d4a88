"""Reasoning effort as a setting of every front end (M-16): command line, settings, library, HTTP, editors, the Copilot
SDKs, custom agents and compaction. The model is a server on loopback, which sees what arrives."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.command_line import CommandLine
from tests.scenario.copilot_kit import ErrorAnswer, Program
from tests.scenario.editor import acp, editing
from tests.scenario.http_kit import Server, serving
from tests.scenario.kit import Recording, Stage, play
from treadle.adapters.models.scripted import Say, ScriptedModel
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.errors import InvalidInput
from treadle.ports.model import ModelInfo
from treadle.protocol import commands as c
from treadle.testing.fake_openai import FakeOpenAI, Reply

WITHOUT = ModelInfo("scripted", "without", efforts=())
SOME = ModelInfo("scripted", "some", efforts=("low", "high"))


def test_the_command_line_and_its_settings(cli: CommandLine) -> None:
    with FakeOpenAI([Reply(text="Fine.")] * 5) as fake:
        reach = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": fake.base_url}
        words = ("run", "Hi.", "--model", "openai:some-model")
        assert cli(*words, env=reach).code == 0
        assert cli(*words, "--reasoning-effort", "high", env=reach).code == 0
        assert cli(*words, env={**reach, "TREADLE_REASONING_EFFORT": "low"}).code == 0
        (cli.home / "config.toml").write_text('reasoning_effort = "xhigh"\n')
        assert cli(*words, env=reach).code == 0
        go_on = ("run", "More.", "--chat", "last")
        assert cli(*go_on, "--reasoning-effort", "minimal", env=reach).code == 0
        assert [request.get("reasoning_effort") for request in fake.requests] == [
            *(None, "high", "low", "xhigh", "minimal"),
        ]
        assert cli(*words, "--reasoning-effort", "huge", env=reach).code == 2


def test_a_model_without_it(cli: CommandLine) -> None:
    """An explicit option is refused; a setting for all models is reported where it has no effect."""
    with FakeOpenAI([Reply(text="Fine.")] * 2) as fake:
        reach = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": fake.base_url}
        words = ("run", "Hi.", "--model", "openai:gpt-4.1")
        refused = cli(*words, "--reasoning-effort", "high", env=reach)
        assert refused.code != 0
        assert "openai:gpt-4.1 has no reasoning effort" in refused.err
        assert not fake.requests
        run_result = cli(*words, env={**reach, "TREADLE_REASONING_EFFORT": "high"})
        assert run_result.code == 0
        assert "openai:gpt-4.1 has no reasoning effort; it goes on without high" in run_result.err + run_result.out
        assert "reasoning_effort" not in fake.requests[0]


def test_a_custom_agent_brings_its_own(cli: CommandLine) -> None:  # E-03
    agents = cli.home / "agents"
    agents.mkdir(parents=True)
    (agents / "thinker.md").write_text("---\nname: thinker\nreasoning_effort: high\n---\nThink.\n")
    (agents / "odd.md").write_text("---\nname: odd\nreasoning_effort: enormous\n---\nThink.\n")
    with FakeOpenAI([Reply(text="Fine.")] * 3) as fake:
        reach = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": fake.base_url}
        words = ("run", "Hi.", "--model", "openai:some-model")
        assert cli(*words, "--agent", "thinker", env=reach).code == 0
        assert cli(*words, "--agent", "thinker", "--reasoning-effort", "low", env=reach).code == 0
        assert cli(*words, "--agent", "odd", env=reach).code == 0
        assert [request.get("reasoning_effort") for request in fake.requests] == ["high", "low", None]


async def test_the_library_changes_it_during_a_chat(stage: Stage) -> None:
    model = Recording(
        ScriptedModel([Say("1"), Say("2"), Say("3")], side_answers={"compaction": "Talk."}, follow="turns")
    )
    chat = stage.agent(model).chat(reasoning_effort="high", compaction_effort="low")
    await play(chat.send("one"))
    await chat.command(c.ChangeOptions({"reasoning_effort": "minimal"}))
    await play(chat.send("two"))
    await chat.command(c.ChangeOptions({"reasoning_effort": ""}))
    await play(chat.send("three"))
    await play(chat.compact())
    assert [(request.purpose, request.effort) for request in model.requests] == [
        *(("turn", "high"), ("turn", "minimal"), ("turn", ""), ("compaction", "low")),
    ]
    with pytest.raises(InvalidInput):
        await chat.command(c.ChangeOptions({"reasoning_effort": "huge"}))


async def test_the_library_refuses_it_for_a_model_that_has_none(stage: Stage) -> None:
    agent = stage.agent(ScriptedModel([Say("1")], info=WITHOUT))
    with pytest.raises(InvalidInput, match="scripted:without has no reasoning effort"):
        agent.chat(reasoning_effort="high")
    chat = agent.chat()
    await play(chat.send("one"))
    with pytest.raises(InvalidInput, match="has no reasoning effort"):
        await chat.command(c.ChangeOptions({"reasoning_effort": "high"}))
    await chat.command(c.ChangeOptions({"reasoning_effort": "none"}))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    model = ScriptedModel([Say("One."), Say("Two.")], follow="turns", info=SOME)
    async with serving(SqliteStore(tmp_path / "treadle.db"), tmp_path, model) as running_server:
        yield running_server


async def test_http(server: Server) -> None:
    assert (await server.local("GET", "/api/models")).json["models"][0]["efforts"] == ["low", "high"]
    chat_view = (await server.local("POST", "/api/chats", {"reasoning_effort": "high"})).json
    assert chat_view["options"]["reasoning_effort"] == "high"
    patch = await server.local("PATCH", f"/api/chats/{chat_view['id']}", {"reasoning_effort": "low"})
    assert patch.json["options"]["reasoning_effort"] == "low"
    refused = await server.local("PATCH", f"/api/chats/{chat_view['id']}", {"reasoning_effort": "huge"})
    assert refused.status == 400


async def test_http_refuses_it_for_a_model_that_has_none(tmp_path: Path) -> None:
    model = ScriptedModel([Say("One.")], info=WITHOUT)
    async with serving(SqliteStore(tmp_path / "treadle.db"), tmp_path, model) as server:
        assert (await server.local("GET", "/api/models")).json["models"][0]["efforts"] == []
        refused = await server.local("POST", "/api/chats", {"reasoning_effort": "high"})
        assert (refused.status, refused.code) == (400, "invalid_input")
        assert b"has no reasoning effort" in refused.data
        chat_view = (await server.local("POST", "/api/chats", {})).json
        assert (await server.local("PATCH", f"/api/chats/{chat_view['id']}", {"reasoning_effort": "low"})).status == 400


@pytest.mark.thorough(one_of=8)
async def test_an_editor_chooses_it(cli: CommandLine) -> None:  # E-02
    cli.environment["OPENAI_API_KEY"] = "k"
    async with editing(cli, "--model", "openai:gpt-5.1", "--reasoning-effort", "low") as editor:
        session = await editor.agent.new_session(cwd=str(cli.project), mcp_servers=[])
        (option,) = [each for each in session.config_options or () if each.id == "reasoning_effort"]
        assert (option.category, option.current_value) == ("thought_level", "low")
        assert [each.value for each in option.options] == ["default", "none", "low", "medium", "high"]

        async def choose(config_id: str, value: str) -> dict[str, Any]:
            reply = await editor.agent.set_config_option(
                session_id=session.session_id, config_id=config_id, value=value
            )
            assert reply is not None
            return {each.id: each.current_value for each in reply.config_options}

        assert (await choose("reasoning_effort", "high"))["reasoning_effort"] == "high"
        assert (await choose("reasoning_effort", "default"))["reasoning_effort"] == "default"
        assert "reasoning_effort" not in await choose("model", "openai:gpt-4.1")
        with pytest.raises(acp.RequestError, match="has no reasoning effort"):
            await choose("reasoning_effort", "high")


async def test_a_program_of_the_copilot_sdk_sets_it(cli: CommandLine) -> None:
    with FakeOpenAI([Reply(text="Fine.")] * 4) as fake:
        provider = {"type": "openai", "baseUrl": fake.base_url, "apiKey": "k"}
        config = {"sessionId": "s1", "provider": provider, "model": "m1"}
        program = await Program.start(cli, cli.script('[[turn]]\ntext = "Fine."\n'))
        try:
            await program.call("session.create", {**config, "reasoningEffort": "high"})
            say = {"sessionId": "s1", "prompt": "Hi."}
            await program.call("session.sendAndWait", say)
            switch = {"sessionId": "s1", "modelId": "m2", "reasoningEffort": "low"}
            await program.call("session.model.switchTo", switch)
            assert (await program.call("session.model.getCurrent", {"sessionId": "s1"}))["reasoningEffort"] == "low"
            await program.call("session.sendAndWait", say)
            effort = {"sessionId": "s1", "reasoningEffort": "medium"}
            assert await program.call("session.model.setReasoningEffort", effort) == {"reasoningEffort": "medium"}
            await program.call("session.sendAndWait", say)
            changes = [each["data"] for each in program.events if each["type"] == "session.model_change"]
            assert [change["reasoningEffort"] for change in changes] == ["low", "medium"]
            with pytest.raises(ErrorAnswer, match="is one of none, minimal"):
                await program.call("session.model.setReasoningEffort", {**effort, "reasoningEffort": "huge"})
            with pytest.raises(ErrorAnswer):
                await program.call("session.create", {"sessionId": "s2", "reasoningEffort": "huge"})
            models = (await program.call("models.list", {}))["models"]
            for each in models:
                has_levels = bool(each.get("supportedReasoningEfforts"))
                assert each["capabilities"]["supports"]["reasoningEffort"] == has_levels
        finally:
            await program.close()
        assert [request.get("reasoning_effort") for request in fake.requests] == ["high", "low", "medium"]
