"""The commands that begin with a slash: their names and lines of help, and what each does."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import get_args

from treadle.base import host_patterns
from treadle.base.inert import make_inert_line
from treadle.base.subprocesses import run_program
from treadle.diff.changes import count
from treadle.errors import InvalidInput, suggest_name
from treadle.frontends.presentation.rich_text import Group, Text
from treadle.frontends.presentation.styled import MODE_WORDS
from treadle.frontends.tui import choosing
from treadle.frontends.tui.command_context import CommandContext, Purpose
from treadle.frontends.tui.drawing import describe_network, draw_grid
from treadle.frontends.tui.model_dialog import choose_model
from treadle.frontends.tui.screens import Entry, Picker, Reading
from treadle.protocol.options import EFFORTS, MODES, Mode

COMMANDS = {
    "help": "keys and commands",
    "model": "choose the model, or name one",
    "effort": "how much the model reasons: choose a level, or name it",
    "mode": "choose what passes without a question, or name it",
    "agent": "work as a custom agent, or name one; none: as itself again",
    "undo": "take back what the last run changed, or only these files",
    "redo": "take the last undo back",
    "review": "look at what changed; keep or undo files and hunks",
    "diff": "the same as /review",
    "world": "what a commit of the chat's world would change; commit or rebase: do it",
    "compact": "sum up the conversation to make room",
    "fork": "go on in a copy of this chat",
    "rewind": "go back to before a message",
    "chats": "find a chat, and go on with it",
    "resume": "the same as /chats",
    "new": "begin another chat",
    "clear": "the same as /new",
    "edit": "edit your last message and send it again",
    "history": "search the messages that you sent before",
    "rename": "give the chat a title",
    "queue": "messages that wait: change, drop or send one now",
    "jobs": "background commands: look at them, stop them",
    "rules": "standing rules: look at them, revoke one",
    "permissions": "the same as /rules",
    "status": "model, mode, sandbox and project of this chat",
    "init": "let the model write AGENTS.md, the instructions for this project",
    "network": "which hosts commands may reach: none, all, or a list",
    "cost": "what the chat has cost",
    "export": "write the chat to a file",
    "copy": "copy an answer, code block, command or diff",
    "paste": "put the picture of the clipboard into the message",
    "doctor": "see whether all is well here",
    "theme": "choose the colours",
    "quit": "leave; a run on a server goes on",
    "exit": "the same as /quit",
}
"""By name: its line in the help."""
KEYS = {
    "Enter": "send; while it works: queue",
    "Ctrl-S": "send, steering the run that is under way",
    "Shift-Enter, Alt-Enter, Ctrl-J, \\ Enter": "a new line",
    "Esc": "stop the run; twice, when it is idle: edit your last message",
    "Ctrl-C": "stop the run, or clear the message; twice: quit",
    "Ctrl-D": "quit, when nothing is written; a run on a server goes on",
    "Ctrl-Z": "suspend the app; fg brings it back",
    "Up, Down": "messages that you sent before",
    "Ctrl-R": "search the messages that you sent before",
    "Tab": "complete a name; when a card is open: go to the card",
    "@": "name a file, or a resource of an MCP server",
    "/": "commands",
    "!": "run a shell command yourself, even while the model works or waits",
    "Ctrl-V": "put the picture of the clipboard into the message",
    "Ctrl-O": "unfold all calls, thinking and diffs; a click unfolds one",
    "F2": "review what changed",
    "F1": "this help",
    "Ctrl-B": "fold or unfold the panel at the side",
    "Ctrl-L": "draw the screen again",
    "Ctrl-G": "write in your editor (VISUAL, EDITOR)",
    "Shift-Tab": "the next mode",
    "Page Up, Page Down, Ctrl-End": "scroll; to the end",
}
_CYCLE: tuple[Mode, ...] = ("ask", "auto-edit", "review", "read-only")


async def _show_help(context: CommandContext, arguments: str) -> None:
    own = await context.connection.list_own_commands(context.root, context.app.link.id if context.app.link else "")
    described = {name: make_inert_line(each.description, 200) for name, each in own.items() if name not in COMMANDS}
    keys = draw_grid([(Text(key, "bold"), Text(words)) for key, words in KEYS.items()], 2)
    names = {f"/{make_inert_line(name, 40)}": words for name, words in {**COMMANDS, **described}.items()}
    commands = draw_grid([(Text(name, "bold cyan"), Text(words)) for name, words in names.items()], 2)
    context.app.push_screen(Reading("Keys and commands", Group(keys, Text(), commands)))


async def _change_mode(context: CommandContext, arguments: str) -> None:
    now = context.app.showing.options.mode
    if arguments == "next":
        arguments = _CYCLE[(_CYCLE.index(now) + 1) % len(_CYCLE)] if now in _CYCLE else _CYCLE[0]
    modes = [Entry(f"{mode:10} {MODE_WORDS[mode][1]}", str(mode)) for mode in MODES]
    if not (mode := arguments or await context.choose(Picker("Mode", lambda _: modes, searches=False))):
        return
    if mode not in MODES:
        raise InvalidInput(f"there is no mode {make_inert_line(mode, 40)!r}{suggest_name(mode, get_args(Mode))}")
    await _change_options(context, mode=mode)
    context.app.tell(f"mode: {mode}", grave=False)


async def _change_model(context: CommandContext, arguments: str) -> None:
    model = arguments or await choose_model(context)
    if model and await context.ensure_consent(model):
        await _change_options(context, model=model)
        context.app.tell(f"model: {model}", grave=False)


async def _change_effort(context: CommandContext, arguments: str) -> None:
    model = await context.find_current_model()
    rows = {row.model: row for row in await context.connection.list_model_rows()}
    levels = rows[model].efforts if model in rows else EFFORTS
    if not levels:
        raise InvalidInput(f"{make_inert_line(model, 80)} has no levels of reasoning effort")
    efforts = [*(Entry(level, str(level)) for level in levels), Entry("default  the model's own", "default")]
    if not (effort := arguments or await context.choose(Picker("Reasoning effort", lambda _: efforts, searches=False))):
        return
    if effort not in (*levels, "default"):
        raise InvalidInput(f"there is no effort {make_inert_line(effort, 40)!r}; choose {', '.join(levels)} or default")
    await _change_options(context, reasoning_effort="" if effort == "default" else effort)
    context.app.tell(f"reasoning effort: {effort}", grave=False)


async def _change_agent(context: CommandContext, arguments: str) -> None:
    from treadle.frontends.presentation.slash import NO_AGENT, make_agent_changes

    def find_agents(query: str) -> list[Entry[str]]:
        matches = [each for each in agents.values() if query.casefold() in each.name.casefold()]
        labels = [(make_inert_line(f"{each.name}  {each.description}", 200), each.name) for each in matches]
        rows = [Entry(Text(label, no_wrap=True), name) for label, name in labels]
        return [*rows, Entry("none  as itself again", "none")]

    agents = await context.connection.list_custom_agents(context.root)
    if agent_name := arguments or await context.choose(Picker("Work as", find_agents)):
        await _change_options(context, **make_agent_changes(agents, agent_name))
        words = "itself" if agent_name == NO_AGENT else make_inert_line(agent_name, 64)
        context.app.tell(f"works as {words}", grave=False)


async def _change_options(context: CommandContext, **options: object) -> None:
    """For this chat; without one for the next."""
    if context.app.link is not None:
        await context.app.link.change(**options)
    context.next_chat_options.update(options)
    context.app.showing.draw_facts()


async def _change_network(context: CommandContext, arguments: str) -> None:
    if not arguments:
        now = describe_network(context.app.conversation.view.options.network)
        raise InvalidInput(f"commands may reach: {now}. Say /network none, all, or hosts: registries, github.com …")
    network = False if arguments in ("none", "off") else host_patterns.read(arguments)
    await _change_options(context, network=network)
    context.app.tell(f"commands may reach: {describe_network(network)}", grave=False)


async def _undo(context: CommandContext, arguments: str) -> None:
    context.tell_outcome("undone", await context.require_link().undo(tuple(arguments.split())))


async def _redo(context: CommandContext, arguments: str) -> None:
    context.tell_outcome("redone", await context.require_link().redo())


async def _manage_world(context: CommandContext, arguments: str) -> None:
    world, worlds = context.app.conversation.view.options.world, context.connection.worlds
    if not world:
        raise InvalidInput('this chat works in the project itself; with the setting world = "chat" new ones do not')
    match arguments:
        case "":
            diff = Text(await worlds.diff(world))
            context.app.push_screen(Reading("Changes that /world commit would make", diff))
        case "commit":
            commit = await worlds.commit(world)
            undo = f"; take it back: treadle undo {commit.chat}" if commit.files else ""
            context.app.tell(f"committed {count(len(commit.files), 'change')}{undo}", grave=False)
        case "rebase":
            merged = await worlds.rebase(world)
            context.app.tell(f"the world is up to date; {count(len(merged), 'text')} merged", grave=False)
        case _:
            raise InvalidInput("say /world, /world commit or /world rebase")


async def _fork(context: CommandContext, arguments: str) -> None:
    if arguments and not (arguments.isdecimal() and len(arguments) < 16):
        example = "write /fork, or /fork 12 for a copy up to event 12"
        raise InvalidInput(f"{arguments[:80]!r} is no number of an event; {example}")
    copy = await context.connection.fork(context.require_link().id, int(arguments or 0))
    await context.open(copy)
    context.app.tell(f"this is a copy: {copy.id}", grave=False)


async def _rename(context: CommandContext, arguments: str) -> None:
    if arguments:
        await context.require_link().change(title=arguments)
    else:
        purpose = Purpose("rename", "the title: Enter keeps it, Esc goes back")
        context.ask_for(purpose, context.app.conversation.view.title)


async def _begin_chat(context: CommandContext, arguments: str) -> None:
    context.app.showing.detach()
    if arguments:
        await context.say(arguments, ())


async def _show_status(context: CommandContext, arguments: str) -> None:
    app, view = context.app, context.app.conversation.view
    options = app.showing.options
    rows = {
        "chat": f"{app.link.id}  {view.title}" if app.link is not None else "none yet",
        "model": options.model or app.start.model,
        "effort": options.reasoning_effort or "the model's default",
        "mode": f"{options.mode}: {MODE_WORDS[options.mode][1]}",
        "project": options.root or app.start.root,
        "branch": app.showing.side.branch or view.branch,
        "network": describe_network(options.network),
        "sandbox": view.sandbox or "not used yet",
        "world": options.world,
        "runs in": context.connection.place,
        "context": f"{view.tokens:,} of {view.window:,} tokens" if view.window else "",
        "cost": f"${view.cost or view.usage.usd:.4f}",
    }
    cells = [(Text(name, "dim"), Text(make_inert_line(value, 200))) for name, value in rows.items() if value]
    app.push_screen(Reading("Status", draw_grid(cells, 2)))


DOCTOR_S = 120.0
INIT_PROMPT = (
    "Look at this project and write a file AGENTS.md at its root for the agents that work here after you: how to "
    "build, test and lint (the exact commands), how the code is laid out, and the conventions that a newcomer would "
    "miss. Keep it under 60 lines. If there is an AGENTS.md already, improve it."
)


async def _edit(context: CommandContext, arguments: str) -> None:
    """The last message goes to the composer; Enter sends it in the place of the old one. Files stay as they are."""
    context.require_link()
    if not (messages := context.app.conversation.list_messages()):
        raise InvalidInput("there is no message to edit yet")
    words = "edit your last message: Enter sends it again, Esc goes back; /rewind takes files back, too"
    context.ask_for(Purpose("again", words, target=str(messages[-1].seq)), messages[-1].text)


async def _show_cost(context: CommandContext, arguments: str) -> None:
    view = context.app.conversation.view
    rows = {
        "tokens in": f"{view.usage.input:,}",
        "tokens out": f"{view.usage.output:,}",
        "cost": f"${view.cost or view.usage.usd:.4f}",
        "context": f"{view.tokens:,} of {view.window:,} tokens" if view.window else "",
    }
    cells = [(Text(name), Text(value)) for name, value in rows.items() if value]
    context.app.push_screen(Reading("Cost of this chat", draw_grid(cells, 2)))


async def _export(context: CommandContext, arguments: str) -> None:
    link = context.require_link()
    data = await link.export()

    def write_new(path: Path) -> Path:
        try:
            path = path.expanduser()
            with path.open("xb") as file:
                file.write(data)
        except (OSError, RuntimeError) as error:  # RuntimeError: `~name` of a user that does not exist
            raise InvalidInput(f"{path} cannot be written: {getattr(error, 'strerror', error)}") from error
        return path

    path = await asyncio.to_thread(write_new, Path(arguments or f"{link.id}.jsonl"))
    context.app.tell(f"written to {path}", grave=False)


async def _paste(context: CommandContext, arguments: str) -> None:
    from treadle.frontends.tui.desktop import save_clipboard_picture

    await context.attach(await save_clipboard_picture(context.app.home), "from the clipboard")


async def _run_doctor(context: CommandContext, arguments: str) -> None:
    context.app.say_status("looking …", "yellow")
    argv = [sys.executable, "-m", "treadle", "doctor"]
    ran = await run_program(argv, cwd=os.getcwd(), env=os.environ, timeout_s=DOCTOR_S)
    context.app.say_status("")
    context.app.push_screen(Reading("Doctor", Text(ran.output + ran.errors)))


async def _quit(context: CommandContext, arguments: str) -> None:
    context.app.leave()


ACTS: dict[str, Callable[[CommandContext, str], Awaitable[object]]] = {
    "help": _show_help, "model": _change_model, "effort": _change_effort, "mode": _change_mode,
    "agent": _change_agent, "undo": _undo, "redo": _redo, "review": choosing.review, "diff": choosing.review,
    "world": _manage_world, "fork": _fork, "rewind": choosing.rewind,
    "compact": lambda context, _: context.require_link().chat.compact(),
    "chats": choosing.pick_chat, "resume": choosing.pick_chat, "new": _begin_chat, "clear": _begin_chat,
    "rename": _rename, "queue": choosing.show_queue, "jobs": choosing.show_jobs,
    "rules": choosing.show_rules, "permissions": choosing.show_rules,
    "network": _change_network, "history": choosing.search_history, "edit": _edit, "status": _show_status,
    "init": lambda context, arguments: context.say(f"{INIT_PROMPT} {arguments}".strip(), ()),
    "cost": _show_cost, "export": _export, "copy": choosing.copy, "paste": _paste, "doctor": _run_doctor,
    "theme": choosing.choose_theme, "quit": _quit, "exit": _quit,
}  # fmt: skip
