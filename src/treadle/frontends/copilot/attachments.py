"""Attachments of a program's message: pictures go to the model, the rest is named, or quoted, below the text."""

import base64
import binascii
import mimetypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treadle.base.inert import fence
from treadle.base.jsonrpc.connection import INVALID_PARAMS, RpcError
from treadle.ports.store import Store
from treadle.protocol.content import MAX_IMAGE_BYTES, Image


async def read_attachments(attachments: Sequence[Any], root: str, store: Store) -> tuple[str, list[Image]]:
    """The text to put below the message, and the pictures."""
    lines: list[str] = []
    images: list[Image] = []
    for item in attachments:
        if not isinstance(item, Mapping):
            raise RpcError(INVALID_PARAMS, "An attachment is no object.")
        if (picture := _picture(item, root)) is not None:
            images.append(Image(picture[0], await store.put_blob(picture[1])))
        else:
            lines.append(_line(item, root))
    return ("\n\nAttached:\n" + "\n".join(lines) if lines else ""), images


def _picture(item: Mapping[str, Any], root: str) -> tuple[str, bytes] | None:
    kind, path = item.get("type"), str(item.get("path") or item.get("filePath") or "")
    if kind == "blob":
        media = str(item.get("mimeType", ""))
        try:
            data = base64.b64decode(str(item.get("data", "")), validate=True)
        except binascii.Error as error:
            raise RpcError(INVALID_PARAMS, f"An attachment is no base64: {error}.") from error
    elif kind == "file" and (mimetypes.guess_type(path)[0] or "").startswith("image/"):
        media = mimetypes.guess_type(path)[0] or ""
        try:
            data = Path(root, path).read_bytes()
        except OSError as error:
            raise RpcError(INVALID_PARAMS, f"The attachment {path} cannot be read: {error.strerror}.") from error
    else:
        return None
    if not media.startswith("image/"):
        return None
    if len(data) > MAX_IMAGE_BYTES:
        raise RpcError(INVALID_PARAMS, f"A picture has {len(data)} bytes; at most {MAX_IMAGE_BYTES} are taken.")
    return media, data


def _line(item: Mapping[str, Any], root: str) -> str:
    path = str(item.get("path") or item.get("filePath") or "")
    name = str(item.get("displayName") or path or item.get("title") or "attachment")
    match item.get("type"):
        case "file" | "directory" as kind:
            inside = Path(path).is_relative_to(root) if Path(path).is_absolute() else False
            return f"- {kind} {Path(path).relative_to(root) if inside else path}"
        case "selection":
            return f"- selection of {name}:\n{fence(str(item.get('text', '')))}"
        case "blob":
            data = base64.b64decode(str(item.get("data", "")))
            return f"- {name}:\n{fence(data.decode(errors='replace'))}"
        case _:
            return f"- {item.get('type')} {name} {item.get('url') or ''}".rstrip()
