"""Pictures by their path, for messages to models that can see."""

import mimetypes
from pathlib import Path

from treadle.errors import InvalidInput

KINDS = ("image/png", "image/jpeg", "image/gif", "image/webp")


def picture_kind(path: str) -> str:
    """The media type, if the name is that of a picture which models take; else nothing."""
    kind = mimetypes.guess_type(path)[0] or ""
    return kind if kind in KINDS else ""


def picture_at(text: str) -> str:
    """The path of a picture that is there, if the text is nothing but that, as when a file is dragged to a terminal."""
    path = text.strip().strip("'\"").replace("\\ ", " ")
    if not path or "\n" in path or not picture_kind(path):
        return ""
    found = Path(path).expanduser()
    return str(found) if found.is_file() else ""


def read_picture(path: str) -> tuple[str, bytes]:
    if not (kind := picture_kind(path)):
        raise InvalidInput(f"{path} is no picture that a model could take")
    try:
        return kind, Path(path).expanduser().read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
