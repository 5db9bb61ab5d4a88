"""A parent with three children on PostgreSQL, and two workers of which one is killed (L-23, D-03): every child ends
once, and what they changed is committed once."""

import asyncio
from collections.abc import Callable

import pytest

from tests.scenario.command_line import CommandLine, end
from tests.scenario.kit import of
from tests.trees import tree as tree_of
from treadle import Agent
from treadle.adapters.stores import open_store
from treadle.library.subagents.children import list_descendants
from treadle.protocol import events as e
from treadle.protocol.commands import Send
from treadle.protocol.views import ChildView

NAMES = ("one", "two", "three")


WRITE = '{ name = "write_file", args = { path = "NAME", content = "NAME" } }'
EDIT = '{ name = "edit_file", args = { path = "shared", old_str = "NAME\\n", new_str = "by NAME\\n" } }'


def prepare(cli: CommandLine, wait_s: float = 1.0, does: str = WRITE) -> str:
    """A custom agent for each child, with a script of its own; the model of the parent."""
    (cli.home / "agents").mkdir()
    for name in NAMES:
        call = f"[[turn]]\nwait_s = {wait_s}\ncall = [{does.replace('NAME', name)}]\n"
        model = cli.script(call + f'[[turn]]\nwait_s = {wait_s}\ntext = "Done."\n', f"{name}.toml")
        (cli.home / "agents" / f"{name}.md").write_text(f"---\nname: {name}\nmodel: {model}\n---\nWork.\n")
    tasks = ", ".join(f'{{ task = "Write {name}", agent = "{name}" }}' for name in NAMES)
    calls = f'[[turn]]\ncall = [{{ name = "delegate", args = {{ tasks = [{tasks}] }} }}]\n'
    return cli.script(calls + '[[turn]]\ntext = "All done."\n', "parent.toml")


async def wait_for(agent: Agent, chat: str, fits: Callable[[list[ChildView]], bool]) -> list[ChildView]:
    while True:
        rows = await list_descendants(agent.deps, chat)  # type: ignore[arg-type]
        if fits(rows):
            return rows
        await asyncio.sleep(0.1)


@pytest.mark.thorough(one_of=8)
async def test_every_child_ends_once_though_a_worker_is_killed(cli: CommandLine, postgres: str) -> None:
    model = prepare(cli)
    env = {"TREADLE_STORE": postgres, "TREADLE_LEASE_S": "2"}
    async with Agent(open_store(postgres), home=cli.home, env=cli.environment) as agent:
        chat = await agent.chat(model=model, root=cli.project, verify=False)
        await agent.deps.log.execute(chat.id, Send("Work."))
        workers = [cli.start("worker", "--concurrency", "1", env=env) for _ in range(2)]
        try:
            async with asyncio.timeout(90):
                await wait_for(agent, chat.id, lambda rows: any(row.turns for row in rows))
                workers[0].kill()
                rows = await wait_for(agent, chat.id, lambda rows: len([row for row in rows if row.ended]) == 3)
                while (await chat.status()) != "idle":
                    await chat.wait((await chat.state()).head, 1.0)
        finally:
            workers[1].terminate()
            for worker in workers:
                end(worker)
        events = await chat.events()
        assert [row.ended for row in rows] == ["done"] * 3
        assert {file.path for file in of(events, e.FilesChanged)[0].files} == set(NAMES)
        assert len(of(events, e.FilesChanged)) == 1
        assert [one.committed for one in of(events, e.SubagentCompleted)] == [True] * 3
        for row in rows:
            log = await agent.chat(row.chat).events()
            assert len(of(log, e.UserMessage)) == len(of(log, e.RunEnd)) == 1


@pytest.mark.thorough(one_of=8)
def test_a_parent_that_is_killed_at_every_step_does_nothing_twice(cli: CommandLine) -> None:  # D-02, faults 1 to 3
    old_tree = tree_of(cli.project)
    first = cli("run", "Work.", "--model", prepare(cli, 0.0), "--json", env=make_kill_env("subagents.world_made"))
    assert first.code == -9, first.err
    chat = first.lines[0]["chat"]
    for point in ("subagents.begun#2", "subagents.before_commit", "transaction.put#2", "tool.after:delegate"):
        again = cli("resume", chat, "--json", env=make_kill_env(point))
        assert again.code == -9, (point, again.err)
    last = cli("resume", chat, "--json")
    assert last.code == 0, last.err
    logs = read_all(cli)
    changes = of(logs[chat], e.FilesChanged)
    assert [{file.path for file in each.files} for each in changes] == [set(NAMES)]
    children = of(logs[chat], e.SubagentCompleted)
    assert [child.reason for child in children] == ["done"] * 3
    assert set(logs) == {chat, *(child.chat for child in children)}
    for child in children:
        assert len(of(logs[child.chat], e.UserMessage)) == len(of(logs[child.chat], e.FilesChanged)) == 1
    assert cli("undo", chat).code == 0
    assert tree_of(cli.project) == old_tree


@pytest.mark.thorough(one_of=8)
def test_a_merge_that_is_killed_is_made_once(cli: CommandLine) -> None:  # W-13
    lines = [*(["-"] * 9), *(line for name in NAMES for line in (name, *["-"] * 9))]
    (cli.project / "shared").write_text("\n".join(lines))
    old_tree = tree_of(cli.project)
    model = prepare(cli, 0.0, EDIT)
    first = cli("run", "Work.", "--model", model, "--json", env=make_kill_env("subagents.rebased"))
    assert first.code == -9, first.err
    chat = first.lines[0]["chat"]
    again = cli("resume", chat, "--json", env=make_kill_env("subagents.rebased"))
    assert again.code == -9, again.err
    last = cli("resume", chat, "--json")
    assert last.code == 0, last.err
    completions = of(read_all(cli)[chat], e.SubagentCompleted)
    assert [each.committed for each in completions] == [True] * 3
    shared_lines = (cli.project / "shared").read_text().split("\n")
    assert shared_lines == [f"by {line}" if line in NAMES else line for line in lines]
    assert cli("undo", chat).code == 0
    assert tree_of(cli.project) == old_tree


def read_all(cli: CommandLine) -> dict[str, list[e.Envelope]]:
    """Every chat with its log."""

    async def read() -> dict[str, list[e.Envelope]]:
        async with Agent(cli.home / "treadle.db", home=cli.home) as agent:
            chats = [listed.summary.chat for listed in await agent.chats()]
            return {chat: await agent.chat(chat).events() for chat in chats}

    return asyncio.run(read())


def make_kill_env(point: str) -> dict[str, str]:
    return {"TREADLE_FAULTS": f"kill@{point}"}
