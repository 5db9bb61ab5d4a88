"""Marks for fields that hold hashes: what each refers to. Whoever keeps, moves, collects or checks what lies outside
the log goes by these marks (`protocol.references`); a test holds every field against them."""

from typing import Annotated, Any, Literal

import msgspec

Target = Literal["blob", "manifest", "image", "plan", "file", "fingerprint"]


class Refers(msgspec.Struct, frozen=True):
    """`to` names what lies under the hash."""

    to: Target


class Perhaps(msgspec.Struct, frozen=True):
    """What a value refers to may be kept, and is not missed if it is not."""


BlobHash = Annotated[str, Refers("blob")]
"""Bytes in the blob store, without which the event is not whole."""
ManifestHash = Annotated[str, Refers("manifest")]
"""A blob, too: a JSON array of `FileChange`, which refer to more."""
ImageHash = Annotated[str, Refers("image")]
"""Bytes of a file of the project, kept so that changes can be undone."""
Plan = Annotated[dict[str, Any] | None, Refers("plan")]
"""What a tool needs to find out whether it took effect, in its own shape; any hash in it may be that of an image."""
FileHash = Annotated[str, Refers("file")]
"""Bytes that a file of the project had; they need be kept nowhere."""
Fingerprint = Annotated[str, Refers("fingerprint")]
"""Tells whether something is still the same; nothing lies under it."""
