"""`treadle pending`: the actions that chats ask a person for; `treadle approve`: the answer, from any process (S-08).
`treadle rules`: the standing answers, listed, made and taken back (S-07)."""

import os
import re
import time
from collections.abc import Callable
from typing import NamedTuple, get_args

import click

from treadle.base.inert import make_inert_line
from treadle.errors import InvalidInput, NotFound, Refused
from treadle.frontends.cli.group import pass_agent

from treadle.frontends.cli.lazy import (  # isort: skip
    Agent, Chat, c, dialogue, e, msgspec, notices, permissions, rule_book, session, wire,
)  # fmt: skip
from treadle.frontends.cli.options import (
    CHAT,
    FOLDER,
    POSITIVE,
    add_json_option,
    gather_options,
    refuse,
    resolve_project_root,
)
from treadle.frontends.cli.terminal import Terminal, write_list
from treadle.frontends.presentation.styled import Line, Span, join_spans
from treadle.protocol.choices import STANDING, RuleScope

_SPAN = re.compile(r"([0-9]+)\s*([smhdw])")
_MOST_DIGITS = 12
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


@click.command("pending")
@add_json_option("Print one JSON object a line.")
@pass_agent()
async def pending(agent: "Agent", as_json: bool) -> None:
    """List the approvals and questions that wait for you.

    Each with the id that approve takes, what would be done, how dangerous it is, and why it is asked."""
    rows = []
    for chat, action in await _list_person_actions(agent):
        id = f"{chat.id}:{action.action}"
        lines = "".join(f"\n  {line}" for line in notices.describe_request(action))
        rows.append(({"chat": chat.id, "id": id, **wire.to_wire_form(action)}, join_spans(Span(id, ("bold",)), lines)))
    write_list(rows, "no chat waits for a person", as_json=as_json)


async def _list_person_actions(agent: "Agent") -> "list[tuple[Chat, e.OpenAction]]":
    """Return the open actions of all chats that a person can answer; client tools wait for a program."""
    listed = await agent.chats(archived=False)
    chats = [agent.chat(each.summary.chat) for each in listed if each.summary.status == "requires_action"]
    return [(chat, action) for chat in chats for action in await chat.actions() if action.of_person]


async def _find_approval(agent: "Agent", approval_ref: str) -> "tuple[Chat, e.OpenAction]":
    """By its chat, by chat and action (c_…:3.1), or by the action alone; without a name, the only one."""
    if not approval_ref or re.fullmatch(r"\d+\.\d+", approval_ref):
        return await _find_in_all_chats(agent, approval_ref)
    chat_part, _, action_id = approval_ref.rpartition(":") if ":" in approval_ref else (approval_ref, "", "")
    chat = await session.open_chat(agent, chat_part)
    for action in await chat.actions():
        if action.kind == "permission" and action_id in ("", action.action):
            return chat, action
    problem = f"does not ask for {action_id}" if action_id else "asks for no approval"
    raise Refused("no_such_action", f"the chat {chat.id} {problem} (any more); see: treadle pending")


async def _find_in_all_chats(agent: "Agent", action_id: str) -> "tuple[Chat, e.OpenAction]":
    waiting = [(chat, action) for chat, action in await _list_person_actions(agent) if action.kind == "permission"]
    matches = [(chat, action) for chat, action in waiting if action_id in ("", action.action)]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        missing = f"asks for {action_id!r} (any more); see: treadle pending" if action_id else "waits for an approval"
        raise NotFound(f"no chat {missing}")
    if action_id:
        candidates = ", ".join(f"{chat.id}:{action_id}" for chat, _ in matches[:5])
        raise InvalidInput(f"{len(matches)} chats ask for {action_id} ({candidates}); name the chat, too")
    lines = (f"\n  treadle approve {chat.id}:{each.action}  {make_inert_line(each.text, 80)}" for chat, each in matches)
    raise InvalidInput(f"{len(matches)} actions wait for an approval; name one of them:{''.join(lines)}")


class Approval(NamedTuple):
    deny: bool
    feedback: str
    edit: str | None
    remember: RuleScope | None
    rule: int
    expires: str | None
    leave: bool

    def check(self) -> None:
        no_rule = "--edit and --remember exclude each other: a rule covers the request, not your edit."
        problems = {
            "--feedback goes with --deny.": self.feedback and not self.deny,
            "--edit and --deny exclude each other.": self.edit is not None and self.deny,
            "--expires goes with --remember.": self.expires and not self.remember,
            no_rule: self.edit is not None and self.remember,
        }
        refuse(problems)


