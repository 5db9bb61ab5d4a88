"""Pictures as front ends get them: which kinds models take, and base64 as bytes."""

import base64
import binascii

from treadle.errors import InvalidInput

KINDS = ("image/png", "image/jpeg", "image/gif", "image/webp")
MOST_BYTES = 20_000_000


def decoded(data: str, kind: str) -> bytes:
    """The bytes of a picture of this media type. InvalidInput if it is none that a model could be shown."""
    if kind not in KINDS:
        raise InvalidInput(f"pictures of the type {kind!r} cannot be sent; there is: {', '.join(KINDS)}")
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput(f"a picture is no valid base64: {error}") from error
    if len(raw) > MOST_BYTES:
        raise InvalidInput(f"a picture has more than {MOST_BYTES:,} bytes")
    return raw
