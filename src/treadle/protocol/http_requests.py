"""The bodies of HTTP requests, as Structs. Only shapes: the rules of the chat decide if it accepts a request. Query
parameters are in `http_queries`, answers in `http_answers`."""

from base64 import b64decode
from binascii import Error as NotBase64
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from treadle.errors import InvalidInput
from treadle.protocol.events import Delivery
from treadle.protocol.options import MAX_SECONDS, NUMBER_BOUNDS, PRESETS, ChatOptions, Preset
from treadle.protocol.permissions import RuleScope

Line = Annotated[str, Meta(max_length=2_000, pattern=r"^[^\x00-\x1f\x7f]*$")]  # one line of text, for lists
_Turns = Annotated[int, NUMBER_BOUNDS["max_turns"].as_meta()]
_Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]
_Labels = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")], ...],
                    Meta(max_length=50)]  # fmt: skip
_MediaType = Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
Seq = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all bodies. Unknown fields are refused, because the client expects an effect from them."""


class OptionalBody(Body, frozen=True):
    """A body that may be left out: then all is as it is by default."""


class Picture(Body, frozen=True):
    """An image, as base64."""

    media_type: _MediaType
    data: str

    def decode_data(self) -> bytes:
        try:
            return b64decode(self.data, validate=True)
        except (NotBase64, ValueError) as error:
            raise InvalidInput(f"An image is no base64: {error}.") from error


_NAMED = (
    "model", "root", "mode", "system_prompt", "dynamic_tools", "labels", "interactive", "max_turns", "on_limit",
    "on_guard", "run_budget", "chat_budget", "tools", "action_deadline_s", "on_deadline", "completion", "rung",
    "max_continuations", "continue_text", "summarize", "temperature", "max_tokens", "context_window",
    "reasoning_effort", "compaction_effort",
    "auto_approve_commands", "auto_approve_sensitive_edits", "sensitive", "rules", "sandbox", "network",
    "strict_paths", "command_view", "git_branch", "checks", "verify", "diagnose",
)  # fmt: skip
"""The options that requests may name. The others are of the machine on which a chat was made."""


def _define_options() -> type[msgspec.Struct]:
    """The options, each optional. Some types are narrower than in a log."""
    kinds = get_type_hints(ChatOptions, include_extras=True)
    for name, bounds in NUMBER_BOUNDS.items():
        number, *none = get_args(kinds[name]) or (kinds[name],)
        kinds[name] = Union[Annotated[number, bounds.as_meta()], *none]
    kinds |= {"model": Line, "root": Line, "labels": _Labels}
    fields = [(name, kinds[name] | UnsetType, UNSET) for name in _NAMED]
    return msgspec.defstruct("Options", fields, bases=(Body,), module=__name__, frozen=True, kw_only=True)


if TYPE_CHECKING:
    _Options = Body
else:
    _Options = _define_options()


class OptionChanges(_Options, frozen=True, kw_only=True):
    """The options of a chat; an option that is left out stays as it is."""

    preset: Preset | UnsetType = UNSET  # options under one name; those that are named beside it win

    def to_changes(self) -> dict[str, Any]:
        """The options that were named, as plain data."""
        fields = {name: getattr(self, name) for name in ChatOptions.__struct_fields__ if hasattr(self, name)}
        given_options = {name: msgspec.to_builtins(value) for name, value in fields.items() if value is not UNSET}
        return {**(PRESETS[self.preset] if self.preset is not UNSET else {}), **given_options}


class CreateChat(OptionChanges, frozen=True, kw_only=True):
    """A new chat; with `content` its first run begins at once (A-01)."""

    content: str = ""
    images: tuple[Picture, ...] = ()
    expand: bool = False  # as in a message
    title: Line = ""
    world: Line | UnsetType = UNSET  # a world of the root in which the chat works; `chat`: one of its own (W-11)


class PatchChat(OptionChanges, frozen=True, kw_only=True):
    title: Line | UnsetType = UNSET
    archived: bool | UnsetType = UNSET


class StartRace(OptionChanges, frozen=True, kw_only=True):
    """Several attempts at one task at once, each in a world of its own; the best is committed (L-22)."""

    task: str
    attempts: Annotated[int, Meta(ge=0, le=16)] = 0  # how many; 0: one for each of `models`, or four
    models: Annotated[tuple[Line, ...], Meta(max_length=16)] = ()  # given out in turn; empty: `model` makes them all
    check: Line = ""  # a command that must succeed in the world of an attempt
    judge: Line = ""  # a model that chooses among those that passed
    all: bool = False  # True if every attempt runs to its end even after one has passed


class SendMessage(Body, frozen=True):
    content: str = ""
    delivery: Delivery = "queued"  # if the chat is busy: queue the message, or steer the run with it
    images: tuple[Picture, ...] = ()
    expand: bool = False
    """For what a person typed: `/name words` says the command of that name, or the prompt `server:prompt` of an MCP
    server, and what lies at `@server:uri` is attached, as far as the chat has them. The rest stays as it is."""


class EditMessage(Body, frozen=True):
    content: str


class ReplaceMessage(EditMessage, frozen=True):
    files: bool = False  # True if the files are restored to that point first (L-09)


class ToolResultBody(Body, frozen=True):
    tool_call_id: str
    output: Any = None
    is_error: bool = False


class ToolResults(Body, frozen=True):
    """One result for each open call of the client's tools (A-03)."""

    results: tuple[ToolResultBody, ...]


