"""`treadle rules`: the standing answers, listed, made and taken back (S-07)."""

import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from treadle.base.inert import inert_line
from treadle.errors import NotFound
from treadle.frontends.cli.options import SCOPES, gathered, json_option
from treadle.frontends.cli.terminal import Terminal, write_list
from treadle.frontends.presentation.styled import Line, Span, spans

if TYPE_CHECKING:
    from treadle.library.agent import Agent
    from treadle.library.chat import Chat
    from treadle.protocol.permissions import Rule, RuleEffect, RuleScope


class NewRule(NamedTuple):
    """The arguments of `treadle rules add`."""

    allow: bool
    ask: bool
    deny: bool
    pattern: str
    tool: str
    scope: "RuleScope"
    root: str | None
    chat: str | None
    expires: str | None

    def check(self) -> None:
        if self.allow + self.ask + self.deny != 1:
            raise click.UsageError("Choose one of --allow, --ask and --deny.")
        if (self.scope == "chat") != (self.chat is not None):
            raise click.UsageError("--chat goes with --scope chat.")

    @property
    def effect(self) -> "RuleEffect":
        return "allow" if self.allow else "ask" if self.ask else "deny"


@click.group("rules", invoke_without_command=True)
@click.option("--chat", metavar="ID", help="Also list the rules of this chat.")
@json_option("Print one JSON object a line.")
@click.pass_context
def rules(context: click.Context, chat: str | None, as_json: bool) -> None:
    """List, add and revoke rules: approvals that last.

    With add and revoke; alone, or with list, it lists them: where each holds, when it was made and last used, and until
    when it holds.
    """
    if context.invoked_subcommand is None:
        _list(chat, as_json)


@rules.command("list")
@click.option("--chat", metavar="ID", help="Also list the rules of this chat.")
@json_option("Print one JSON object a line.")
def list_command(chat: str | None, as_json: bool) -> None:
    """List the rules."""
    _list(chat, as_json)


@rules.command("add")
@click.option("--allow", is_flag=True, help="Allow it without asking.")
@click.option("--ask", is_flag=True, help="Always ask, even if another rule allows it.")
@click.option("--deny", is_flag=True, help="Always refuse, even if another rule allows it.")
@click.argument("pattern", default="")
@click.option("--tool", default="run_command", help="The tool; the pattern of a file tool is a glob.")
@click.option("--scope", type=click.Choice(SCOPES), default="project", help="Where it holds.")
@click.option("--root", metavar="DIR", help="The project; by default the one of this folder.")
@click.option("--chat", metavar="ID", help="The chat, for that scope.")
@click.option("--expires", metavar="SPAN", help="How long it holds, such as 12h or 7d.")
@gathered(NewRule, "new_rule")
def add(new_rule: NewRule) -> None:
    """Make a rule.

    PATTERN is the words of one command; a * as the last word stands for any further ones.
    """
    from msgspec.structs import replace

    from treadle.adapters.policy.rule_book import RuleBook
    from treadle.frontends.cli.approvals import expiring
    from treadle.frontends.cli.session import configured, project_root
    from treadle.protocol.permissions import Rule

    rule = expiring(Rule(new_rule.effect, new_rule.tool, new_rule.pattern, new_rule.scope), new_rule.expires)
    if new_rule.chat is not None:
        added_rule = _in_chat(new_rule.chat, _add_to_chat, rule)
    else:
        root = str(project_root(new_rule.root)) if new_rule.scope == "project" else ""
        added_rule = RuleBook(configured().home).add(replace(rule, root=root))
    Terminal().line(_line(added_rule))


@rules.command("revoke")
@click.argument("id")
@click.option("--chat", metavar="ID", help="The chat, for a rule of a chat.")
def revoke(id: str, chat: str | None) -> None:
    """Revoke a rule."""
    from treadle.adapters.policy.rule_book import RuleBook
    from treadle.frontends.cli.session import configured

    revoked = _in_chat(chat, _revoke_in_chat, id) if chat else RuleBook(configured().home).revoke(id)
    Terminal().note("".join(["revoked: ", *(span.text for span in _line(revoked))]), "dim")


