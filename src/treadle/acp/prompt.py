"""What a person typed and attached in the editor, as one message: text, pictures, whole files and links to files."""

import base64
import binascii
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from acp import schema as a
from acp.helpers import ContentBlock

from treadle.acp.blocks import fence
from treadle.errors import InvalidInput
from treadle.protocol.content import Image

PutBlob = Callable[[bytes], Awaitable[str]]

MOST_IMAGE = 20_000_000
MOST_ATTACHED = 1_000_000
"""Characters of all attached files together."""
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")


class Typed(NamedTuple):
    text: str
    attached: tuple[str, ...]
    """Whole files, each under its name."""
    images: tuple[Image, ...]


async def read_prompt(blocks: Sequence[ContentBlock], root: str, put: PutBlob) -> Typed:
    """What was typed, what was attached to it, and the pictures, kept by `put`. InvalidInput if something in it cannot
    be taken."""
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
                if kind not in PICTURES:
                    raise InvalidInput(f"{_name(uri, root)} is neither text nor a picture; name its path instead")
                images.append(await _image(data, kind, put))
            case a.ImageContentBlock(data=data, mime_type=kind):
                images.append(await _image(data, kind, put))
            case a.AudioContentBlock():
                raise InvalidInput("sound cannot be sent to a model here; write what it says")
    if sum(map(len, attached)) > MOST_ATTACHED:
        raise InvalidInput(f"the attached files have more than {MOST_ATTACHED:,} characters; name their paths instead")
    return Typed("".join(parts).strip(), tuple(attached), tuple(images))


async def _image(data: str, kind: str, put: PutBlob) -> Image:
    if kind not in PICTURES:
        raise InvalidInput(f"pictures of the type {kind!r} cannot be sent; there is: {', '.join(PICTURES)}")
    try:
        raw = base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise InvalidInput(f"a picture is no valid base64: {error}") from error
    if len(raw) > MOST_IMAGE:
        raise InvalidInput(f"a picture has more than {MOST_IMAGE:,} bytes")
    return Image(kind, await put(raw))


def _name(uri: str, root: str) -> str:
    """What the address of a resource means to the model: a path of the project, or the address itself."""
    split = urlsplit(uri)
    if split.scheme not in ("", "file"):
        return uri
    path = unquote(split.path)
    inside = os.path.relpath(path, root) if root and os.path.isabs(path) else path
    lines = f":{split.fragment.removeprefix('L')}" if split.fragment else ""
    return (path if inside.startswith("..") else inside) + lines
