"""`treadle pending`: the actions that chats ask a person for; `treadle approve`: the answer, from any process
(S-08)."""

from typing import TYPE_CHECKING, NamedTuple

import click

from treadle.frontends.cli.group import in_agent
from treadle.frontends.cli.options import ONCE, SCOPES, gathered, json_option
from treadle.frontends.cli.terminal import Terminal, write_list
from treadle.frontends.presentation.styled import Span, spans

if TYPE_CHECKING:
    from treadle.library.agent import Agent
    from treadle.library.chat import Chat
    from treadle.library.following import Following
    from treadle.protocol.events import OpenAction
    from treadle.protocol.permissions import RuleScope


@click.command("pending")
@json_option("Print one JSON object a line.")
@in_agent()
async def pending(agent: "Agent", as_json: bool) -> None:
    """List the approvals and questions that wait for you.

    Each with the id that approve takes, what would be done, how dangerous it is, and why it is asked.
    """
    from treadle.frontends.cli.approvals import asked_of_people
    from treadle.frontends.presentation.notices import waiting
    from treadle.protocol import wire

    terminal = Terminal()
    rows = []
    for chat, action in await asked_of_people(agent):
        id = f"{chat.id}:{action.action}"
        lines = "".join(f"\n  {line}" for line in waiting(action))
        rows.append(({"chat": chat.id, "id": id, **wire.to_wire_form(action)}, spans(Span(id, ("bold",)), lines)))
    write_list(terminal, rows, "no chat waits for a person", as_json=as_json)


class Approval(NamedTuple):
    """The answer, as the flags give it."""

    deny: bool
    feedback: str
    edit: str | None
    remember: "RuleScope | None"
    rule: int
    expires: str | None
    leave: bool

    def check(self) -> None:
        if self.feedback and not self.deny:
            raise click.UsageError("--feedback goes with --deny.")
        if self.edit is not None and self.deny:
            raise click.UsageError("--edit and --deny exclude each other.")
        if self.expires and not self.remember:
            raise click.UsageError("--expires goes with --remember.")
        if self.edit is not None and self.remember:
            raise click.UsageError(
                "--edit and --remember exclude each other: a rule covers the request, not your edit."
            )


@click.command("approve")
@click.argument("approval_ref", metavar="[ID]", default="")
@click.option("--deny", is_flag=True, help="Refuse instead.")
@click.option("--feedback", default="", metavar="TEXT", help="Tell the model why, with --deny.")
@click.option("--edit", metavar="COMMAND", help="Run this command instead of the one that is asked for.")
@click.option(
    "--remember", type=click.Choice((ONCE, *SCOPES)), help="Make a rule: answer similar requests in the same way."
)
@click.option("--rule", type=click.IntRange(min=1), default=1, metavar="N", help="The number of the offered rule.")
@click.option("--expires", metavar="SPAN", help="How long to remember it, such as 12h or 7d.")
@click.option("--leave", is_flag=True, help="Record the answer and leave; another process continues the chat.")
@json_option("Print every event as one line of JSON.")
@gathered(Approval, "reply")
@in_agent(works=True)
async def approve(agent: "Agent", approval_ref: str, reply: Approval, as_json: bool) -> int:
    """Approve or refuse what a chat asks for, and continue it.

    ID is a chat (as for resume), chat:action as pending shows it, or the action alone if no other chat has it. Without
    it, the only approval that any chat waits for.
    """
    from treadle.frontends.cli.approvals import find_approval
    from treadle.frontends.cli.dialogue import follow
    from treadle.frontends.presentation.notices import waiting

    chat, action = await find_approval(agent, approval_ref)
    since = await _seq_of(chat, action)
    following = await _decision(chat, action, reply)
    if not as_json:
        terminal = Terminal()
        terminal.note(f"{'refusing' if reply.deny else 'allowing'} in chat {chat.id}:", "yellow")
        for line in waiting(action):
            terminal.note(f"  {line}")
    if reply.leave:
        await chat.carry_out(following.command, work=False)
        return 0
    after_seq = since - 1 if as_json else (await chat.state()).head
    return await follow(chat, following, after_seq, as_json=as_json, resumed=True)


async def _seq_of(chat: "Chat", action: "OpenAction") -> int:
    from treadle.protocol.events import PermissionRequested

    request_seqs = (
        each.seq
        for each in reversed(await chat.events_of(PermissionRequested))
        if isinstance(each.data, PermissionRequested) and each.data.action == action.action
    )
    return next(request_seqs, (await chat.state()).head + 1)


async def _decision(chat: "Chat", action: "OpenAction", reply: Approval) -> "Following":
    from treadle.frontends.cli.approvals import chosen_rule, edited, expiring

    rule = None
    if reply.remember:
        rule = expiring(chosen_rule(action, reply.remember, reply.rule, deny=reply.deny), reply.expires)
    arguments = None if reply.edit is None else await edited(chat, action, reply.edit)
    if reply.deny:
        return chat.deny(action, reply.feedback, rule=rule)
    return chat.approve(action, arguments=arguments, rule=rule)
