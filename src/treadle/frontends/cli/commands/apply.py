"""`treadle apply`: a patch or a fenced block, from a file, standard input or a chat's last answer, becomes a change of
the project (L-18): planned and shown, then made all or not at all, with the same rules and the same way back as a call
of the model."""

from typing import TYPE_CHECKING, NamedTuple

import click

from treadle.base.types import CallKey, ChatId
from treadle.errors import EditError, InvalidInput, Refused, ToolError
from treadle.frontends.cli import options as o
from treadle.frontends.cli.group import in_loop

from treadle.frontends.cli.lazy import (  # isort: skip
    Agent, Chat, Config, applying, c, changes, chat_options, command_stream, dialogue, diff_changes, notices, piped,
    session, toolset, wire,
)  # fmt: skip
from treadle.frontends.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from treadle.protocol.files import FileChange

_SHORTER = "apply it in parts"


class Wish(NamedTuple):
    source: str | None
    path: str | None
    block: int | None
    chat: str | None
    root: str | None
    force_root: bool
    preview: bool
    yes: bool

    def check(self) -> None:
        if self.preview and self.yes:
            raise click.UsageError("--preview and --yes exclude each other.")
        if self.chat and (self.root or self.force_root):
            raise click.UsageError("--chat and --root exclude each other: a chat has its project.")


@click.command("apply")
@click.argument("source", metavar="[FILE]", required=False, type=o.FILE)
@click.option("--to", "path", metavar="PATH", type=o.FILE, help="Write a fenced block, or all of a text, to this file.")
@click.option("--block", type=o.POSITIVE, metavar="N", help="The number of the fenced block, from 1.")
@click.option("--chat", type=o.CHAT, help="Apply in this chat; without FILE apply its last answer.")
@o.root_options
@click.option("--preview", "-n", is_flag=True, help="Show the changes without making them.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask, not even about sensitive files.")
@o.json_option("Print the result as one JSON object, and do not ask.")
@o.gather_options(Wish, "wish")
@in_loop
async def apply(wish: Wish, as_json: bool) -> int:
    """Apply a patch or a fenced block of an answer to the project.

    FILE holds a unified diff, a patch that begins with *** Begin Patch, or an answer with one of these in a fenced
    block; without FILE, or with -, it is read from standard input. With --to a block, or a text without one, becomes
    that file. It is shown first and applied whole or not at all; treadle undo takes it back."""
    config = session.load_config()
    text = _text(wish)
    terminal = Terminal()
    async with session.open_agent(config) as agent:
        chat, root = await _chat(agent, config, wish)
        if text is None:
            text = applying.last_answer(await chat.state())
            if not text:
                raise Refused("no_such_block", f"the chat {chat.id} has no answer yet")
        command = _command(wish, text)
        files, diff = await _plan_changes(agent, root, command)
        if not as_json:
            changes.print_patch(terminal, diff)
        if wish.preview or not files:
            if as_json:
                write_json({"preview": wish.preview, "applied": False, "files": wire.to_wire_form(files), "diff": diff})
            elif files:
                terminal.note(f"would change {diff_changes.count(len(files), 'file')}; nothing was changed", "dim")
            else:
                terminal.note("nothing to apply: the files are like that already", "dim")
            return o.EXIT_OK
        question = f"apply to {diff_changes.count(len(files), 'file')}? [y/N] "
        if not await dialogue.may_go_on(terminal, question, asks=not (wish.yes or as_json)):
            return o.EXIT_ERROR
        return await _run_apply(terminal, chat, command, wish, as_json)


def _text(wish: Wish) -> str | None:
    """Return the text to apply; None for the last answer of the chat."""
    if wish.source not in (None, "-"):
        return piped.read_file(str(wish.source), piped.PATCH_LIMIT, _SHORTER)
    if wish.source is None and (wish.chat or not piped.is_piped()):
        if wish.chat:
            return None
        raise click.UsageError("Name a FILE, pipe a patch in, or name a chat with --chat.")
    return piped.read_text(piped.PATCH_LIMIT, _SHORTER)


