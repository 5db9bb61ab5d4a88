"""Lists to choose from: messages to go back to, changed files and hunks, jobs, models, modes, colours."""

import time
from collections.abc import Sequence
from datetime import datetime

from treadle.base.inert import make_inert_line
from treadle.diff.diff import FileDiff
from treadle.errors import InvalidInput, TreadleError
from treadle.frontends.presentation.conversation import Conversation, iterate_copies
from treadle.frontends.presentation.rich_text import Drawable, Group, Text
from treadle.frontends.presentation.styled import describe_status, format_model_name
from treadle.frontends.tui.command_context import CommandContext, Purpose, describe_outcome, make_look
from treadle.frontends.tui.connection import ChatLink, ChatRow
from treadle.frontends.tui.drawing import Look, draw_block, draw_diff, draw_line_counts
from treadle.frontends.tui.screens import Entry, Picker, Reading
from treadle.protocol.files import decode_path
from treadle.protocol.http_answers import RuleView


async def rewind(context: CommandContext, arguments: str) -> None:
    """Go back to before a message: the conversation, the files, or both (W-03)."""
    app, link = context.app, context.require_link()
    messages_by_seq = {block.seq: block.text for block in reversed(app.conversation.list_messages())}

    def find_messages(query: str) -> Sequence[Entry[int]]:
        matches = {seq: text for seq, text in messages_by_seq.items() if query.casefold() in text.casefold()}
        return [Entry(make_inert_line(text, 200), seq) for seq, text in matches.items()]

    async def preview(seq: int) -> Drawable:
        lines = await _preview_files_back(link, seq)
        files = [Text(make_inert_line(line)) for line in lines] or [Text("no file would change", "dim")]
        return Group(Text(messages_by_seq[seq], "bold"), Text("\nfiles that would go back:", "dim"), *files)

    async def act(key: str, seq: int) -> str | None:
        await context.open(await context.connection.fork(link.id, seq - 1))
        app.composer.put(messages_by_seq[seq])
        return None

    keys = {"ctrl+f": "in a copy: fork"}
    seq = await app.push_screen_wait(Picker("Go back to before", find_messages, keys=keys, act=act, preview=preview))
    if seq is None:
        return
    lines = await _preview_files_back(link, seq)
    choices = {"both": "conversation and files", "conversation": "only the conversation", "files": "only the files"}
    heading = Text("files that would go back:" if lines else "no file would change", "dim")
    ways = [*(Entry(words, way) for way, words in choices.items()), Entry[str](heading, None)]
    ways += [Entry[str](Text(f"   {make_inert_line(line)}", "dim"), None) for line in lines[:12]]
    if (way := await app.push_screen_wait(Picker("What should be undone?", lambda _: ways, searches=False))) is None:
        return
    outcome = await link.go_back_to(seq, conversation=way != "files", files=way != "conversation")
    if way != "conversation":
        context.tell_outcome("taken back", outcome)
    if way != "files":
        app.composer.put(messages_by_seq[seq])


async def _preview_files_back(link: ChatLink, seq: int) -> Sequence[str]:
    try:
        return await link.preview_back(seq)
    except TreadleError as error:  # the conversation can go back without them
        return [str(error)]


async def review(context: CommandContext, arguments: str) -> None:
    """Changed files and their hunks, to keep or to undo (W-03, W-04)."""
    link = context.require_link()
    files: dict[str, FileDiff] = {}

    async def list_changes(query: str) -> Sequence[Entry[tuple[str, int]]]:
        files.clear()
        files.update({file.change.path: file for file in await link.list_file_diffs(everything=True)})
        return [entry for file in files.values() for entry in _make_file_entries(file)]

    async def act(key: str, target: tuple[str, int]) -> str | None:
        path, hunk = target
        hunks = {path: (hunk,)} if hunk else None
        if key == "enter":
            diff_view = _draw_file_diff(files[path], hunk, make_look(context, max(30, context.app.size.width - 8)))
            reading = Reading(make_inert_line(decode_path(path)), diff_view, {"k": "keep", "u": "undo"})
            if not (key := await context.app.push_screen_wait(reading)):
                return ""
        paths = () if hunk else (path,)
        if key == "k":
            return describe_outcome("kept", await link.keep(paths, hunks))
        return describe_outcome("undone", await link.undo(paths, hunks, everything=True))

    async def preview(choice: tuple[str, int]) -> Drawable:
        return _draw_file_diff(files[choice[0]], choice[1], make_look(context, 80))

    keys = {"enter": "look", "k": "keep", "u": "undo"}
    picker = Picker("Changes", list_changes, keys=keys, act=act, preview=preview, searches=False)
    await context.app.push_screen_wait(picker)
    context.app.showing.side.files = list(files.values())
    context.app.showing.draw_facts()


_SIGNS = {"created": "A", "deleted": "D"}