def _list(chat: str | None, as_json: bool) -> None:
    from treadle.adapters.policy.rule_book import RuleBook
    from treadle.frontends.cli.session import configured
    from treadle.protocol import wire

    book = RuleBook(configured().home)
    listed_rules, damage = book.readable()
    if chat is not None:
        listed_rules += _in_chat(chat, _chat_rules)
    terminal = Terminal()
    last_uses = {rule.id: book.last_used_ms(rule.id) for rule in listed_rules}
    rows = [
        (wire.to_wire_form(rule) | {"used_ms": last_uses[rule.id]}, _line(rule, last_uses[rule.id]))
        for rule in listed_rules
    ]
    write_list(terminal, rows, "no rules; make one with: treadle rules add --allow 'make test'", as_json=as_json)
    if damage:
        terminal.note(inert_line(f"as long as this is so, no rule allows anything: {damage}"), "yellow")


def _in_chat(chat_ref: str, work: Any, *arguments: object) -> Any:
    """Work on the chat that a person means."""
    from treadle.frontends.cli.session import find_chat, with_agent

    async def run_on_chat(agent: "Agent") -> Any:
        return await work(agent.chat(await find_chat(agent.deps.store, chat_ref)), *arguments)

    return with_agent(run_on_chat)


async def _chat_rules(chat: "Chat") -> "tuple[Rule, ...]":
    return (await chat.state()).options.rules


async def _add_to_chat(chat: "Chat", rule: "Rule") -> "Rule":
    from treadle.adapters.policy.rule_book import stamped
    from treadle.adapters.policy.rules import check

    check(rule)
    stamped_rule = stamped(rule, round(time.time() * 1000))
    await _set(chat, (*await _chat_rules(chat), stamped_rule))
    return stamped_rule


async def _revoke_in_chat(chat: "Chat", id: str) -> "Rule":
    rules = await _chat_rules(chat)
    revoked = [rule for rule in rules if rule.id == id]
    if not revoked:
        raise NotFound(f"there is no rule {id!r} in chat {chat.id}; see them with: treadle rules --chat {chat.id}")
    await _set(chat, tuple(rule for rule in rules if rule.id != id))
    return revoked[0]


async def _set(chat: "Chat", rules: "tuple[Rule, ...]") -> None:
    import msgspec

    from treadle.protocol.commands import ChangeOptions

    await chat.carry_out(ChangeOptions({"rules": msgspec.to_builtins(rules)}), work=False)


def _line(rule: "Rule", used_ms: int = -1) -> Line:
    """A rule in one line; with the time of its last use, 0 for never."""
    project_name = inert_line(os.path.basename(rule.root) or rule.root, 40) if rule.scope == "project" else ""
    scope = f"{rule.scope} {project_name}".strip()
    pattern = inert_line(rule.pattern or "(every use)", 120)
    effect = Span(f"{rule.effect:5}", ("green" if rule.effect == "allow" else "yellow",))
    usage = "" if used_ms < 0 else f", last used {_moment(used_ms)}" if used_ms else ", never used"
    creation = f", made {_moment(rule.created_ms)}" if rule.created_ms else ""
    until = Span(scope + creation + usage + _until(rule), ("dim",))
    return spans(f"{rule.id}  ", effect, f" {inert_line(rule.tool, 40)}  {pattern}  ", until)


def _until(rule: "Rule") -> str:
    if not rule.expires_ms:
        return ""
    remaining_s = rule.expires_ms / 1000 - time.time()
    if remaining_s <= 0:
        return ", expired"
    return f", until {_moment(rule.expires_ms)}"


def _moment(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(ms / 1000))
