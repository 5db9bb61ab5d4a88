"""The first run: what is here to work with, what would be sent where, and a model to choose. Writes nothing unless
asked to."""

import asyncio
from collections.abc import Sequence

from treadle.inert import inert_line
from treadle.presentation.rich_text import Text
from treadle.tui.command_context import CommandContext
from treadle.tui.connection import ModelRow
from treadle.tui.picker import Entry, Picker
from treadle.tui.screens import Confirm

LOCAL_SERVERS = {"ollama": 11434, "LM Studio": 1234, "llama.cpp or vLLM": 8080}
KEYLESS = (
    "treadle demo: see it work on a small project; the model is a script",
    "treadle models fetch qwen-coder: a model that runs on this machine, 1.1 GB",
)
_LOOK_S = 0.3


async def first_run(context: CommandContext) -> None:
    known, servers = await asyncio.gather(context.connection.models(), local_servers())
    usable = [row for row in known if not row.why]

    async def found(query: str) -> Sequence[Entry[str]]:
        return _entries(known, usable, servers, query)

    chosen = await context.app.push_screen_wait(Picker("Welcome to Treadle. Choose a model", found))
    if chosen is None:
        context.app.tell("no model is chosen; /model shows the list, and `treadle demo` needs none", grave=False)
        return
    context.chosen["model"] = chosen
    context.app.showing.draw_facts()
    if not await context.may_see(chosen):
        context.chosen.pop("model")
        return
    path = None if context.app.home is None else context.app.home / "config.toml"
    if path is None or await asyncio.to_thread(path.exists):
        return
    if await context.app.push_screen_wait(
        Confirm(f"Use {chosen} from now on? That writes {path}.", "write it", "only now")
    ):
        await asyncio.to_thread(path.write_text, f'model = "{chosen}"\n', encoding="utf-8")


def _entries(
    known: Sequence[ModelRow], usable: Sequence[ModelRow], servers: Sequence[str], query: str
) -> list[Entry[str]]:
    wanted = query.casefold()
    entries: list[Entry[str]] = []

    def add(heading: str, rows: Sequence[Entry[str]]) -> None:
        if rows:
            entries.append(Entry(Text(heading, "bold cyan"), None))
            entries.extend(rows)

    ready = [Entry(f"  {inert_line(row.model, 80)}", row.model) for row in usable if wanted in row.model.casefold()]
    add("ready: a key was found, or it runs on this machine", ready)
    add("servers on this machine", [Entry(Text(f"  {name} answers", "green"), None) for name in servers])
    add("without any key, in a shell", [Entry(Text(words), None, 2) for words in KEYLESS])
    missing: dict[str, list[str]] = {}
    for provider, why in {row.model.partition(":")[0]: row.why for row in known if row.why}.items():
        if provider != "local":  # it needs no key, and was offered above
            missing.setdefault(inert_line(why.partition(", or ")[0], 150), []).append(inert_line(provider))
    add("not ready", [Entry(Text(f"{', '.join(names)}: {why}"), None, 2) for why, names in missing.items()])
    return entries


async def local_servers() -> list[str]:
    """Model servers that listen here, by their usual ports; nothing is asked of them."""

    async def listens(port: int) -> bool:
        try:
            async with asyncio.timeout(_LOOK_S):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True

    found = await asyncio.gather(*(listens(port) for port in LOCAL_SERVERS.values()))
    return [name for name, here in zip(LOCAL_SERVERS, found, strict=True) if here]
