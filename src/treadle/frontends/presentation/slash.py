"""Slash commands: what a person can type in a chat besides messages, with the names of the command line."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from treadle.base.inert import make_inert_line
from treadle.diff.changes import count, format_changes
from treadle.errors import InvalidInput, describe_unknown_names
from treadle.library.agent import Agent
from treadle.library.chat import Chat
from treadle.library.message_expansion import list_commands
from treadle.protocol import commands as c
from treadle.protocol.files import decode_path
from treadle.protocol.options import MODES, ChatOptions

if TYPE_CHECKING:
    from treadle.library.skills.reading import CustomAgent

NO_AGENT = "none"
_MOST_FILES = 50


class Slash(NamedTuple):
    does: str
    run: Callable[[Agent, Chat, str], Awaitable[str]]
    """Carry out the command and return the text to show afterwards; empty where an event in the log says it."""
    hint: str = ""


async def _compact(_agent: Agent, chat: Chat, _words: str) -> str:
    async for _ in chat.compact():
        pass
    return ""


async def _undo(_agent: Agent, chat: Chat, words: str) -> str:
    await chat.files.undo(paths=words.split())
    return ""


async def _redo(_agent: Agent, chat: Chat, _words: str) -> str:
    await chat.files.redo()
    return ""


async def _keep(_agent: Agent, chat: Chat, words: str) -> str:
    await chat.files.keep(paths=words.split())
    return ""


async def _list_changes(_agent: Agent, chat: Chat, _words: str) -> str:
    changes = [each.change for each in await chat.files.diff()]
    lines = format_changes(changes, lambda path: make_inert_line(decode_path(path), 200), _MOST_FILES)
    return "\n".join(f"- {line.strip()}" for line in lines) or "This session has changed nothing that is left."


async def _list_or_stop_jobs(_agent: Agent, chat: Chat, words: str) -> str:
    jobs = [job for job in await chat.jobs() if job.view.status == "running"]
    if words == "stop":
        for job in jobs:
            await job.stop()
        return f"Stopped: {count(len(jobs), 'background command')}."
    lines = [f"- `{job.view.job}` {make_inert_line(job.view.command, 120)}" for job in jobs]
    return "\n".join(lines) or "No background command is running."


async def _set_title(_agent: Agent, chat: Chat, words: str) -> str:
    await chat.command(c.Rename(words))
    return f"The session is called {make_inert_line(words, 120)}."


async def _set_mode(_agent: Agent, chat: Chat, words: str) -> str:
    if words not in MODES:
        raise InvalidInput(f"there is no mode {words!r}; there is: {', '.join(MODES)}")
    await chat.command(c.ChangeOptions({"mode": words}))
    return f"The mode is {words} now."


async def _as_agent(agent: Agent, chat: Chat, words: str) -> str:
    agents = await asyncio.to_thread(agent.custom_agents, (await chat.state()).options.project)
    if not words:
        lines = [f"- {each.name}: {each.description}" for each in agents.values()]
        return "\n".join(lines) or "There are no custom agents here."
    await chat.command(c.ChangeOptions(make_agent_changes(agents, words)))
    return f"Works as {make_inert_line(words, 64)} now." if words != NO_AGENT else "Works as itself again."


def make_agent_changes(agents: "Mapping[str, CustomAgent]", name: str) -> dict[str, object]:
    """The options that make a chat work as this custom agent; with `none` as itself again."""
    if name == NO_AGENT:
        return {"agent": "", "agent_prompt": "", "tools": None}
    if unknown := describe_unknown_names("custom agent", [name], agents):
        raise InvalidInput(unknown)
    return agents[name].changes()


SLASHES: Mapping[str, Slash] = {
    "compact": Slash("Sum up the conversation to make room.", _compact),
    "undo": Slash("Take back what the last run did to files: all of it, or the named paths.", _undo, "[paths]"),
    "redo": Slash("Take the last undo back.", _redo),
    "keep": Slash("Accept changes: an undo leaves them alone from then on.", _keep, "[paths]"),
    "changes": Slash("List what this session has changed.", _list_changes),
    "jobs": Slash("List the background commands, or stop them.", _list_or_stop_jobs, "[stop]"),
    "mode": Slash("Say what may pass without a question.", _set_mode, " | ".join(MODES)),
    "agent": Slash("Work as a custom agent, or list them.", _as_agent, f"[name | {NO_AGENT}]"),
    "title": Slash("Give the session a title.", _set_title, "the title"),
}


def find_slash(text: str) -> tuple[Slash, str] | None:
    """The command that a prompt is, and the words behind it; None if it is none of ours."""
    if not text.startswith("/"):
        return None
    name, _, words = text[1:].partition(" ")
    slash = SLASHES.get(name.strip())
    return None if slash is None else (slash, words.strip())


async def list_available(agent: Agent, options: ChatOptions) -> list[tuple[str, str, str]]:
    """Everything that can be typed behind a slash: its name, what it does, and a hint for the words behind it."""
    custom_commands = [each for each in (await list_commands(agent, options)).values() if each.name not in SLASHES]
    slashes = [(name, slash.does, slash.hint) for name, slash in SLASHES.items()]
    return slashes + [(each.name, each.description, each.hint) for each in custom_commands]