class RuleWish(Body, frozen=True):
    """Make one of the offered rules of the approval."""

    offer: Annotated[int, Meta(ge=0, le=100)]  # which of `offers`, from 0
    scope: RuleScope = "chat"
    expires_s: _Seconds = 0  # 0: never


class Decision(Body, frozen=True):
    """An answer to an approval, bound to what was shown (S-08)."""

    decision: Literal["allow", "deny"]
    hash: str
    feedback: str = ""
    arguments: dict[str, Any] | None = None  # other arguments in place of those that were shown
    rule: RuleWish | None = None


class AnswerBody(Body, frozen=True):
    answer: str


class SignInCode(Body, frozen=True):
    code: Annotated[str, Meta(max_length=40)]  # as the server's terminal shows it; case, spaces and dashes are ignored


class Passage(Body, frozen=True, kw_only=True):
    """Something to be shown."""

    kind: Literal["markdown", "code", "diff"]
    text: Annotated[str, Meta(max_length=2_000_000)]
    language: Annotated[str, Meta(max_length=4_096)] = ""  # of code and diffs: the name of a language, or of a file
    split: bool = False  # True if the two sides of a diff stand beside each other
    numbered: bool = False  # True if the lines of code have numbers


class Passages(Body, frozen=True):
    passages: Annotated[tuple[Passage, ...], Meta(max_length=500)]


class ForkChat(Body, frozen=True, kw_only=True):
    """Begin a new chat as a copy of this one."""

    seq: Annotated[int, Meta(ge=1, le=(1 << 53) - 1)]  # the last event that is copied
    model: Line = ""  # another model for the copy


class Extension(OptionalBody, frozen=True):
    turns: _Turns = 20


class Nothing(OptionalBody, frozen=True):
    """An empty object; the body may be left out."""


_Path = Annotated[str, Meta(min_length=1, max_length=4_096, pattern=r"^[^\x00]*$")]
_Hunks = Annotated[tuple[Annotated[int, Meta(ge=1, le=1_000_000)], ...], Meta(min_length=1)]
_Run = Annotated[int, Meta(ge=1, le=1_000_000_000)]


class ApplyText(Body, frozen=True, kw_only=True):
    """Write a fenced block of the last answer, or a text, to a file, apply a patch or run a command (L-18)."""

    path: _Path | None = None  # relative to the root; a patch has none
    block: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None  # of the last answer, from 1; None: the only one
    content: str | None = None  # a text, in place of a block
    patch: str | None = None
    """A unified diff, or what stands between `*** Begin Patch` and `*** End Patch`, in place of a file and a text: all
    of it is applied, or nothing."""
    command: str | None = None  # a command line to run in the project, in place of all that


class JobInput(Body, frozen=True, kw_only=True):
    """Write to the input of a background command."""

    text: Annotated[str, Meta(max_length=64_000)] = ""
    enter: bool = True  # True if a line end follows the text
    end: bool = False  # True if the input is closed after the text


class ChangeChoice(OptionalBody, frozen=True, kw_only=True):
    """Which changes of files are meant (W-03)."""

    run: _Run | Literal["last", "all"] = "last"  # last: the newest run with something left; a number: as `runs` counts
    since: Seq = 0  # in place of `run`: the changes recorded after this seq, such as the seq of one of your messages
    upto: Seq = 0  # and not after this one; 0: until now
    paths: tuple[_Path, ...] = ()  # only these files, and what lies below these folders; relative to the root
    hunks: dict[_Path, _Hunks] = {}  # by file: only these hunks, as `changes` counts them


class UndoFiles(ChangeChoice, frozen=True, kw_only=True):
    """Take changes of files back (W-02)."""

    merge: bool = False  # merge (three-way) with later changes by others, instead of leaving such files alone
    even_kept: bool = False
    preview: bool = False  # only tell what would be done


class KeepFiles(ChangeChoice, frozen=True, kw_only=True):
    """Accept changes of files: an undo leaves them alone from now on."""


class RedoFiles(OptionalBody, frozen=True, kw_only=True):
    """Take an undo back."""

    undo: Line = ""  # `restore` of the undo; empty: the last one
    merge: bool = False


class GoBack(Body, frozen=True, kw_only=True):
    """Go back to before an earlier message of yours (W-03)."""

    message: Seq
    conversation: bool = True
    files: bool = True
    merge: bool = False
