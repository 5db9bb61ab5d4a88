"""Content sent by servers, converted to text and pictures for a model. The declared types are not trusted."""

import base64
import binascii
from collections.abc import Iterable, Sequence

import mcp_types as types
import msgspec

from treadle.base.inert import inert_line
from treadle.protocol.content import PICTURE_KINDS

MAX_PICTURES = 8
MAX_PICTURE_BYTES = 4 << 20


class RenderedContent(msgspec.Struct, frozen=True):
    text: str
    pictures: tuple[tuple[str, bytes], ...] = ()  # Each with its media type


def render_content(blocks: Sequence[types.ContentBlock], structured: object = None) -> RenderedContent:
    pictures: list[tuple[str, bytes]] = []
    texts = [_render_block(block, pictures) for block in blocks]
    if structured is not None and not any(isinstance(block, types.TextContent) for block in blocks):
        texts.append(msgspec.json.encode(structured).decode())
    return RenderedContent("\n".join(text for text in texts if text), tuple(pictures))


def _render_block(block: types.ContentBlock, pictures: list[tuple[str, bytes]]) -> str:
    match block:
        case types.TextContent(text=text):
            return text
        case types.ImageContent(data=data, mime_type=kind):
            return _picture(data, kind, pictures)
        case types.AudioContent(data=data, mime_type=kind):
            return f"[a sound, {inert_line(kind, 80)}, about {len(data) * 3 // 4:,} bytes; it cannot be shown]"
        case types.ResourceLink(uri=uri, name=name, description=text):
            about = f": {text}" if text else ""
            return f"[the resource {inert_line(name, 200)} at {inert_line(str(uri), 500)}{about}]"
        case types.EmbeddedResource(resource=resource):
            return contents([resource], pictures)


def contents(
    resources: Iterable[types.TextResourceContents | types.BlobResourceContents], pictures: list[tuple[str, bytes]]
) -> str:
    """Resources as text, each under its address."""
    texts = []
    for each in resources:
        if isinstance(each, types.TextResourceContents):
            text = each.text
        else:
            text = _picture(each.blob, each.mime_type or "", pictures)
        texts.append(f"[{inert_line(str(each.uri), 500)}]\n{text}")
    return "\n".join(texts)


def _picture(data: str, kind: str, pictures: list[tuple[str, bytes]]) -> str:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return "[bytes that cannot be read]"
    description = f"{inert_line(kind, 80) or 'bytes'}, {len(content):,} bytes"
    if kind not in PICTURE_KINDS or len(content) > MAX_PICTURE_BYTES or len(pictures) >= MAX_PICTURES:
        return f"[{description}; it cannot be shown]"
    pictures.append((kind, content))
    return f"[picture {len(pictures)}: {description}; shown below]"