@click.command("approve")
@click.argument("approval_ref", metavar="[ID]", default="", type=CHAT)
@click.option("--deny", is_flag=True, help="Refuse instead.")
@click.option("--feedback", default="", metavar="TEXT", help="Tell the model why, with --deny.")
@click.option("--edit", metavar="COMMAND", help="Run this command instead of the one that is asked for.")
@click.option(
    "--remember", type=click.Choice(get_args(RuleScope)), help="Make a rule: answer similar requests in the same way."
)
@click.option("--rule", type=POSITIVE, default=1, metavar="N", help="The number of the offered rule.")
@click.option("--expires", metavar="SPAN", help="How long to remember it, such as 12h or 7d.")
@click.option("--leave", is_flag=True, help="Record the answer and leave; another process continues the chat.")
@add_json_option("Print every event as one line of JSON.")
@gather_options(Approval, "reply")
@pass_agent(works=True)
async def approve(agent: "Agent", approval_ref: str, reply: Approval, as_json: bool) -> int:
    """Approve or refuse what a chat asks for, and continue it.

    ID is a chat (as for resume), chat:action as pending shows it, or the action alone if no other chat has it. Without
    it, the only approval that any chat waits for."""
    chat, action = await _find_approval(agent, approval_ref)
    requests = [(each.seq, each.data) for each in await chat.events_of(e.PermissionRequested)]
    seqs = [seq for seq, data in requests if isinstance(data, e.PermissionRequested) and data.action == action.action]
    since = seqs[-1] if seqs else (await chat.state()).head + 1
    arguments = None if reply.edit is None else await dialogue.edit_command(chat, action, reply.edit)
    rule = None
    if reply.remember:
        rule = _add_expiry(dialogue.choose_rule(action, reply.remember, reply.rule, deny=reply.deny), reply.expires)
    if reply.deny:
        following = chat.deny(action, reply.feedback, rule=rule)
    else:
        following = chat.approve(action, arguments=arguments, rule=rule)
    if not as_json:
        terminal = Terminal()
        terminal.write_note(f"{'refusing' if reply.deny else 'allowing'} in chat {chat.id}:", "yellow")
        for line in notices.describe_request(action):
            terminal.write_note(f"  {line}")
    if reply.leave:
        await chat.carry_out(following.command, work=False)
        return 0
    after_seq = since - 1 if as_json else (await chat.state()).head
    return await dialogue.follow(chat, following, after_seq, as_json=as_json, resumed=True)


def _add_expiry(rule: "permissions.Rule", span: str | None) -> "permissions.Rule":
    """The rule, for as long as `7d` says; without a span for good."""
    if not span:
        return rule
    match = _SPAN.fullmatch(span.strip())
    if match is None or not match[1].strip("0"):
        raise InvalidInput(f"{span!r} is no span of time; write 30m, 12h, 7d or 2w")
    if len(match[1]) > _MOST_DIGITS:
        way = "leave --expires out for a rule without an end"
        raise InvalidInput(f"{span[:20]!r} is longer than a rule can hold; {way}")
    end_ms = round(time.time() * 1000) + 1000 * int(match[1]) * _SECONDS[match[2]]
    expiring_rule = msgspec.structs.replace(rule, expires_ms=end_ms)
    permissions.check_expiry(expiring_rule)
    return expiring_rule


@click.group("rules", invoke_without_command=True)
@click.option("--chat", type=CHAT, help="Also list the rules of this chat.")
@add_json_option("Print one JSON object a line.")
@click.pass_context
def rules(context: click.Context, chat: str | None, as_json: bool) -> None:
    """List, add and revoke rules: approvals that last.

    With add and revoke; alone, or with list, it lists them: where each holds, when it was made and last used, and until
    when it holds."""
    if context.invoked_subcommand is None:
        context.invoke(list_rules, chat=chat, as_json=as_json)


@rules.command("list")
@click.option("--chat", type=CHAT, help="Also list the rules of this chat.")
@add_json_option("Print one JSON object a line.")
def list_rules(chat: str | None, as_json: bool) -> None:
    """List the rules."""
    book = rule_book.RuleBook(session.load_config().home)
    listed_rules, damage = book.list_readable()
    if chat is not None:
        listed_rules += _change_rules(chat)
    uses = {rule.id: book.read_last_use_ms(rule.id) for rule in listed_rules}
    rows = [
        (wire.to_wire_form(each) | {"used_ms": uses[each.id]}, _format_rule(each, uses[each.id]))
        for each in listed_rules
    ]
    write_list(rows, "no rules; make one with: treadle rules add --allow 'make test'", as_json=as_json)
    if damage:
        Terminal().write_note(make_inert_line(f"as long as this is so, no rule allows anything: {damage}"), "yellow")


