"""Sessions of an editor inside one process: lists, failures of earlier work, cancellation (E-02, fault 38)."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.forked import forking
from tests.lazily import Lazy, lazily
from tests.scenario.command_line import CommandLine
from treadle import Agent, ScriptedModel
from treadle.adapters.models.scripted import Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.protocol.options import ChatOptions

pytestmark = pytest.mark.thorough(one_of=8)

acp, a, editing = lazily("acp"), Lazy("acp.schema"), lazily("treadle.frontends.acp.agent")
unsaved = lazily("treadle.adapters.tools.hooks")
WAIT_S = 60


class Editor:
    """Takes what it is told by `take`."""

    def __init__(self) -> None:
        self.take: Callable[[Any], Any] = lambda _update: None

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        answer = self.take(update)
        if answer is not None:
            await answer


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    options = ChatOptions(model="scripted:test", summarize=False, verify=False)
    store = SqliteStore(tmp_path / "t.db")
    new_agent = Agent(store, model=ScriptedModel([Say("Hello.")] * 3), options=options, home=tmp_path, retry_base_s=0.0)
    yield new_agent
    await new_agent.close()


def connect_editor(agent: Agent, editor: Editor) -> Any:
    editor_agent = editing.EditorAgent(
        agent,
        lambda root: ChatOptions(model="scripted:test", root=root),
        Path,
        unsaved.UnsavedFiles(agent.workspace_of),
    )
    editor_agent.on_connect(editor)
    return editor_agent


async def test_pages_of_a_list_hold_every_session_once(agent: Agent, tmp_path: Path) -> None:
    server = connect_editor(agent, Editor())
    chats = [agent.chat(root=str(tmp_path)) for _ in range(editing.PAGE * 2 + 1)]
    for chat in chats:
        await chat.open()
    page = await server.list_sessions(cwd=str(tmp_path))
    session_ids = [each.session_id for each in page.sessions]
    await agent.chat(root=str(tmp_path)).open()  # a new one moves the others down
    while page.next_cursor:
        page = await server.list_sessions(cwd=str(tmp_path), cursor=page.next_cursor)
        session_ids += [each.session_id for each in page.sessions]
    assert sorted(session_ids) == sorted(chat.id for chat in chats)
    with pytest.raises(acp.RequestError, match="cursor"):
        await server.list_sessions(cursor="50")


async def test_a_failure_of_earlier_work_does_not_meet_the_next_prompt(agent: Agent, tmp_path: Path) -> None:
    editor = Editor()
    server = connect_editor(agent, editor)
    failed = asyncio.Event()

    def fail(_update: Any) -> None:
        failed.set()
        raise ValueError("the editor is confused")

    editor.take = fail
    session = (await server.new_session(cwd=str(tmp_path))).session_id
    async with asyncio.timeout(WAIT_S):
        await failed.wait()
        editor.take = lambda _update: None
        block = a.TextContentBlock(type="text", text="Hi.")
        reply = await server.prompt(session_id=session, prompt=[block])
    assert reply.stop_reason == "end_turn"


async def test_a_prompt_that_is_cancelled_while_it_waits_ends(agent: Agent, tmp_path: Path) -> None:
    editor = Editor()
    server = connect_editor(agent, editor)
    start_event, leaving = asyncio.Event(), asyncio.Event()

    async def dawdle() -> None:
        start_event.set()
        try:
            await asyncio.Event().wait()
        finally:
            leaving.set()
            await asyncio.sleep(0.2)

    editor.take = lambda _update: dawdle()
    session = (await server.new_session(cwd=str(tmp_path))).session_id
    async with asyncio.timeout(WAIT_S):
        await start_event.wait()
        block = a.TextContentBlock(type="text", text="Hi.")
        prompt = asyncio.create_task(server.prompt(session_id=session, prompt=[block]))
        await leaving.wait()
        prompt.cancel()
        editor.take = lambda _update: None
        await asyncio.wait([prompt])
    assert prompt.cancelled()


async def test_lines_that_are_no_messages_are_answered_and_the_connection_stays(cli: CommandLine) -> None:
    lines = [
        b"{",
        b"[1]",
        b'{"id": [1], "result": {}}',
        b'{"id": 1, "method": 5}',
        b'{"id": 1, "error": "no"}',
        b'{"id": 1, "error": {"code": "x"}}',
        b"[" * 100_000,
        b"\xff",
        b'{"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"protocolVersion": 1}}',
    ]
    command = cli.words("acp", "--model", cli.script('[[turn]]\ntext = "Hello."\n'))
    pipe = asyncio.subprocess.PIPE
    with forking():
        process = await asyncio.create_subprocess_exec(
            *command, cwd=cli.project, env=cli.environment, stdin=pipe, stdout=pipe
        )
    async with asyncio.timeout(WAIT_S):
        out, _ = await process.communicate(b"\n".join(lines) + b"\n")
    assert process.returncode == 0
    answers = [json.loads(line) for line in out.splitlines()]
    assert [each["error"]["code"] for each in answers[:-1]] == [-32700, *[-32600] * 5, -32700, -32700]
    assert answers[-1]["id"] == 7
    assert "result" in answers[-1]