def _command(wish: Wish, text: str) -> "c.Apply":
    """A patch if it is one, else a text for the named file."""
    blocks = applying.fenced_blocks(text)
    if wish.block is not None and wish.block > len(blocks):
        raise InvalidInput(f"there is no block {wish.block}: the text has {len(blocks)} that are closed by their fence")
    if wish.block is None and len(blocks) > 1:
        patches = [block for block in blocks if _is_patch(block)]
        if wish.path or len(patches) != 1:
            raise InvalidInput(f"the text has {len(blocks)} fenced blocks; say which with --block 1 to {len(blocks)}")
        blocks = patches
    content = text
    if blocks and not (wish.block is None and _is_patch(text) and not _is_patch(blocks[0])):
        content = blocks[(wish.block or 1) - 1]
    if wish.path:
        return c.Apply(wish.path, content)
    if not _is_patch(content):
        raise InvalidInput("this is no patch; say with --to PATH which file it should become")
    return c.Apply(patch=content)


def _is_patch(text: str) -> bool:
    from treadle.adapters.tools.builtin.patch_text import parse

    try:
        return bool(parse(text))
    except EditError:
        return text.lstrip().startswith(("*** Begin Patch", "diff --git ", "--- "))


async def _chat(agent: "Agent", config: "Config", wish: Wish) -> "tuple[Chat, str]":
    """The chat that was named, else a new one, which is not written down before it has something to do; its root."""
    if wish.chat:
        chat = agent.chat(await session.find_chat(agent.deps.store, wish.chat))
        return chat, (await chat.state()).options.root
    root = str(o.project_root(wish.root, force=wish.force_root))
    # `apply` is a request to write these files, so the chat uses the mode that lets edits pass.
    options, asks = config.settings.chat_options(root), dialogue.someone_is_there()
    return agent.chat(options=options, mode="auto-edit", interactive=asks, auto_approve_sensitive_edits=wish.yes), root


async def _plan_changes(agent: "Agent", root: str, command: "c.Apply") -> "tuple[tuple[FileChange, ...], str]":
    """Return the changes and their preview, computed by the tool that will make them. Nothing is written."""
    from treadle.protocol.tools import PATCH_TOOL, WRITE_TOOL, ToolSpec

    name, arguments = WRITE_TOOL, {"path": command.path, "content": command.content}
    if command.patch is not None:
        name, arguments = PATCH_TOOL, {"patch": command.patch}
    tool = agent.deps.tools.find(name, chat_options.ChatOptions(tools=(name,)))
    assert tool is not None
    assert not isinstance(tool, ToolSpec)
    options = chat_options.ChatOptions(root=root)
    invocation = toolset.Invocation(ChatId("apply"), CallKey("1.0"), name, arguments, options=options, by_person=True)
    rehearsal = await tool.rehearse(invocation)
    return () if rehearsal is None else rehearsal.files, await tool.preview(invocation)


async def _run_apply(terminal: Terminal, chat: "Chat", command: "c.Apply", wish: Wish, as_json: bool) -> int:
    """Carry it out in the way of every call: policy, checkpoint, log."""
    await chat.open()
    if not wish.chat:
        await chat.command(c.Rename(f"apply {wish.source if wish.source not in (None, '-') else 'standard input'}"))
    outcome = await command_stream.collect_changes(
        chat.apply(command.path, content=command.content, patch=command.patch)
    )
    while (answer := await dialogue.answer_next(terminal, chat, asks=not as_json)) is not None:
        outcome = await command_stream.collect_changes(answer)
    completion, files = outcome.completion, outcome.files
    is_applied = completion is not None and completion.success
    error = completion.error if completion is not None and not completion.success else ""
    if as_json:
        write_json({"chat": chat.id, "applied": is_applied, "error": error, "files": wire.to_wire_form(files)})
    elif error:
        raise ToolError(error)
    elif is_applied:
        terminal.note(f"applied: {notices.summary(files)} · back: treadle undo {chat.id}", "dim")
    return o.EXIT_OK if is_applied else o.EXIT_ERROR
