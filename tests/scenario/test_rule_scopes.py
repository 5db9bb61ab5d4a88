"""Every offer carries its scopes, and no front end makes a wider rule than was offered (S-07, fault 6): the engine
checks it. `once` never makes a rule."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.scenario.command_line import CommandLine
from tests.scenario.copilot_kit import Start, turns
from tests.scenario.editor import begin, editing
from tests.scenario.http_kit import serving
from tests.scenario.kit import Stage, of, play
from tests.scenario.test_cli_dialogue import person, prepare_run
from tests.scenario.test_tui_app import agent_with, app_on, say, until
from treadle import Chat
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base import file_system
from treadle.errors import ConfigError, InvalidInput, Refused
from treadle.protocol.events import ActionRequired, ExecutionComplete, OpenAction, PermissionCompleted
from treadle.protocol.permissions import Offer, Rule

pytestmark = pytest.mark.thorough(one_of=8)

ONE_HOST = "curl --version https://example.org/"
"""Asked for because of its words; it reaches nothing."""
ALL_HOSTS = "curl --version x"
"""The same without a host: only `every host, for this call alone` is offered."""
DONE = '[[turn]]\ntext = "All done."\n'


def script(command: str) -> str:
    return f'[[turn]]\ncall = [{{ name = "run_command", args = {{ command = {json.dumps(command)} }} }}]\n'


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    new_stage = Stage(SqliteStore(tmp_path / "treadle.db"))
    yield new_stage
    await new_stage.close()


async def asking(stage: Stage, folder: Path, command: str) -> tuple[Chat, OpenAction]:
    (folder / "project").mkdir()
    agent = stage.agent([Call("run_command", command=command), Say("Done.")], builtin=True, home=folder / "home")
    chat = agent.chat(root=str(folder / "project"), mode="ask", interactive=True)
    await play(chat.send("Go."))
    (action,) = await chat.actions()
    return chat, action


@pytest.mark.thorough(one_of=8)
async def test_the_engine_refuses_what_was_not_offered_and_changes_nothing(stage: Stage, tmp_path: Path) -> None:
    chat, action = await asking(stage, tmp_path, ONE_HOST)
    host, everything = action.offers
    assert (host.scopes, everything.scopes) == (("once", "chat", "project", "user"), ("once",))
    forged: list[Rule] = [replace(everything.rule, scope=scope) for scope in ("chat", "project", "user")]  # type: ignore[arg-type]
    forged += [
        replace(host.rule, pattern="*.org"),
        replace(host.rule, pattern="all", scope="once", tool="run_command"),
        replace(host.rule, effect="deny"),
        replace(host.rule, effect="ask"),
        replace(host.rule, root="/elsewhere", scope="project"),
        Rule("allow", "run_command", "rm *", "user"),
    ]
    head = (await chat.state()).head
    for rule in forged:
        with pytest.raises(InvalidInput, match="offers no such rule"):
            await chat.approve(action, rule=rule)
    for scope in ("chat", "user"):
        with pytest.raises(InvalidInput, match="offered with the scope once"):
            everything.rule_for(scope)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="offers no such rule"):
            await chat.deny(action, rule=host.rule_for("chat"))
    assert (await chat.state()).head == head
    assert await chat.actions() == (action,) or list(await chat.actions()) == [action]
    await play(chat.approve(action, rule=everything.rule_for("once")))
    assert (await chat.state()).options.rules == ()
    assert not (tmp_path / "home" / "rules.json").exists()


async def test_the_rule_of_an_answer_is_saved_before_the_next_call_is_judged(stage: Stage, tmp_path: Path) -> None:
    """S-07: else the second call would be asked for, or let through after a refusal for all calls."""
    (tmp_path / "project").mkdir()
    steps = [Call("run_command", command=ONE_HOST), Call("run_command", command=ONE_HOST), Say("Done.")]
    agent = stage.agent(steps, builtin=True, home=tmp_path / "home")
    chat = agent.chat(root=str(tmp_path / "project"), mode="ask", interactive=True)
    await play(chat.send("Go."))
    (action,) = await chat.actions()
    async with asyncio.timeout(60):
        while agent.worker.is_holding(chat.id):
            agent.worker.changed.clear()
            await agent.worker.changed.wait()
    driven_chats = []

    def look(point: str) -> None:
        if point == "home.before_replace:rules.json":
            driven_chats.append(agent.worker.is_holding(chat.id))

    file_system.install_fault_hook(look)
    try:
        events = await play(chat.approve(action, rule=action.offers[0].rule_for("user")))
    finally:
        file_system.install_fault_hook(None)
    assert driven_chats == [False]
    assert not of(events, ActionRequired)
    assert len(of(events, ExecutionComplete)) == 2


@pytest.mark.thorough(one_of=8)
async def test_an_approval_that_is_repeated_saves_the_rule_that_could_not_be_saved(
    stage: Stage, tmp_path: Path
) -> None:  # S-07, A-04
    chat, action = await asking(stage, tmp_path, ONE_HOST)
    rules = tmp_path / "home" / "rules.json"
    obstacle = rules.with_name("rules.json.lock")
    obstacle.mkdir(parents=True)  # no lock file can be made: the rule cannot be saved
    rule = action.offers[0].rule_for("project")
    with pytest.raises(ConfigError, match=r"approval.* is recorded.*rule was not saved.*cannot be written"):
        await play(chat.approve(action, rule=rule))
    await play(chat.resume())  # the run goes on: the answer is recorded
    obstacle.rmdir()
    head = (await chat.state()).head
    for answer in (chat.deny(action), chat.approve(action), chat.approve(action, rule=replace(rule, scope="user"))):
        with pytest.raises(Refused, match="may have been answered already"):
            await play(answer)
    assert not rules.exists()
    await play(chat.approve(action, rule=rule))
    (saved,) = json.loads(rules.read_text())["rules"]
    (recorded,) = [each.data.rule for each in await chat.events() if isinstance(each.data, PermissionCompleted)]
    assert recorded is not None
    assert (saved["id"], saved["scope"]) == (recorded.id, "project")
    assert saved["root"] == str(tmp_path / "project")
    assert (await chat.state()).head == head  # the answer is not recorded twice


def test_offers_of_older_logs_have_the_scopes_of_their_rule() -> None:
    assert Offer(Rule("allow", "network", "all", scope="once"), "").open_scopes == ("once",)
    assert Offer(Rule("allow", "run_command", "make"), "").open_scopes == ("chat", "project", "user")


@pytest.mark.thorough(one_of=8)
async def test_over_http(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    steps = [Call("run_command", command=ONE_HOST), Say("Done."), Call("run_command", command=ONE_HOST), Say("Done.")]
    async with serving(SqliteStore(tmp_path / "t.db"), tmp_path / "home", steps, builtin=True) as server:
        client = server.local
        options: dict[str, Any] = {"root": str(tmp_path / "project"), "mode": "ask"}
        chat = await client.create("Go.", **options)
        action = (await client.until(chat, "session.action_required"))[-1]["data"]["actions"][0]
        assert [offer["scopes"] for offer in action["offers"]] == [["once", "chat", "project", "user"], ["once"]]
        path = f"/api/chats/{chat}/approvals/{action['action']}"
        body = {"decision": "allow", "hash": action["hash"]}
        old_length = len(await client.log(chat))
        for scope in ("chat", "project", "user"):
            refused = await client("POST", path, body | {"rule": {"offer": 1, "scope": scope}})
            assert (refused.status, refused.code) == (400, "invalid_input")
        assert len(await client.log(chat)) == old_length
        assert (await client("POST", path, body | {"rule": {"offer": 1, "scope": "once"}})).status == 200
        await client.until(chat, "session.idle")
        assert (await client("GET", f"/api/chats/{chat}")).json["options"].get("rules", []) == []
        second_chat = await client.create("Again.", **options)
        action = (await client.until(second_chat, "session.action_required"))[-1]["data"]["actions"][0]
        path = f"/api/chats/{second_chat}/approvals/{action['action']}"
        body = {"decision": "deny", "hash": action["hash"], "rule": {"offer": 0, "scope": "user"}}
        assert (await client("POST", path, body)).status == 200
        await client.until(second_chat, "session.idle")
        (rule,) = json.loads((tmp_path / "home" / "rules.json").read_text())["rules"]
        assert (rule["effect"], rule["scope"], rule["pattern"]) == ("deny", "user", "example.org")  # a refusal denies


@pytest.mark.thorough(one_of=8)
def test_with_the_command_line(cli: CommandLine) -> None:
    run_result = cli(
        "run", "Go.", "--model", cli.script(script(ONE_HOST) + DONE), "--mode", "ask", "--interactive", "--json"
    )
    chat = run_result.events[0]["chat"]
    for scope in ("chat", "project", "user"):
        refused = cli("approve", chat, "--remember", scope, "--rule", "2")
        assert refused.code == 2
        assert "offered with the scope once" in refused.err
    assert len(cli("pending", "--json").lines) == 1
    assert cli("approve", chat, "--remember", "once", "--rule", "2").code == 0
    assert cli("rules", "--chat", chat, "--json").out == ""
    run_result = cli(
        "run", "Go.", "--model", cli.script(script(ONE_HOST) + DONE), "--mode", "ask", "--interactive", "--json"
    )
    chat = run_result.events[0]["chat"]
    assert cli("approve", chat, "--remember", "chat").code == 0
    (rule,) = cli("rules", "--chat", chat, "--json").lines
    assert (rule["scope"], rule["pattern"]) == ("chat", "example.org")


def test_at_the_terminal(cli: CommandLine) -> None:
    with person(cli, *prepare_run(cli, script(ALL_HOSTS) + DONE), "--mode", "ask") as one:
        one.sees("[y]es")
        one.types("u")
        one.sees("offered with the scope once")
        one.sees("[y]es")
        one.types("y")
        one.sees("All done.")
        assert one.leaves() == 0
    assert cli("rules", "--json").out == ""


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize(("key", "saved"), [("w", ()), ("c", ("chat",)), ("u", ("user",)), ("2", None)])
async def test_in_the_app(tmp_path: Path, key: str, saved: tuple[str, ...] | None) -> None:
    async with agent_with([[Call("run_command", command=ONE_HOST)], Say("Done.")], tmp_path / "home") as agent:
        (tmp_path / "project").mkdir()
        app = app_on(agent, tmp_path / "project", mode="ask")
        async with app.run_test(size=(100, 30)) as pilot:
            await say(pilot, "Go.")
            await until(pilot, lambda: app.card.action is not None and app.card.armed)
            await pilot.press(key)
            if saved is None:  # every host is offered for this call alone, so the key means nothing
                await pilot.pause(0.2)
                assert app.card.action is not None
            else:
                if saved:  # a rule is shown first
                    await pilot.press("enter", "enter")
                await until(pilot, lambda: app.card.action is None and not app.conversation.view.busy)
                assert app.link is not None
                rules = (await agent.chat(app.link.id).state()).options.rules
                assert tuple(rule.scope for rule in (*rules, *agent.rules.list_rules())) == saved
            app.leave()


@pytest.mark.thorough(one_of=8)
async def test_in_an_editor(cli: CommandLine) -> None:
    ask = cli.script(script(ALL_HOSTS) + DONE + script(ONE_HOST) + DONE)
    async with editing(cli, "--model", ask, "--mode", "ask") as editor:
        session = await begin(editor, cli)
        editor.choose = lambda _options: "once"
        await editor.say(session, "First.")
        assert [option.option_id for option in editor.asked[0][1]] == ["once", "reject"]
        editor.choose = lambda _options: "project"
        await editor.say(session, "Second.")
        assert [option.option_id for option in editor.asked[1][1]][:3] == ["once", "chat", "project"]
        (rule,) = cli("rules", "--json").lines
        assert (rule["scope"], rule["pattern"]) == ("project", "example.org")


@pytest.mark.parametrize("scope", ["once", "chat", "project"])
async def test_the_scope_chosen_in_an_editor_is_saved(cli: CommandLine, scope: str) -> None:  # S-07
    async with editing(cli, "--model", cli.script(script(ONE_HOST) + DONE), "--mode", "ask") as editor:
        editor.choose = lambda _options: scope
        await editor.say(await begin(editor, cli), "Go.")
    assert saved_scopes(cli) == ([] if scope == "once" else [scope])


def saved_scopes(cli: CommandLine) -> list[str]:
    """Return the scopes of the rules of the only chat, of the project and of the user."""
    (chat,) = (row["chat"] for row in cli("chats", "--json").lines)
    rules = [*cli("rules", "--json").lines, *cli("rules", "--chat", chat, "--json").lines]
    return [scope for scope, _ in sorted({(rule["scope"], rule["pattern"]) for rule in rules})]


@pytest.mark.parametrize(
    ("kind", "scopes"),
    [
        ("approve-once", []),
        ("approve-for-session", ["chat"]),
        ("approved-for-session", ["chat"]),
        ("approve-for-location", ["project"]),
        ("approved-for-location", ["project"]),
        ("approve-permanently", ["user"]),
    ],
)
async def test_the_scope_chosen_over_the_copilot_sdk_is_saved(  # S-07
    start: Start, cli: CommandLine, kind: str, scopes: list[str]
) -> None:
    program = await start(turns(("run_command", {"command": ONE_HOST})))
    await program.call("session.create", {"sessionId": "s1", "requestPermission": True})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    request = (await program.wait_for_event("permission.requested"))["data"]
    decision = {"sessionId": "s1", "requestId": request["requestId"], "result": {"kind": kind}}
    await program.call("session.permissions.handlePendingPermissionRequest", decision)
    await program.wait_for_event("session.idle")
    assert saved_scopes(cli) == scopes


@pytest.mark.parametrize(("command", "has_offer"), [(ALL_HOSTS, False), (ONE_HOST, True)])
async def test_by_the_copilot_sdk(start: Start, cli: CommandLine, command: str, has_offer: bool) -> None:
    program = await start(turns(("run_command", {"command": command})))
    await program.call("session.create", {"sessionId": "s1", "requestPermission": True})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Go."})
    request = (await program.wait_for_event("permission.requested"))["data"]
    decision = {"sessionId": "s1", "requestId": request["requestId"], "result": {"kind": "approve-permanently"}}
    await program.call("session.permissions.handlePendingPermissionRequest", decision)
    await program.wait_for_event("session.idle")
    saved = [(rule["tool"], rule["pattern"], rule["scope"]) for rule in cli("rules", "--json").lines]
    assert all(scope == "user" and pattern != "all" for _, pattern, scope in saved)
    assert bool(saved) is (has_offer or request["permissionRequest"]["canOfferSessionApproval"])