def _make_file_entries(file: FileDiff) -> list[Entry[tuple[str, int]]]:
    change = file.change
    name = (f"{_SIGNS.get(change.action, 'M')} {make_inert_line(decode_path(change.path))} ", "bold")
    title = Text.assemble(name, draw_line_counts(change.added, change.removed), no_wrap=True)
    entries = [Entry(title, (change.path, 0))]
    for hunk in file.hunks if len(file.hunks) > 1 else ():
        header = f"    {make_inert_line(hunk.header, 60)} "
        text = Text.assemble(header, draw_line_counts(hunk.added, hunk.removed), no_wrap=True)
        entries.append(Entry(text, (change.path, hunk.number)))
    return entries


def _draw_file_diff(file: FileDiff, hunk: int, look: Look) -> Drawable:
    hunks = [each for each in file.hunks if not hunk or each.number == hunk]
    lines = [line for each in hunks for line in (each.header, *each.lines)]
    notes = [Text(make_inert_line(note), "dim") for note in file.notes]
    drawables = [draw_diff([line.rstrip("\n") for line in lines], decode_path(file.change.path), look)] if lines else []
    return Group(*notes, *drawables)


async def show_jobs(context: CommandContext, arguments: str) -> None:
    link = context.require_link()

    async def list_jobs(query: str) -> Sequence[Entry[str]]:
        entries = []
        for job in await link.list_job_rows():
            status = (f"{job.status:9} ", "green" if job.status == "running" else "dim")
            command = (make_inert_line(job.command, 100), "bold")
            last_line = (f"  {make_inert_line(job.last_line, 100)}", "dim")
            entries.append(Entry(Text.assemble(status, command, last_line, no_wrap=True), job.job))
        return entries

    async def act(key: str, job: str) -> str | None:
        for each in await link.chat.jobs():
            if each.view.job == job:
                await each.stop()
        return f"stopped: {job}"

    picker = Picker("Background commands", list_jobs, keys={"s": "stop"}, act=act, searches=False)
    await context.app.push_screen_wait(picker)


async def show_queue(context: CommandContext, arguments: str) -> None:
    link = context.require_link()

    def list_queue(query: str) -> Sequence[Entry[str]]:
        return [
            Entry(make_inert_line(f"{'(steers) ' if item.delivery == 'steering' else ''}{item.content}", 200), item.id)
            for item in context.app.conversation.view.queue
        ]

    async def act(key: str, id: str) -> str | None:
        await (link.chat.delete_queued(id) if key == "d" else link.chat.promote(id))
        return None

    keys = {"d": "drop", "s": "send now, steering"}
    picker = Picker("Queued messages", list_queue, keys=keys, act=act, searches=False)
    if (queue_id := await context.app.push_screen_wait(picker)) is not None:
        text = next((item.content for item in context.app.conversation.view.queue if item.id == queue_id), "")
        context.ask_for(Purpose("queued", "the message: Enter changes it, Esc goes back", target=queue_id), text)


async def choose_theme(context: CommandContext, arguments: str) -> None:
    app = context.app
    themes = [Entry(name, name) for name in sorted(app.available_themes)]
    picker = Picker("Colours", lambda query: [each for each in themes if query in (each.value or "")])
    if theme := await app.push_screen_wait(picker):
        app.theme = theme
        app.transcript.rebuild()


async def search_history(context: CommandContext, arguments: str) -> None:
    """Messages that were sent before, in any chat; the chosen one goes to the composer."""
    app = context.app

    def find_inputs(query: str) -> Sequence[Entry[str]]:
        words = query.casefold()
        matches = [text for text in app.history.list_newest() if words in text.casefold()]
        return [Entry(make_inert_line(text, 200), text) for text in matches]

    picker = Picker("Messages that you sent before", find_inputs, preview=_preview_text)
    if (message := await app.push_screen_wait(picker)) is not None:
        app.composer.put(message)
        app.composer.focus()


async def _preview_text(text: str) -> Drawable:
    return Text(text)


async def copy(context: CommandContext, arguments: str) -> None:
    """Copy something that was said, run or changed; the newest first."""
    app = context.app
    parts = list(iterate_copies(app.conversation.blocks))
    if not parts:
        raise InvalidInput("there is nothing to copy yet")

    def find_parts(query: str) -> Sequence[Entry[str]]:
        matches = [each for each in parts if query.casefold() in " ".join(each).casefold()]
        labels = [
            Text.assemble((f"{kind:8} ", "dim"), make_inert_line(text, 200), no_wrap=True) for kind, text in matches
        ]
        return [Entry(label, text) for label, (_, text) in zip(labels, matches, strict=True)]

    copied_text: str | None = parts[0][1]
    if arguments not in ("answer", "last"):
        copied_text = await app.push_screen_wait(Picker("Copy", find_parts, preview=_preview_text))
    if copied_text is not None:
        app.copy_to_clipboard(copied_text)
        app.tell("copied", grave=False)


