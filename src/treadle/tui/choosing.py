"""What is chosen from lists: chats, messages to go back to, changed files and hunks, jobs, models, modes, colours."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from treadle.errors import TreadleError
from treadle.inert import inert, inert_line
from treadle.presentation.modes import MODE_WORDS
from treadle.protocol.files import decode_path
from treadle.protocol.options import MODES
from treadle.tui.connection import ChangedFile, ChatLink, ChatRow
from treadle.tui.conversation import Conversation
from treadle.tui.desk import Desk, Purpose, outcome_words
from treadle.tui.drawing import Look, diff, drawn, numbers
from treadle.tui.picker import Entry, Picker
from treadle.tui.screens import Reading

if TYPE_CHECKING:
    from treadle.skills.reading import CustomAgent

PREVIEWED = 8
"""Blocks of a chat that its preview shows."""
_STATES = {
    "requires_action": ("waits for you", "bold yellow"),
    "running": ("works", "green"),
    "pending": ("was cut off", "yellow"),
    "interrupting": ("stops", "yellow"),
    "error": ("failed", "red"),
    "idle": ("", ""),
}


async def pick_chat(desk: Desk) -> None:
    async def found(query: str) -> Sequence[Entry[ChatRow]]:
        return [_chat_entry(row) for row in await desk.connection.chats(query)]

    async def act(key: str, row: ChatRow) -> str | None:
        try:
            return await _chat_key(desk, key, row)
        except TreadleError as error:
            return inert_line(str(error))

    async def preview(row: ChatRow) -> RenderableType:
        return await _chat_preview(desk, row)

    keys = {"ctrl+t": "rename", "ctrl+x": "archive", "ctrl+f": "fork"}
    chosen = await desk.app.push_screen_wait(Picker("Chats", found, keys=keys, act=act, preview=preview))
    if chosen is not None:
        await desk.open(await desk.connection.open(chosen.id))


def _chat_entry(row: ChatRow) -> Entry[ChatRow]:
    words, style = _STATES[row.status]
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{_age(row.updated_ms):>4} ", "dim")
    if row.parent:
        text.append("sub-agent ", "cyan")
    if words:
        text.append(f"{words} ", style)
    text.append(inert_line(row.title or row.id, 100), "bold")
    text.append(f"  {inert_line(row.root.rpartition('/')[2], 40)} · {inert_line(row.model, 40)}", "dim")
    if row.found:
        text.append(f"  “{inert_line(row.found, 80)}”", "italic dim")
    return Entry(text, row)


async def _chat_key(desk: Desk, key: str, row: ChatRow) -> str | None:
    match key:
        case "ctrl+t":
            await desk.open(await desk.connection.open(row.id))
            desk.ask_for(Purpose("rename", "the title: Enter keeps it", target=row.id), row.title)
            return None
        case "ctrl+x":
            await (await desk.connection.open(row.id)).change(archived=not row.archived)
            return f"archived: {inert_line(row.title or row.id, 60)}"
        case _:
            await desk.open(await desk.connection.fork(row.id, 0))
            return None


async def _chat_preview(desk: Desk, row: ChatRow) -> RenderableType:
    conversation = Conversation()
    link = await desk.connection.open(row.id)
    async for batch in link.news():
        for envelope in batch:
            conversation.apply(envelope)
        if (conversation.seq >= 1 and not any(envelope.seq for envelope in batch)) or len(batch) < 1_000:
            break
    look = _look(desk, 60)
    parts = [drawn(block, look) for block in conversation.blocks[-PREVIEWED:]]
    return Group(*(part for part in parts if part is not None))


def _look(desk: Desk, width: int) -> Look:
    app = desk.app
    return Look(width, time.time_ns() // 1_000_000, dark=app.current_theme.dark, marks=app.marks)


def _age(then_ms: int) -> str:
    seconds = max(0, time.time() - then_ms / 1000)
    for size, letter in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{letter}"
    return "now"


async def rewind(desk: Desk) -> None:
    """Go back to before a message: the conversation, the files, or both (W-03)."""
    app, link = desk.app, desk.link()
    said = {block.seq: block.text for block in reversed(app.conversation.messages())}

    async def messages(query: str) -> Sequence[Entry[int]]:
        return [Entry(inert_line(text, 200), seq) for seq, text in said.items() if query.casefold() in text.casefold()]

    async def preview(seq: int) -> RenderableType:
        lines = await _files_back(link, seq)
        files = [Text(inert_line(line)) for line in lines] or [Text("no file would change", "dim")]
        return Group(Text(inert(said[seq]), "bold"), Text("\nfiles that would go back:", "dim"), *files)

    async def act(key: str, seq: int) -> str | None:
        try:
            await desk.open(await desk.connection.fork(link.id, seq - 1))
        except TreadleError as error:
            return inert_line(str(error))
        app.composer.put(said[seq])
        return None

    keys = {"ctrl+f": "in a copy: fork"}
    seq = await app.push_screen_wait(Picker("Go back to before", messages, keys=keys, act=act, preview=preview))
    if seq is None:
        return
    lines = await _files_back(link, seq)

    async def ways(query: str) -> Sequence[Entry[str]]:
        shown = [Entry[str](Text(f"   {inert_line(line)}", "dim"), None) for line in lines[:12]]
        return [
            Entry("conversation and files", "both"),
            Entry("only the conversation", "conversation"),
            Entry("only the files", "files"),
            Entry[str](Text("files that would go back:" if lines else "no file would change", "dim"), None),
            *shown,
        ]

    way = await app.push_screen_wait(Picker("What goes back?", ways, searches=False))
    if way is None:
        return
    done = await link.back_to(seq, conversation=way != "files", files=way != "conversation")
    if way != "conversation":
        app.tell(outcome_words("taken back", done), grave=bool(done.error or done.conflicts))
    if way != "files":
        app.composer.put(said[seq])


async def _files_back(link: ChatLink, seq: int) -> Sequence[str]:
    try:
        return await link.preview_back(seq)
    except TreadleError as error:  # the conversation can go back without them
        return [str(error)]


async def review(desk: Desk) -> None:
    """Changed files and their hunks, to keep or to undo (W-03, W-04)."""
    link = desk.link()
    files: dict[str, ChangedFile] = {}

    async def found(query: str) -> Sequence[Entry[tuple[str, int]]]:
        files.clear()
        files.update({file.path: file for file in await link.changes(everything=True)})
        return [entry for file in files.values() for entry in _file_entries(file)]

    async def act(key: str, chosen: tuple[str, int]) -> str | None:
        path, hunk = chosen
        hunks = {path: (hunk,)} if hunk else None
        if key == "enter":
            shown = _file_diff(files[path], hunk, _look(desk, max(30, desk.app.size.width - 8)))
            await desk.app.push_screen_wait(Reading(inert_line(decode_path(path)), shown))
            return ""
        try:
            if key == "k":
                return outcome_words("kept", await link.keep(() if hunk else (path,), hunks))
            done = await link.undo(() if hunk else (path,), hunks, everything=True)
            return outcome_words("undone", done)
        except TreadleError as error:
            return inert_line(str(error))

    async def preview(chosen: tuple[str, int]) -> RenderableType:
        return _file_diff(files[chosen[0]], chosen[1], _look(desk, 80))

    keys = {"enter": "look", "k": "keep", "u": "undo"}
    await desk.app.push_screen_wait(Picker("Changes", found, keys=keys, act=act, preview=preview, searches=False))
    desk.app.showing.side.files = list(files.values())
    desk.app.showing.draw_facts()


_SIGNS = {"created": "A", "deleted": "D"}


def _file_entries(file: ChangedFile) -> list[Entry[tuple[str, int]]]:
    head = Text(no_wrap=True)
    head.append(f"{_SIGNS.get(file.action, 'M')} {inert_line(decode_path(file.path))} ", "bold")
    head.append_text(numbers(file.added, file.removed))
    entries = [Entry(head, (file.path, 0))]
    if len(file.hunks) > 1:
        for hunk in file.hunks:
            text = Text(f"    {inert_line(hunk.header, 60)} ", no_wrap=True)
            text.append_text(numbers(hunk.added, hunk.removed))
            entries.append(Entry(text, (file.path, hunk.number)))
    return entries


def _file_diff(file: ChangedFile, hunk: int, look: Look) -> RenderableType:
    wanted = [each for each in file.hunks if not hunk or each.number == hunk]
    lines = [line for each in wanted for line in (each.header, *each.lines)]
    notes = [Text(inert_line(note), "dim") for note in file.notes]
    shown = [diff([inert(line.rstrip("\n")) for line in lines], decode_path(file.path), look)] if lines else []
    return Group(*notes, *shown)


async def jobs(desk: Desk) -> None:
    link = desk.link()

    async def found(query: str) -> Sequence[Entry[str]]:
        entries = []
        for job in await link.jobs():
            text = Text(no_wrap=True)
            text.append(f"{job.status:9} ", "green" if job.status == "running" else "dim")
            text.append(inert_line(job.command, 100), "bold")
            text.append(f"  {inert_line(job.last_line, 100)}", "dim")
            entries.append(Entry(text, job.job))
        return entries

    async def act(key: str, job: str) -> str | None:
        await link.stop_job(job)
        return f"stopped: {job}"

    await desk.app.push_screen_wait(Picker("Background commands", found, keys={"s": "stop"}, act=act, searches=False))


async def queue(desk: Desk) -> None:
    link = desk.link()

    async def found(query: str) -> Sequence[Entry[str]]:
        return [
            Entry(inert_line(f"{'(steers) ' if item.delivery == 'steering' else ''}{item.content}", 200), item.id)
            for item in desk.app.conversation.view.queue
        ]

    async def act(key: str, id: str) -> str | None:
        try:
            if key == "d":
                await link.drop_queued(id)
            elif key == "s":
                await link.promote(id)
        except TreadleError as error:
            return inert_line(str(error))
        return None

    keys = {"d": "drop", "s": "send now, steering"}
    chosen = await desk.app.push_screen_wait(Picker("Queued messages", found, keys=keys, act=act, searches=False))
    if chosen is not None:
        text = next((item.content for item in desk.app.conversation.view.queue if item.id == chosen), "")
        desk.ask_for(Purpose("queued", "the message: Enter changes it, Esc goes back", target=chosen), text)


async def choose_model(desk: Desk) -> str:
    known = await desk.connection.models()

    async def found(query: str) -> Sequence[Entry[str]]:
        rows = [row for row in known if query.casefold() in row.model.casefold()]
        entries = []
        for row in sorted(rows, key=lambda each: bool(each.why)):
            text = Text(no_wrap=True)
            text.append(inert_line(row.model, 60), "dim" if row.why else "bold")
            text.append(f"  {row.window:,} tokens" if row.window else "", "dim")
            text.append(f"  {inert_line(row.why, 120)}" if row.why else "", "dim")
            entries.append(Entry(text, None if row.why else row.model))
        if query and ":" in query:
            entries.insert(0, Entry(f"{query}  (as typed)", query))
        return entries

    return await desk.app.push_screen_wait(Picker("Model", found)) or ""


async def choose_mode(desk: Desk) -> str:
    async def found(query: str) -> Sequence[Entry[str]]:
        return [Entry(f"{mode:10} {MODE_WORDS[mode][1]}", str(mode)) for mode in MODES if query in mode]

    return await desk.app.push_screen_wait(Picker("Mode", found, searches=False)) or ""


async def choose_agent(desk: Desk, known: "Mapping[str, CustomAgent]") -> str:
    async def found(query: str) -> Sequence[Entry[str]]:
        rows = [
            Entry(Text(inert_line(f"{each.name}  {each.description}", 200), no_wrap=True), each.name)
            for each in known.values()
            if query.casefold() in each.name.casefold()
        ]
        return [*rows, Entry("none  as itself again", "none")]

    return await desk.app.push_screen_wait(Picker("Work as", found)) or ""


async def choose_theme(desk: Desk) -> None:
    app = desk.app

    async def found(query: str) -> Sequence[Entry[str]]:
        return [Entry(name, name) for name in sorted(app.available_themes) if query in name]

    chosen = await app.push_screen_wait(Picker("Colours", found))
    if chosen:
        app.theme = chosen
        app.transcript.again()
