"""Converts a prompt of the editor to one message: text, pictures, whole files and links to files."""

import os
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import unquote, urlsplit

from acp import schema as a
from acp.helpers import ContentBlock

from treadle.base.inert import fence
from treadle.errors import InvalidInput
from treadle.protocol.content import PICTURE_KINDS, Image, decode_picture

PutBlob = Callable[[bytes], Awaitable[str]]

MOST_ATTACHED = 1_000_000
"""Characters of all attached files together."""


async def read_prompt(blocks: Sequence[ContentBlock], root: str, put: PutBlob) -> tuple[str, list[str], list[Image]]:
    """Return the typed text, the attached whole files, and the pictures, which `put` stores. InvalidInput if a block
    cannot be accepted."""
    parts: list[str] = []
    attached: list[str] = []
    images: list[Image] = []
    for block in blocks:
        match block:
            case a.TextContentBlock(text=text):
                parts.append(text)
            case a.ResourceContentBlock(uri=uri):
                parts.append(f"@{_name(uri, root)}")
            case a.EmbeddedResourceContentBlock(resource=a.TextResourceContents(uri=uri, text=text)):
                parts.append(f"@{_name(uri, root)}")
                attached.append(f"{_name(uri, root)}, as attached:\n{fence(text)}")
            case a.EmbeddedResourceContentBlock(resource=a.BlobResourceContents(uri=uri, mime_type=kind, blob=data)):
                if kind not in PICTURE_KINDS:
                    raise InvalidInput(f"{_name(uri, root)} is neither text nor a picture; name its path instead")
                images.append(Image(kind, await put(decode_picture(data, kind))))
            case a.ImageContentBlock(data=data, mime_type=kind):
                images.append(Image(kind, await put(decode_picture(data, kind))))
            case a.AudioContentBlock():
                raise InvalidInput("sound cannot be sent to a model here; write what it says")
    if sum(map(len, attached)) > MOST_ATTACHED:
        raise InvalidInput(f"the attached files have more than {MOST_ATTACHED:,} characters; name their paths instead")
    return "".join(parts).strip(), attached, images


def _name(uri: str, root: str) -> str:
    """Return the name of a resource for the model: a path relative to the project, or the URI itself."""
    split = urlsplit(uri)
    if split.scheme not in ("", "file"):
        return uri
    path = unquote(split.path)
    inside = os.path.relpath(path, root) if root and os.path.isabs(path) else path
    lines = f":{split.fragment.removeprefix('L')}" if split.fragment else ""
    return (path if inside.startswith("..") else inside) + lines
