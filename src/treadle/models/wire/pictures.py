"""Pictures of a user's message, ready for any wire: those that can be shown, and a word in the text for each that
cannot. Knows no protocol, and no model."""

from base64 import b64encode
from typing import NamedTuple

from treadle.ports.model import Pictures
from treadle.protocol.content import UserEntry

MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What all providers take that take pictures at all."""

NO_PICTURES: Pictures = {}


class Picture(NamedTuple):
    media_type: str
    data: str
    """Its bytes in base64."""

    @property
    def url(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"


def shown(entry: UserEntry, pictures: Pictures) -> tuple[str, list[Picture]]:
    """What was said, with a word for each picture that is not among those that can be shown, and those."""
    found: list[Picture] = []
    missing = ""
    for image in entry.images:
        data = pictures.get(image.blob)
        if data is not None and image.media_type in MEDIA_TYPES:
            found.append(Picture(image.media_type, b64encode(data).decode()))
        else:
            missing += f"\n[an image ({image.media_type}) was attached here, which cannot be shown to you]"
    return entry.text + missing, found
