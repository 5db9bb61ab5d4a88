"""`treadle resume`: go on with a chat that was cut off, or give it what it waits for."""

import asyncio
import sys
from pathlib import Path

import msgspec

from treadle.cli.dialogue import Dialogue, converse, someone_is_there
from treadle.cli.drive import drive
from treadle.cli.output import JsonLines
from treadle.cli.screen import Screen
from treadle.cli.session import configured, find_chat, open_agent
from treadle.cli.terminal import Terminal
from treadle.config import Config
from treadle.errors import InvalidInput, Refused
from treadle.handle import Chat, Following
from treadle.protocol.commands import Result
from treadle.protocol.events import OpenAction


class Reply(msgspec.Struct, frozen=True):
    """What the flags answer; at most one of them."""

    approve: bool = False
    deny: bool = False
    feedback: str = ""
    answer: str | None = None
    results: str | None = None


class _Results(msgspec.Struct):
    results: list[Result]


def resume(chat: str, reply: Reply, as_json: bool) -> int:
    return asyncio.run(_resume(configured(), chat, reply, as_json))


async def _resume(config: Config, named: str, reply: Reply, as_json: bool) -> int:
    async with open_agent(config, works=True) as agent:
        store = agent.deps.store
        found = await find_chat(store, named)
        chat = agent.chat(found)
        head = await store.head(found)
        if as_json:
            return await drive(chat, await _following(chat, reply), JsonLines(), head)
        asks = someone_is_there()
        terminal = Terminal()
        screen = Screen(terminal, asks=asks)
        state = await chat.state()
        screen.begin(chat.id, state.options.model, state.options.root, resumed=True)
        screen.knows(state)
        return await converse(chat, await _following(chat, reply), screen, head, Dialogue(terminal) if asks else None)


async def _following(chat: Chat, reply: Reply) -> Following:
    if reply.results is not None:
        return chat.submit(_read_results(reply.results))
    if reply.answer is not None:
        return chat.answer(await _open(chat, "user_input", "asks no question"), reply.answer)
    if reply.approve:
        return chat.approve(await _open(chat, "permission", "asks for no approval"))
    if reply.deny:
        return chat.deny(await _open(chat, "permission", "asks for no approval"), reply.feedback)
    return chat.resume()


async def _open(chat: Chat, kind: str, otherwise: str) -> OpenAction:
    for action in await chat.actions():
        if action.kind == kind:
            return action
    raise Refused("not_awaiting_action", f"the chat {chat.id} {otherwise}")


def _read_results(file: str) -> list[Result]:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return msgspec.json.decode(data, type=_Results).results
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror or error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        wanted = '{"results": [{"tool_call_id": "…", "output": …}]}'
        raise InvalidInput(f"{file} holds no results ({error}); it should look like {wanted}") from error
