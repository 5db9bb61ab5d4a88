"""The commands that begin with a slash: their names and lines of help, and what each does."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from rich.console import Group
from rich.table import Table
from rich.text import Text

from treadle import host_patterns
from treadle.did_you_mean import did_you_mean
from treadle.errors import InvalidInput
from treadle.inert import inert, inert_line
from treadle.lines.changes import count
from treadle.protocol.options import MODES, Mode
from treadle.tui.connection import Outcome
from treadle.tui.screens import Reading

if TYPE_CHECKING:
    from treadle.tui.conduct import Conduct

COMMANDS = {
    "help": "keys and commands",
    "model": "choose the model, or name one",
    "mode": "choose what passes without a question, or name it",
    "undo": "take back what the last run changed, or only these files",
    "redo": "take the last undo back",
    "review": "look at what changed; keep or undo files and hunks",
    "diff": "the same",
    "compact": "sum up the conversation to make room",
    "fork": "go on in a copy of this chat",
    "rewind": "go back to before a message",
    "chats": "find a chat, and go on with it",
    "resume": "the same",
    "new": "begin another chat",
    "rename": "give the chat a title",
    "queue": "messages that wait: change, drop or send one now",
    "jobs": "background commands: look at them, stop them",
    "rules": "standing answers",
    "network": "which hosts commands may reach: none, all, or a list",
    "cost": "what the chat has cost",
    "export": "write the chat to a file",
    "copy": "copy the last answer",
    "doctor": "see whether all is well here",
    "theme": "choose the colours",
    "quit": "leave",
}
"""By name: what the help says of it."""
KEYS = {
    "Enter": "send; while it works: queue",
    "Ctrl-S": "send, steering the run that is under way",
    "Shift-Enter, Ctrl-J, \\ Enter": "a new line",
    "Esc": "stop the run; twice, when it is idle: go back to a message",
    "Ctrl-C": "twice: quit",
    "Up, Down": "what was typed before",
    "@": "name a file",
    "!": "run a command of your own; its output goes with the next message",
    "Ctrl-O": "unfold all calls, thinking and diffs; a click unfolds one",
    "Ctrl-R": "review what changed",
    "Ctrl-B": "the panel at the side",
    "Ctrl-G": "write in your editor",
    "Shift-Tab": "the next mode",
    "Page Up, Page Down": "scroll",
}
_CYCLE: tuple[Mode, ...] = ("ask", "auto-edit", "review", "read-only")


async def carry_out(conduct: "Conduct", name: str, rest: str) -> None:
    await _ACTS[name](conduct, rest)


async def _help(conduct: "Conduct", rest: str) -> None:
    keys, commands = Table.grid(padding=(0, 2)), Table.grid(padding=(0, 2))
    for key, words in KEYS.items():
        keys.add_row(Text(key, "bold"), words)
    for name, words in COMMANDS.items():
        commands.add_row(Text(f"/{name}", "bold cyan"), words)
    conduct.app.push_screen(Reading("Keys and commands", Group(keys, "", commands)))


async def _mode(conduct: "Conduct", rest: str) -> None:
    from treadle.tui.choosing import choose_mode

    now = conduct.app.conversation.view.options.mode
    if rest == "next":
        rest = _CYCLE[(_CYCLE.index(now) + 1) % len(_CYCLE)] if now in _CYCLE else _CYCLE[0]
    wanted = rest or await choose_mode(conduct)
    if not wanted:
        return
    if wanted not in MODES:
        raise InvalidInput(f"there is no mode {inert_line(wanted, 40)!r}{did_you_mean(wanted, get_args(Mode))}")
    await _change(conduct, mode=wanted)
    conduct.app.tell(f"mode: {wanted}", grave=False)


async def _model(conduct: "Conduct", rest: str) -> None:
    from treadle.tui.choosing import choose_model

    wanted = rest or await choose_model(conduct)
    if wanted and await conduct.may_see(wanted):
        await _change(conduct, model=wanted)
        conduct.app.tell(f"model: {wanted}", grave=False)


async def _change(conduct: "Conduct", **options: object) -> None:
    """For this chat; without one for the next."""
    if conduct.app.link is not None:
        await conduct.app.link.change(**options)
    conduct.chosen.update(options)
    conduct.app.draw_facts()


async def _network(conduct: "Conduct", rest: str) -> None:
    from treadle.tui.side import network_words

    if not rest:
        now = network_words(conduct.app.conversation.view.options.network)
        raise InvalidInput(f"commands may reach: {now}. Say /network none, all, or hosts: registries, github.com …")
    wanted = False if rest in ("none", "off") else host_patterns.read(rest)
    await _change(conduct, network=wanted)
    conduct.app.tell(f"commands may reach: {network_words(wanted)}", grave=False)


async def _undo(conduct: "Conduct", rest: str) -> None:
    _tell(conduct, "undone", await conduct.link().undo(tuple(rest.split())))


async def _redo(conduct: "Conduct", rest: str) -> None:
    _tell(conduct, "redone", await conduct.link().redo())


def _tell(conduct: "Conduct", word: str, done: Outcome) -> None:
    conduct.app.tell(outcome_words(word, done), grave=bool(done.error or done.conflicts))


def outcome_words(word: str, done: Outcome) -> str:
    if done.error:
        return f"not {word}: {inert_line(done.error, 300)}"
    left = "".join(f"\nleft as it is: {inert_line(each, 200)}" for each in done.conflicts[:5])
    return f"{word}: {count(done.files, 'change')}{left}" if done.files or left else f"there is nothing to be {word}"


async def _compact(conduct: "Conduct", rest: str) -> None:
    await conduct.link().compact()


async def _fork(conduct: "Conduct", rest: str) -> None:
    copy = await conduct.connection.fork(conduct.link().id, int(rest) if rest.isdecimal() else 0)
    await conduct.open(copy)
    conduct.app.tell(f"this is a copy: {copy.id}", grave=False)


async def _rename(conduct: "Conduct", rest: str) -> None:
    from treadle.tui.conduct import Purpose

    if rest:
        await conduct.link().change(title=rest)
    else:
        conduct.ask_for(
            Purpose("rename", "the title: Enter keeps it, Esc goes back"), conduct.app.conversation.view.title
        )


async def _new(conduct: "Conduct", rest: str) -> None:
    conduct.app.detach()
    if rest:
        await conduct.say(rest, ())


async def _rules(conduct: "Conduct", rest: str) -> None:
    chat = conduct.app.conversation.view.options.rules
    lines = [
        Text(f"{rule.effect:5} {rule.tool} {inert_line(rule.pattern or '(every use)', 100)}  ({rule.scope})")
        for rule in (*chat, *await conduct.connection.rules())
    ]
    none = [Text("There are none. An approval offers them; see also: treadle rules", "dim")]
    conduct.app.push_screen(Reading("Standing answers", Group(*(lines or none))))


async def _cost(conduct: "Conduct", rest: str) -> None:
    view = conduct.app.conversation.view
    usage = view.usage
    rows = Table.grid(padding=(0, 2))
    rows.add_row("tokens in", f"{usage.input:,}")
    rows.add_row("tokens out", f"{usage.output:,}")
    rows.add_row("cost", f"${view.cost or usage.usd:.4f}")
    if view.window:
        rows.add_row("context", f"{view.tokens:,} of {view.window:,} tokens")
    conduct.app.push_screen(Reading("What this chat has cost", rows))


async def _export(conduct: "Conduct", rest: str) -> None:
    link = conduct.link()
    path = await asyncio.to_thread(_write_new, rest or f"{link.id}.jsonl", await link.export())
    conduct.app.tell(f"written to {path}", grave=False)


def _write_new(name: str, data: bytes) -> Path:
    path = Path(name).expanduser()
    try:
        with path.open("xb") as file:
            file.write(data)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from error
    return path


async def _copy(conduct: "Conduct", rest: str) -> None:
    text = conduct.app.transcript.last_answer()
    if not text:
        raise InvalidInput("there is no answer to copy")
    conduct.app.copy_to_clipboard(inert(text))
    conduct.app.tell("copied, where the terminal allows it", grave=False)


async def _doctor(conduct: "Conduct", rest: str) -> None:
    conduct.app.say_status("looking …", "yellow")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "treadle", "doctor", stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    data, _ = await process.communicate()
    conduct.app.say_status("")
    conduct.app.push_screen(Reading("Doctor", Text(inert(data.decode(errors="replace")))))


async def _quit(conduct: "Conduct", rest: str) -> None:
    conduct.app.leave()


def _picked(name: str) -> Callable[["Conduct", str], Awaitable[None]]:
    async def act(conduct: "Conduct", rest: str) -> None:
        from treadle.tui import choosing

        await getattr(choosing, name)(conduct)

    return act


_ACTS: dict[str, Callable[["Conduct", str], Awaitable[None]]] = {
    "help": _help, "model": _model, "mode": _mode, "undo": _undo, "redo": _redo, "review": _picked("review"),
    "diff": _picked("review"), "compact": _compact, "fork": _fork, "rewind": _picked("rewind"),
    "chats": _picked("pick_chat"), "resume": _picked("pick_chat"), "new": _new, "rename": _rename,
    "queue": _picked("queue"), "jobs": _picked("jobs"), "rules": _rules, "network": _network, "cost": _cost,
    "export": _export, "copy": _copy, "doctor": _doctor, "theme": _picked("choose_theme"), "quit": _quit,
}  # fmt: skip