async def show_rules(context: CommandContext, arguments: str) -> None:
    """Show the standing rules: the coverage of each, its source, its last use, its lifetime; `r` revokes one."""
    chat = context.app.link.id if context.app.link is not None else ""

    async def list_rules(query: str) -> Sequence[Entry[RuleView]]:
        return [Entry(_format_rule(each), each) for each in await context.connection.read_rules(chat)]

    async def act(key: str, rule_view: RuleView) -> str | None:
        await context.connection.revoke(rule_view)
        return f"revoked: {make_inert_line(f'{rule_view.rule.tool} {rule_view.rule.pattern}', 100)}"

    title = "Standing rules (an approval offers them)"
    await context.app.push_screen_wait(Picker(title, list_rules, keys={"r": "revoke"}, act=act, searches=False))


_SCOPE_WORDS = {"chat": "in this chat", "project": "in this project", "user": "everywhere", "once": "once"}


def _format_rule(listed: RuleView) -> Text:
    rule = listed.rule
    style = {"allow": "green", "ask": "yellow", "deny": "red"}[rule.effect]
    creation = f", made {_format_day(rule.created_ms)}" if rule.created_ms else ""
    usage = f", last used {_format_day(listed.used_ms)}" if listed.used_ms else ", never used"
    until = f", until {_format_day(rule.expires_ms)}" if rule.expires_ms else ""
    place = f" {make_inert_line(rule.root, 60)}" if rule.scope == "project" and rule.root else ""
    return Text.assemble(
        (f"{rule.effect:5} ", style), (f"{make_inert_line(rule.tool, 40)} ", "bold"),
        make_inert_line(rule.pattern or "(every use)", 100),
        (f"  {_SCOPE_WORDS[rule.scope]}{place}{creation}{usage}{until}", "dim"), no_wrap=True, overflow="ellipsis",
    )  # fmt: skip


def _format_day(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000).strftime("%Y-%m-%d")


PREVIEWED = 8  # blocks of a chat that its preview shows
DELETE = "ctrl+d"
READ = 200  # events at its end that are read for them
_STYLES = {
    "requires_action": "bold yellow",
    "running": "green",
    "pending": "yellow",
    "interrupting": "yellow",
    "error": "red",
}


async def pick_chat(context: CommandContext, arguments: str) -> None:
    asked = ""

    async def list_chats(query: str) -> Sequence[Entry[ChatRow]]:
        return [_make_chat_entry(row) for row in await context.connection.list_chat_rows(query)]

    async def act(key: str, row: ChatRow) -> str | None:
        nonlocal asked
        confirms, asked = key == DELETE and asked == row.id, row.id if key == DELETE else ""
        title, link = make_inert_line(row.title or row.id, 60), context.app.link
        if key == DELETE and not confirms:
            return f"Press Ctrl-D again to delete “{title}” for good."
        if key == DELETE and link is not None and link.id == row.id:
            return "This chat is open. Start or open another one first, then delete it."
        if key == "ctrl+f":
            await context.open(await context.connection.fork(row.id, 0))
            return None
        chosen = await context.connection.open(row.id)
        match key:
            case "ctrl+t":
                await context.open(chosen)
                context.ask_for(Purpose("rename", "the title: Enter keeps it", target=row.id), row.title)
                return None
            case "ctrl+x":
                await chosen.change(archived=not row.archived)
                return f"archived: {title}"
            case _:
                await chosen.chat.delete()
                return f"deleted: {title}"

    async def preview(row: ChatRow) -> Drawable:
        conversation = Conversation()
        async for batch in (await context.connection.open(row.id)).stream_events(max(0, row.head - READ)):
            for envelope in batch:
                conversation.apply(envelope)
            if conversation.seq >= row.head:
                break
        look = make_look(context, 60)
        parts = [draw_block(block, look) for block in conversation.blocks[-PREVIEWED:]]
        return Group(*(part for part in parts if part is not None))

    keys = {"ctrl+t": "rename", "ctrl+x": "archive", "ctrl+f": "fork", DELETE: "delete"}
    chosen_row = await context.app.push_screen_wait(Picker("Chats", list_chats, keys=keys, act=act, preview=preview))
    if chosen_row is not None:
        await context.open(await context.connection.open(chosen_row.id))


def _make_chat_entry(row: ChatRow) -> Entry[ChatRow]:
    parts = (
        (f"{_age(row.updated_ms):>4} ", "dim"),
        ("sub-agent " if row.parent else "", "cyan"),
        ("" if row.status == "idle" else f"{describe_status(row.status)} ", _STYLES.get(row.status, "")),
        (make_inert_line(row.title or row.id, 100), "bold"),
        (f"  {make_inert_line(row.root.rpartition('/')[2], 40)} · {format_model_name(row.model, 40)}", "dim"),
        (f"  “{make_inert_line(row.matching_text, 80)}”" if row.matching_text else "", "italic dim"),
    )
    return Entry(Text.assemble(*parts, no_wrap=True, overflow="ellipsis"), row)


def _age(then_ms: int) -> str:
    seconds = max(0, time.time() - then_ms / 1000)
    for size, letter in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{letter}"
    return "now"
