"""`treadle resume`: go on with a chat that was cut off, or give it what it waits for."""

from typing import TYPE_CHECKING, NamedTuple

import click

from treadle.errors import InvalidInput, Refused
from treadle.frontends.cli.group import in_agent
from treadle.frontends.cli.options import gathered, json_option

if TYPE_CHECKING:
    from treadle.library.agent import Agent
    from treadle.library.chat import Chat
    from treadle.library.following import Following
    from treadle.protocol.commands import Result
    from treadle.protocol.events import OpenAction


class Resumption(NamedTuple):
    """The answer, as the flags give it; at most one of them."""

    approve: bool
    deny: bool
    feedback: str
    answer: str | None
    results: str | None

    def check(self) -> None:
        if sum([self.approve, self.deny, self.answer is not None, self.results is not None]) > 1:
            raise click.UsageError("--approve, --deny, --answer and --results exclude each other.")
        if self.feedback and not self.deny:
            raise click.UsageError("--feedback goes with --deny.")


@click.command("resume")
@click.argument("chat_ref", metavar="ID")
@click.option("--approve", is_flag=True, help="Allow what the chat asks for.")
@click.option("--deny", is_flag=True, help="Refuse what the chat asks for.")
@click.option("--feedback", default="", metavar="TEXT", help="Tell the model why, with --deny.")
@click.option("--answer", metavar="TEXT", help="Answer the chat's question, in words or by the number of an option.")
@click.option("--results", metavar="FILE", help="Hand in the results of client tools, as JSON; - reads standard input.")
@json_option("Print every event as one line of JSON.")
@gathered(Resumption, "reply")
@in_agent(works=True)
async def resume(agent: "Agent", chat_ref: str, reply: Resumption, as_json: bool) -> int:
    """Continue a chat that was interrupted or waits for an answer.

    ID is a chat's id, the beginning of it, or last.
    """
    from treadle.frontends.cli.dialogue import follow, someone_is_there
    from treadle.frontends.cli.session import find_chat

    chat = agent.chat(await find_chat(agent.deps.store, chat_ref))
    head = await agent.deps.store.head(chat.id)
    asks = not as_json and someone_is_there()
    return await follow(chat, await _following(chat, reply), head, as_json=as_json, asks=asks, resumed=True)


async def _following(chat: "Chat", reply: Resumption) -> "Following":
    if reply.results is not None:
        return chat.submit(_read_results(reply.results))
    if reply.answer is not None:
        from treadle.frontends.presentation.notices import chosen_option

        action = await _open(chat, "user_input", "asks no question")
        return chat.answer(action, chosen_option(action, reply.answer))
    if reply.approve:
        return chat.approve(await _open(chat, "permission", "asks for no approval"))
    if reply.deny:
        return chat.deny(await _open(chat, "permission", "asks for no approval"), reply.feedback)
    return chat.resume()


async def _open(chat: "Chat", kind: str, otherwise: str) -> "OpenAction":
    for action in await chat.actions():
        if action.kind == kind:
            return action
    raise Refused("not_awaiting_action", f"the chat {chat.id} {otherwise}")


def _read_results(file: str) -> "list[Result]":
    import msgspec

    from treadle.frontends.cli.piped import read_bytes
    from treadle.protocol.commands import Result

    class Results(msgspec.Struct):
        results: list[Result]

    try:
        return msgspec.json.decode(read_bytes(file), type=Results).results
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        example = '{"results": [{"tool_call_id": "…", "output": …}]}'
        raise InvalidInput(f"{file} holds no results ({error}); it should look like {example}") from error
