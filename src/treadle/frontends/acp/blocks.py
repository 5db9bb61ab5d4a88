"""Pieces of content in the protocol's shape, made inert (S-12)."""

from acp import schema as a
from acp.helpers import ToolCallContentVariant as Content

from treadle.base.inert import fence, inert
from treadle.diff.diff import sides

MOST_SHOWN = 20_000


def text_block(text: str) -> a.TextContentBlock:
    return a.TextContentBlock(type="text", text=inert(text))


def chunk(text: str) -> a.AgentMessageChunk:
    return a.AgentMessageChunk(session_update="agent_message_chunk", content=text_block(text))


def remark(text: str) -> a.AgentMessageChunk:
    """Something that Treadle says, apart from what the model says."""
    return chunk(f"\n\n*{text[:1].upper()}{text[1:]}*\n\n")


def thought_chunk(text: str) -> a.AgentThoughtChunk:
    return a.AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(text))


def user_chunk(text: str) -> a.UserMessageChunk:
    return a.UserMessageChunk(session_update="user_message_chunk", content=text_block(text))


def text_content(text: str) -> Content:
    return a.ContentToolCallContent(type="content", content=text_block(text))


def fenced(text: str) -> Content:
    """Text as it is, in a fence that it cannot close: editors read content as Markdown. Of a long one the end."""
    if len(text) > MOST_SHOWN:
        text = f"[{len(text) - MOST_SHOWN:,} characters are not shown]\n{text[-MOST_SHOWN:]}"
    return text_content(fence(text))


def diff(path: str, old: bytes | None, new: bytes) -> Content:
    old_text = None if old is None else inert(old.decode(errors="replace"))
    return a.FileEditToolCallContent(
        type="diff", path=inert(path), old_text=old_text, new_text=inert(new.decode(errors="replace"))
    )


def diffs_in(text: str, root: str) -> list[Content]:
    """The hunks of the unified diffs in a text, each as what it goes from and to; none if there are none."""
    return [
        a.FileEditToolCallContent(type="diff", path=f"{root}/{hunk.path}", old_text=hunk.old, new_text=hunk.new)
        for hunk in sides(text)
    ]
