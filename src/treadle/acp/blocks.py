"""Pieces of content in the protocol's shape, made inert (S-12); a unified diff as the texts at its two ends."""

import re
from collections.abc import Iterator

from acp import schema as a

from treadle.inert import inert

Content = a.ContentToolCallContent | a.FileEditToolCallContent | a.TerminalToolCallContent

MOST_SHOWN = 20_000
_FENCE = re.compile(r"^\s*(`{3,})", re.MULTILINE)


def text_block(text: str) -> a.TextContentBlock:
    return a.TextContentBlock(type="text", text=inert(text))


def chunk(text: str) -> a.AgentMessageChunk:
    return a.AgentMessageChunk(session_update="agent_message_chunk", content=text_block(text))


def remark(text: str) -> a.AgentMessageChunk:
    """Something that Treadle says, apart from what the model says."""
    return chunk(f"\n\n*{text[:1].upper()}{text[1:]}*\n\n")


def thought(text: str) -> a.AgentThoughtChunk:
    return a.AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(text))


def user_chunk(text: str) -> a.UserMessageChunk:
    return a.UserMessageChunk(session_update="user_message_chunk", content=text_block(text))


def said(text: str) -> Content:
    return a.ContentToolCallContent(type="content", content=text_block(text))


def fenced(text: str) -> Content:
    """Text as it is, in a fence that it cannot close: editors read content as Markdown. Of a long one the end."""
    if len(text) > MOST_SHOWN:
        text = f"[{len(text) - MOST_SHOWN:,} characters are not shown]\n{text[-MOST_SHOWN:]}"
    fence = "`" * max((len(found) + 1 for found in _FENCE.findall(text)), default=3)
    return said(f"{fence}\n{text.rstrip()}\n{fence}")


def diff(path: str, old: bytes | None, new: bytes) -> Content:
    before = None if old is None else inert(old.decode(errors="replace"))
    return a.FileEditToolCallContent(
        type="diff", path=inert(path), old_text=before, new_text=inert(new.decode(errors="replace"))
    )


def diffs_in(text: str, root: str) -> list[Content]:
    """The hunks of the unified diffs in a text, each as what it goes from and to; none if there are none."""
    return [
        a.FileEditToolCallContent(type="diff", path=f"{root}/{path}", old_text=old, new_text=new)
        for path, old, new in _hunks(text.split("\n"))
    ]


def _hunks(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    path, old, new = "", "", ""
    inside = False
    for line in lines:
        if line.startswith(("--- ", "@@ ")) or not line.startswith((" ", "+", "-", "\\")):
            if inside and (old or new):
                yield path, old, new
            old, new, inside = "", "", line.startswith("@@ ")
        if line.startswith("--- ") or (line.startswith("+++ ") and not inside):
            name = line[4:].partition("\t")[0]
            path = path if name == "/dev/null" else name.removeprefix("a/" if line[0] == "-" else "b/")
        elif inside and line[:1] in (" ", "-", "+"):
            old += f"{line[1:]}\n" if line[0] != "+" else ""
            new += f"{line[1:]}\n" if line[0] != "-" else ""
    if inside and (old or new):
        yield path, old, new