@rules.command("add")
@click.option("--allow", is_flag=True, help="Allow it without asking.")
@click.option("--ask", is_flag=True, help="Always ask, even if another rule allows it.")
@click.option("--deny", is_flag=True, help="Always refuse, even if another rule allows it.")
@click.argument("pattern", default="")
@click.option("--tool", default="run_command", help="The tool; the pattern of a file tool is a glob.")
@click.option("--scope", type=click.Choice(STANDING), default="project", help="Where it holds.")
@click.option("--root", type=FOLDER, help="The project; by default the one of this folder.")
@click.option("--chat", type=CHAT, help="The chat, for that scope.")
@click.option("--expires", metavar="SPAN", help="How long it holds, such as 12h or 7d.")
def add(
    allow: bool,
    ask: bool,
    deny: bool,
    pattern: str,
    tool: str,
    scope: RuleScope,
    root: str | None,
    chat: str | None,
    expires: str | None,
) -> None:
    """Make a rule.

    PATTERN is the words of one command; a * as the last word stands for any further ones."""
    from treadle.adapters.policy.rules import check_rule

    if allow + ask + deny != 1:
        raise click.UsageError("Choose one of --allow, --ask and --deny.")
    if (scope == "chat") != (chat is not None):
        raise click.UsageError("--chat goes with --scope chat.")
    rule = _add_expiry(permissions.Rule("allow" if allow else "ask" if ask else "deny", tool, pattern, scope), expires)
    if chat is not None:

        def append(_chat: "Chat", rules: "tuple[permissions.Rule, ...]") -> "tuple[permissions.Rule, ...]":
            check_rule(rule)
            return (*rules, added_rule)

        added_rule = rule_book.stamp_rule(rule, round(time.time() * 1000))
        _change_rules(chat, append)
    else:
        project = str(resolve_project_root(root)) if scope == "project" else ""
        added_rule = rule_book.RuleBook(session.load_config().home).add(msgspec.structs.replace(rule, root=project))
    Terminal().write_line(_format_rule(added_rule))


@rules.command("revoke")
@click.argument("id")
@click.option("--chat", type=CHAT, help="The chat, for a rule of a chat.")
def revoke(id: str, chat: str | None) -> None:
    """Revoke a rule."""

    def remove_rule(chat: "Chat", rules: "tuple[permissions.Rule, ...]") -> "tuple[permissions.Rule, ...]":
        if all(rule.id != id for rule in rules):
            raise NotFound(f"there is no rule {id!r} in chat {chat.id}; see them with: treadle rules --chat {chat.id}")
        return tuple(rule for rule in rules if rule.id != id)

    if chat:
        revoked = next(rule for rule in _change_rules(chat, remove_rule) if rule.id == id)
    else:
        revoked = rule_book.RuleBook(session.load_config().home).revoke(id)
    Terminal().write_note("".join(["revoked: ", *(span.text for span in _format_rule(revoked))]), "dim")


def _change_rules(
    chat_ref: str, change: "Callable[[Chat, tuple[permissions.Rule, ...]], tuple[permissions.Rule, ...]] | None" = None
) -> "tuple[permissions.Rule, ...]":
    """Return the rules of the chat that a person means, as they were before the change."""

    async def update_rules(agent: "Agent") -> "tuple[permissions.Rule, ...]":
        chat = await session.open_chat(agent, chat_ref)
        rules = (await chat.state()).options.rules
        if change is not None:
            await chat.carry_out(c.ChangeOptions({"rules": msgspec.to_builtins(change(chat, rules))}), work=False)
        return rules

    return session.run_with_agent(update_rules)


def _format_rule(rule: "permissions.Rule", used_ms: int = -1) -> Line:
    """A rule in one line; with the time of its last use, 0 for never."""
    project_name = make_inert_line(os.path.basename(rule.root) or rule.root, 40) if rule.scope == "project" else ""
    scope = f"{rule.scope} {project_name}".strip()
    pattern = make_inert_line(rule.pattern or "(every use)", 120)
    effect = Span(f"{rule.effect:5}", ("green" if rule.effect == "allow" else "yellow",))
    usage = "" if used_ms < 0 else f", last used {_format_moment(used_ms)}" if used_ms else ", never used"
    creation = f", made {_format_moment(rule.created_ms)}" if rule.created_ms else ""
    until = "" if not rule.expires_ms else f", until {_format_moment(rule.expires_ms)}"
    if until and rule.expires_ms / 1000 <= time.time():
        until = ", expired"
    terms = Span(scope + creation + usage + until, ("dim",))
    return join_spans(f"{rule.id}  ", effect, f" {make_inert_line(rule.tool, 40)}  {pattern}  ", terms)


def _format_moment(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(ms / 1000))
