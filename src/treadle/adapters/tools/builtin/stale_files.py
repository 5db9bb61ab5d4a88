"""Read before write (T-13, fault 21): a file that has changed since the model last saw it is not written, and the
refusal shows the difference; after that the new content counts as seen. The log has the hashes of the content that the
model saw; the blob store has the bytes, if they were not too many; bytes that a call of the model wrote are in the
history of the project."""

from contextlib import suppress

from treadle.adapters.tools.builtin.base import in_thread
from treadle.adapters.tools.builtin.context import Blobs, ToolContext
from treadle.adapters.tools.builtin.file_change import Change, look
from treadle.adapters.tools.builtin.text import decode
from treadle.diff.diff import bounded, diff
from treadle.diff.encodings import visible
from treadle.errors import Conflict, NotFound, StoreError, ToolError
from treadle.ports.toolset import Invocation
from treadle.ports.workspace import inert

MAX_KEPT = 1_000_000
"""Bytes of a file that are kept to show later what changed."""


class Stale(Exception):
    """Files that are not what the model believes. Caught where the difference can be shown; never leaves the tools."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        super().__init__(*paths)
        self.paths = paths


def check(invocation: Invocation, changes: list[Change]) -> None:
    """Stale, if any file to be changed has other bytes than those the model last saw."""
    stale = [each.path for each in changes if _differs(invocation, each) and each.pre != each.post]
    if stale:
        raise Stale(tuple(stale))


def _differs(invocation: Invocation, change: Change) -> bool:
    known_digest = invocation.known_files.get(change.path)
    return known_digest is not None and known_digest != (change.pre or "")


async def keep(blobs: Blobs, *contents: bytes | None) -> None:
    """Keep what the model sees now, to be able to show later what changed since."""
    for data in contents:
        if data is not None and len(data) <= MAX_KEPT:
            await blobs.put_blob(data)


async def refusal(context: ToolContext, invocation: Invocation, paths: tuple[str, ...]) -> Conflict:
    """The refusal for the model: for each file the difference from the content that it saw. Content that is shown
    counts as seen."""
    texts: list[str] = []
    known_digests: dict[str, str] = {}
    for path in paths:
        data, digest = await in_thread(look, context.workspace_of(*invocation.project), path)
        known_digest = invocation.known_files.get(path)
        text, is_shown = _difference(path, known_digest, await _bytes(context, invocation, known_digest), data, digest)
        texts.append(text)
        if is_shown:
            known_digests[path] = digest or ""
            await keep(context.blobs, data)
    return Conflict("Nothing was written. " + "\n".join(texts), known_digests)


def _difference(
    path: str, known_digest: str | None, old: bytes | None, data: bytes | None, digest: str | None
) -> tuple[str, bool]:
    """The sentence for one file, and whether it shows what is there now."""
    shown_path = inert(path)
    if digest is None:
        return f"{shown_path} was deleted by someone else. Send the call again if it shall be created anew.", True
    try:
        if known_digest is None or old is None or data is None:
            raise ToolError
        old_text = None if known_digest == "" else decode(old, shown_path).text
        diff_text = visible(diff(shown_path, old_text, decode(data, shown_path).text).text)
    except ToolError:
        return _unshown(shown_path, data), False
    return (
        f"{shown_path} was changed on disk since you last saw it. What changed (- is as you saw it, + as it is now):\n"
        f"{bounded(diff_text)}\nIf your change still fits, send it again; otherwise adapt it.",
        True,
    )


def _unshown(shown_path: str, data: bytes | None) -> str:
    lines = "" if data is None else f" (lines 1 to {max(1, data.count(10) + (not data.endswith(bytes([10])))):,})"
    return f"{shown_path} was changed on disk since you last saw it. Read it again{lines} before you change it."


async def _bytes(context: ToolContext, invocation: Invocation, digest: str | None) -> bytes | None:
    """The content that the model saw: it read it, or a call of its own wrote it."""
    if not digest:
        return None if digest is None else b""
    with suppress(NotFound, StoreError):
        return await context.blobs.get_blob(digest)
    if context.snapshots_of is not None:
        with suppress(NotFound, ToolError):
            return await in_thread(context.snapshots_of(*invocation.project).content, digest, MAX_KEPT)
    return None
