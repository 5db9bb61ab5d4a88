"""The elements of a conversation, in no provider's format: parts, calls, results, their references and effects, and the
entries of a transcript. Frozen data; knows nothing of events or I/O."""

from typing import Annotated, Any, Literal

import msgspec

from treadle.base.types import CallKey
from treadle.errors import InvalidInput

# -- markers for fields that hold hashes: the kind of object that each refers to. All code that stores, moves, collects
# or checks objects outside of the log reads these markers (`protocol.references`); a test checks all fields for them.

Target = Literal["blob", "manifest", "image", "plan", "file", "fingerprint"]


class Refers(msgspec.Struct, frozen=True):
    """`to` names what lies under the hash."""

    to: Target


class Perhaps(msgspec.Struct, frozen=True):
    """The object that a value refers to is optional: it may be stored, and its absence is not an error."""


BlobHash = Annotated[str, Refers("blob")]  # bytes in the blob store, without which the event is not whole
ManifestHash = Annotated[str, Refers("manifest")]  # a blob, too: a JSON array of `FileChange`, which refer to more
ImageHash = Annotated[str, Refers("image")]  # bytes of a file of the project, kept so that changes can be undone
Plan = Annotated[dict[str, Any] | None, Refers("plan")]
"""The data by which a tool finds out later if it took effect, in the tool's own format; any hash in it may be that of
an image."""
FileHash = Annotated[str, Refers("file")]  # bytes that a file of the project had; they need be kept nowhere
Fingerprint = Annotated[str, Refers("fingerprint")]  # tells whether something is still the same; nothing lies under it


# -- values -------------------------------------------------------------------------------------------------------


class Value(msgspec.Struct, frozen=True, omit_defaults=True):
    """The base of all recorded values: frozen, and defaults are not written."""


class Image(Value, tag="image", frozen=True):
    """A picture, by the hash of its bytes in the blob store."""

    media_type: str
    blob: BlobHash


class Thinking(Value, frozen=True):
    """One block of reasoning. `opaque` is the provider's own signed or encrypted JSON, kept byte-exact (M-10)."""

    text: str = ""
    opaque: str = ""
    model: str = ""
    """The `provider:name` that made it; it is returned to no other."""


class ToolRequest(Value, frozen=True):
    """One call as the model wrote it. `arguments` is its exact text, which may be no valid JSON at all."""

    call: CallKey
    name: str
    arguments: str = "{}"
    id: str = ""
    """The provider's id. It may repeat across turns; `call` does not."""
    repaired: bool = False


class ToolResult(Value, frozen=True):
    """The one result of one call, as the model sees it."""

    call: CallKey
    text: str
    success: bool = True


class Usage(Value, frozen=True):
    """Tokens and cost of one model call. `estimated` when the provider reported nothing."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    usd: float = 0.0
    estimated: bool = False

    @property
    def tokens(self) -> int:
        return self.input + self.output

    def __add__(self, other: "Usage") -> "Usage":
        tokens = self.input + other.input, self.output + other.output, self.cached + other.cached
        reasoning, usd = self.reasoning + other.reasoning, self.usd + other.usd
        return Usage(*tokens, reasoning, usd, self.estimated or other.estimated)


class UserEntry(Value, tag="user", frozen=True):
    """Something said to the model: by a person, or by Treadle in the user's place."""

    text: str
    seq: int = 0
    source: str = "person"
    images: tuple[Image, ...] = ()


class AssistantEntry(Value, tag="assistant", frozen=True):
    """The model's answer in one turn."""

    turn: int
    text: str = ""
    thinking: tuple[Thinking, ...] = ()
    calls: tuple[ToolRequest, ...] = ()


class ResultsEntry(Value, tag="results", frozen=True):
    """All results of one turn, in the order of its calls (L-04)."""

    turn: int
    results: tuple[ToolResult, ...]


Entry = UserEntry | AssistantEntry | ResultsEntry


class PlanStep(Value, frozen=True):
    """One step of the model's plan; status is pending, in_progress or done."""

    text: str
    status: str = "pending"


JsonSchema = dict[str, Any]


def get_json_type(value: object) -> str:
    """The type of a JSON value, as schemas name it."""
    names = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", dict: "object"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), "array")


class Failure(Value, frozen=True):
    """Why a run ended in error, as its `session.error` said."""

    error_class: str = msgspec.field(name="class")
    message: str = ""


# -- what one call leaves behind for later ones: recorded with its result, so that it survives restarts --------------


class KnownFile(Value, frozen=True):
    """A file as the model knows it: the SHA-256 of what it read or wrote (T-13); empty: it knows that there is none."""

    path: str
    digest: FileHash


class Shell(Value, frozen=True):
    """The chat's shell between commands (T-14)."""

    cwd: str = "."
    """Relative to the root, in the form of `treadle.protocol.files.encode_path`."""
    exports: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables that differ from the environment a fresh command has."""
    unset: tuple[str, ...] = ()


PICTURE_KINDS = ("image/png", "image/jpeg", "image/gif", "image/webp")  # the media types of pictures that models take
MAX_IMAGE_BYTES = 20_000_000


def decode_picture(data: str, kind: str) -> bytes:
    """The bytes of a picture in base64. InvalidInput if it is none that a model could be shown."""
    from base64 import b64decode

    if kind not in PICTURE_KINDS:
        raise InvalidInput(f"pictures of the type {kind!r} cannot be sent; there is: {', '.join(PICTURE_KINDS)}")
    try:
        raw = b64decode(data, validate=True)
    except ValueError as error:
        raise InvalidInput(f"a picture is no valid base64: {error}") from error
    if len(raw) > MAX_IMAGE_BYTES:
        raise InvalidInput(f"a picture has more than {MAX_IMAGE_BYTES:,} bytes")
    return raw
