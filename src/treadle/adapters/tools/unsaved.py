"""Unsaved files of the editor: the model reads the text that the person sees, and a file with unsaved changes is not
changed on disk behind their back. A hook (E-03): it looks at calls, and can refuse or reword, never allow."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from treadle.adapters.tools.builtin.read import numbered_text
from treadle.adapters.tools.builtin.text import MAX_FILE, Text, decode
from treadle.base.types import ChatId
from treadle.errors import ToolError
from treadle.ports.toolset import Invocation, Outcome
from treadle.ports.workspace import WorkspaceOf, inert
from treadle.protocol.tools import EDIT_TOOLS, READ_TOOL, ToolSpec

ReadText = Callable[[str], Awaitable[str]]
"""By absolute path: the text as the editor has it. Raises any exception if it has none."""

WAIT_S = 5.0  # How long an editor may take; then the disk counts
_IN_PATCH = re.compile(r"^\*\*\* ?(?:Update|Modify|Delete|Remove) File: ?(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
NOTE = "[these are unsaved changes in the user's editor; on disk the file is different]"
UNSAVED = (
    "{path} has unsaved changes in the user's editor, which a change on disk would collide with. Ask the user to save "
    "or discard them, then read the file again."
)


class UnsavedFiles:
    """The editors of chats, by chat."""

    def __init__(self, workspace_of: WorkspaceOf) -> None:
        self._workspace_of = workspace_of
        self._editors: dict[ChatId, ReadText] = {}

    def attach(self, chat: ChatId, read: ReadText) -> None:
        self._editors[chat] = read

    def detach(self, chat: ChatId) -> None:
        self._editors.pop(chat, None)

    async def before_call(self, spec: ToolSpec, invocation: Invocation) -> str:
        if spec.name in EDIT_TOOLS:
            for path in _find_paths(invocation):
                if await self._unsaved(invocation, path) is not None:
                    return UNSAVED.format(path=inert(path))
        return ""

    async def after_call(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        if spec.name != READ_TOOL or not outcome.success:
            return outcome
        path = str(invocation.arguments.get("path", ""))
        text = await self._unsaved(invocation, path)
        if text is None:
            return outcome
        start, end = invocation.arguments.get("start_line") or 1, invocation.arguments.get("end_line") or 0
        try:
            shown_text, summary = numbered_text(inert(path), Text(text), start, end)
        except ToolError:
            return outcome
        return replace(outcome, text=f"{shown_text}\n{NOTE}", summary=f"{summary}, unsaved")

    async def _unsaved(self, invocation: Invocation, path: str) -> str | None:
        read = self._editors.get(invocation.chat)
        if read is None or not path or invocation.options.world:  # an editor shows the project
            return None
        try:
            workspace = self._workspace_of(*invocation.project)
            on_disk = await asyncio.to_thread(
                lambda: decode(workspace.read_bytes(workspace.relative(path), MAX_FILE), path).text
            )
            async with asyncio.timeout(WAIT_S):
                text = await read(os.path.join(invocation.root, path))
        except Exception:  # no text, no such file, an editor that is gone: then the disk counts
            return None
        return None if _plain(text) == _plain(on_disk) else text


def _plain(text: str) -> str:
    """Editors have line ends and byte-order marks of their own."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _find_paths(invocation: Invocation) -> list[str]:
    path = invocation.arguments.get("path")
    if path is not None:
        return [path] if isinstance(path, str) else []
    texts = [text for text in invocation.arguments.values() if isinstance(text, str) and "***" in text]
    return [patched_path for text in texts for patched_path in _IN_PATCH.findall(text)]
