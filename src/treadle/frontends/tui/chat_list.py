"""The list of chats, to find one and go on with it."""

import time
from collections.abc import Sequence

from treadle.base.inert import inert_line
from treadle.frontends.presentation.conversation import Conversation
from treadle.frontends.presentation.names import model_name, status_words
from treadle.frontends.presentation.rich_text import Drawable, Group, Text
from treadle.frontends.tui.command_context import CommandContext, Purpose, look_of
from treadle.frontends.tui.connection import ChatRow
from treadle.frontends.tui.drawing import draw_block
from treadle.frontends.tui.picker import Entry, Picker

PREVIEWED = 8
"""Blocks of a chat that its preview shows."""
DELETE = "ctrl+d"
READ = 200
"""Events at its end that are read for them."""
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
        return [_chat_entry(row) for row in await context.connection.chats(query)]

    async def act(key: str, row: ChatRow) -> str | None:
        nonlocal asked
        confirms, asked = key == DELETE and asked == row.id, row.id if key == DELETE else ""
        title, link = inert_line(row.title or row.id, 60), context.app.link
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
        """The last blocks of the chat."""
        conversation = Conversation()
        async for batch in (await context.connection.open(row.id)).news(max(0, row.head - READ)):
            for envelope in batch:
                conversation.apply(envelope)
            if conversation.seq >= row.head:
                break
        look = look_of(context, 60)
        parts = [draw_block(block, look) for block in conversation.blocks[-PREVIEWED:]]
        return Group(*(part for part in parts if part is not None))

    keys = {"ctrl+t": "rename", "ctrl+x": "archive", "ctrl+f": "fork", DELETE: "delete"}
    chosen_row = await context.app.push_screen_wait(Picker("Chats", list_chats, keys=keys, act=act, preview=preview))
    if chosen_row is not None:
        await context.open(await context.connection.open(chosen_row.id))


def _chat_entry(row: ChatRow) -> Entry[ChatRow]:
    parts = (
        (f"{_age(row.updated_ms):>4} ", "dim"),
        ("sub-agent " if row.parent else "", "cyan"),
        ("" if row.status == "idle" else f"{status_words(row.status)} ", _STYLES.get(row.status, "")),
        (inert_line(row.title or row.id, 100), "bold"),
        (f"  {inert_line(row.root.rpartition('/')[2], 40)} · {model_name(row.model, 40)}", "dim"),
        (f"  “{inert_line(row.matching_text, 80)}”" if row.matching_text else "", "italic dim"),
    )
    return Entry(Text.assemble(*parts, no_wrap=True, overflow="ellipsis"), row)


def _age(then_ms: int) -> str:
    seconds = max(0, time.time() - then_ms / 1000)
    for size, letter in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{letter}"
    return "now"
