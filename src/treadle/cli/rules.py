"""`treadle rules`: the standing answers, listed, made and taken back (S-07)."""

import asyncio
import os
import sys
import time

import msgspec
from msgspec.structs import replace

from treadle.cli.approvals import seconds
from treadle.cli.inert import inert_line
from treadle.cli.project import project_root
from treadle.cli.session import configured, find_chat, open_agent
from treadle.cli.terminal import Terminal
from treadle.config import Config
from treadle.errors import NotFound
from treadle.handle import Chat
from treadle.policy.rule_book import RuleBook, stamped
from treadle.policy.rules import check
from treadle.protocol import wire
from treadle.protocol.commands import ChangeOptions
from treadle.protocol.permissions import Rule, RuleEffect, RuleScope


class Wish(msgspec.Struct, frozen=True):
    """What `treadle rules add` was told."""

    effect: RuleEffect
    pattern: str
    tool: str
    scope: RuleScope
    root: str | None
    chat: str | None
    expires: str | None


def list_rules(chat: str | None, as_json: bool) -> int:
    config = configured()
    rules = list(RuleBook(config.home).all())
    if chat is not None:
        rules += asyncio.run(_chat_rules(config, chat))
    terminal = Terminal()
    for rule in rules:
        if as_json:
            sys.stdout.buffer.write(msgspec.json.encode(wire.whole(rule)) + b"\n")
        else:
            terminal.line(_line(terminal, rule))
    if not rules and not as_json:
        terminal.note("no rules; make one with: treadle rules add --allow 'make test'", "dim")
    return 0


def add_rule(wish: Wish) -> int:
    config = configured()
    rule = Rule(wish.effect, wish.tool, wish.pattern, wish.scope)
    if wish.expires:
        rule = replace(rule, expires_ms=round(time.time() * 1000) + 1000 * seconds(wish.expires))
    if wish.scope == "chat":
        made = asyncio.run(_add_to_chat(config, wish.chat or "", rule))
    else:
        root = str(project_root(wish.root)) if wish.scope == "project" else ""
        made = RuleBook(config.home).add(replace(rule, root=root))
    Terminal().line(_line(Terminal(), made))
    return 0


def revoke_rule(id: str, chat: str | None) -> int:
    config = configured()
    revoked = asyncio.run(_revoke_in_chat(config, chat, id)) if chat else RuleBook(config.home).revoke(id)
    Terminal().note(f"revoked: {_line(Terminal(environment={'NO_COLOR': '1'}), revoked)}", "dim")
    return 0


async def _chat_rules(config: Config, named: str) -> tuple[Rule, ...]:
    async with open_agent(config) as agent:
        chat = agent.chat(await find_chat(agent.deps.store, named))
        return (await chat.state()).options.rules


async def _add_to_chat(config: Config, named: str, rule: Rule) -> Rule:
    check(rule)
    made = stamped(rule, round(time.time() * 1000))
    async with open_agent(config) as agent:
        chat = agent.chat(await find_chat(agent.deps.store, named))
        await _set(chat, (*(await chat.state()).options.rules, made))
    return made


async def _revoke_in_chat(config: Config, named: str, id: str) -> Rule:
    async with open_agent(config) as agent:
        chat = agent.chat(await find_chat(agent.deps.store, named))
        rules = (await chat.state()).options.rules
        revoked = [rule for rule in rules if rule.id == id]
        if not revoked:
            raise NotFound(f"there is no rule {id!r} in chat {chat.id}; see them with: treadle rules --chat {chat.id}")
        await _set(chat, tuple(rule for rule in rules if rule.id != id))
    return revoked[0]


async def _set(chat: Chat, rules: tuple[Rule, ...]) -> None:
    await chat.carry_out(ChangeOptions({"rules": msgspec.to_builtins(rules)}), work=False)


def _line(terminal: Terminal, rule: Rule) -> str:
    where = inert_line(os.path.basename(rule.root) or rule.root, 40) if rule.scope == "project" else ""
    scope = f"{rule.scope} {where}".strip()
    what = inert_line(rule.pattern or "(every use)", 120)
    effect = terminal.paint(f"{rule.effect:5}", "green" if rule.effect == "allow" else "yellow")
    return f"{rule.id}  {effect} {inert_line(rule.tool, 40)}  {what}  {terminal.paint(scope + _until(rule), 'dim')}"


def _until(rule: Rule) -> str:
    if not rule.expires_ms:
        return ""
    left = rule.expires_ms / 1000 - time.time()
    if left <= 0:
        return ", expired"
    return f", until {time.strftime('%Y-%m-%d %H:%M', time.localtime(rule.expires_ms / 1000))}"
