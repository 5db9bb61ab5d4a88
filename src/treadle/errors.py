"""Every error Treadle raises, in one tree. Each class has a stable code that front ends may rely on.

TreadleError
├── InvalidInput            invalid_input      bad arguments from a caller; nothing was changed
│   └── ConfigError         config             a setting is wrong or missing
├── Refused                 (see codes)        a command that the chat's state does not allow; nothing was changed
├── NotFound                not_found          no such chat, call, action or message
├── JobElsewhere            job_elsewhere      a background command runs on another machine, or in another home
├── StoreError              store              the log could not be read or written
│   ├── StoreBusy           store              the store is busy or unreachable; the same may work a moment later
│   ├── LeaseLost           lease_lost         a newer epoch owns the chat; this worker must write nothing more
│   ├── HeadMoved           head_moved         the log has grown meanwhile; fold the new events and try again
│   ├── ChatBusy            chat_busy          another live worker holds the chat's lease
│   ├── ChatExists          chat_exists        the id is taken
│   ├── AlreadyAnswered     already_answered   the request was answered before; contains that answer
│   ├── Unfinished          unfinished         changes of files are begun; the chat's next worker completes them
│   ├── NewerSchema         newer_schema       the file was written by a newer Treadle
│   └── Damaged             damaged            a record cannot be read
├── ModelError              model              the provider failed; `kind` says how
│   └── ScriptError         script             a scripted or recorded model was used off its script
├── RunFailed               run_failed         a run ended in an error; `error_class` is that of its session.error
├── ApiError                api                a server of Treadle refused a request, or could not be reached
├── FetchError              fetch              a model's files could not be downloaded; a partial download is kept
└── ToolError               tool               a tool failed; its text goes to the model
    ├── OutsideRoot         outside_root       a path leads out of the project root
    ├── RootChanged         root_changed       another folder stands where the chat's project root was
    ├── SandboxError        sandbox            a command cannot be confined as it must be, so it does not run
    ├── TrialLost           trial_lost         a command with network was tried by a lost worker; not repeated
    ├── Conflict            conflict           a file has changed since the change to it was prepared
    ├── WorldBusy           world_busy         a world is in use, or other worlds are based on it: it is not dropped
    └── EditError           edit               the text to replace was not found, or not once"""

from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar, Literal

ModelErrorKind = Literal[
    "auth",
    "quota",
    "rate_limit",
    "context_limit",
    "bad_request",
    "overloaded",
    "network",
    "cut_stream",
    "silence",
    "answer_limit",
]

RefusalCode = Literal[
    "busy",
    "awaiting_action",
    "not_awaiting_action",
    "not_running",
    "archived",
    "queue_full",
    "results_mismatch",
    "no_such_action",
    "no_such_message",
    "no_such_queued",
    "no_such_block",
    "hash_mismatch",
    "empty",
    "unreadable",
]

PROVIDER_DOWN: tuple[ModelErrorKind, ...] = ("overloaded", "network")
"""The kinds of a provider that does not work at all."""

MODEL_ERRORS: dict[ModelErrorKind, str] = {
    "auth": "the key is missing or was refused",
    "quota": "the account has nothing left to spend",
    "rate_limit": "too many requests; asked again after a wait",
    "context_limit": "the request is too long; compacted once and asked again",
    "bad_request": "the provider does not take the request; asking again cannot help",
    "overloaded": "the provider has an internal error; asked again after a wait",
    "network": "the provider could not be reached; asked again after a wait",
    "cut_stream": "the answer stopped before its end; asked again after a wait",
    "silence": "nothing came for too long; asked again after a wait",
    "answer_limit": "the answer broke a limit on its size, its calls or its time; it is not asked for again",
}
"""The meaning of each kind of failure, for people and for the reference."""

REFUSALS: dict[RefusalCode, str] = {
    "busy": "the chat is at work; interrupt it, or wait until it is idle",
    "awaiting_action": "the chat waits for someone; answer, or interrupt it",
    "not_awaiting_action": "the chat waits for no tool results",
    "not_running": "there is no run to stop or to extend",
    "archived": "the chat is archived; unarchive it first",
    "queue_full": "20 messages are queued already; delete one, or wait",
    "results_mismatch": "the results do not match the open calls exactly",
    "no_such_action": "no such approval or question is open; it may have been answered already",
    "no_such_message": "no message of a person stands at that place of the conversation",
    "no_such_queued": "no such message is queued; it may have been used already",
    "no_such_block": "the last answer has no such fenced block",
    "hash_mismatch": "the approval does not match the request",
    "empty": "there is nothing in it, or nothing to do it with",
    "unreadable": "the chat's first record cannot be read, so its options are unknown; it can be read and exported",
}
"""The meaning of each refusal. Every one leaves the chat exactly as it was."""


class TreadleError(Exception):
    """The root of the tree; `code` is stable, the text is a sentence for people."""

    code: ClassVar[str] = "error"


class InvalidInput(TreadleError):
    code = "invalid_input"


class ConfigError(InvalidInput):
    code = "config"


class Refused(TreadleError):
    """A command that does not fit the chat's state. `reason` is the stable code of the refusal."""

    code = "refused"

    def __init__(self, reason: RefusalCode, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class NotFound(TreadleError):
    code = "not_found"


class JobElsewhere(TreadleError):
    code = "job_elsewhere"


class StoreError(TreadleError):
    code = "store"


class StoreBusy(StoreError):
    """The store is busy. If the connection was lost in the middle, the write may have happened or not."""


class LeaseLost(StoreError):
    code = "lease_lost"


class HeadMoved(StoreError):
    code = "head_moved"


class ChatBusy(StoreError):
    code = "chat_busy"


class ChatExists(StoreError):
    code = "chat_exists"


class AlreadyAnswered(StoreError):
    """`status` and `body` are the first answer, `request` the fingerprint of what it answered (A-04)."""

    code = "already_answered"

    def __init__(self, message: str, *, request: str, status: int, body: bytes) -> None:
        super().__init__(message)
        self.request = request
        self.status = status
        self.body = body


class Unfinished(StoreError):
    code = "unfinished"


class NewerSchema(StoreError):
    code = "newer_schema"


class Damaged(StoreError):
    code = "damaged"


class ModelError(TreadleError):
    """A provider's failure. `retry_after` is what the provider asked for, in seconds; `param` the part of the request
    that it blames, if it names one; `unreachable`: no server listens at the address."""

    code = "model"

    def __init__(
        self,
        kind: ModelErrorKind,
        message: str,
        *,
        status: int = 0,
        retry_after: float | None = None,
        param: str = "",
        unreachable: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind: ModelErrorKind = kind
        self.unreachable = unreachable
        self.status = status
        self.retry_after = retry_after
        self.param = param


class ScriptError(ModelError):
    """Asking again cannot help, so its kind is that of a bad request."""

    code = "script"

    def __init__(self, message: str) -> None:
        super().__init__("bad_request", message)


class RunFailed(TreadleError):
    """Raised by `ask()` instead of an answer. The chat stays usable."""

    code = "run_failed"

    def __init__(self, error_class: str, message: str) -> None:
        super().__init__(message)
        self.error_class = error_class


class ApiError(TreadleError):
    """Raised by a client of the HTTP API instead of an answer. `status`: the HTTP status, 0 without a response;
    `reason`: the stable code of the answer."""

    code = "api"

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class FetchError(TreadleError):
    code = "fetch"


class ToolError(TreadleError):
    """A failure whose text is the result the model sees; word it so that the model can mend it."""

    code = "tool"


class OutsideRoot(ToolError):
    code = "outside_root"


class RootChanged(ToolError):
    """The path of a chat's root leads to another folder than the one that the chat was bound to (S-01)."""

    code = "root_changed"


class SandboxError(ToolError):
    code = "sandbox"


class TrialLost(ToolError):
    """A command's effects over the network are unknown. Nothing was committed, and it is not repeated (D-02)."""

    code = "trial_lost"


class Conflict(ToolError):
    """`seen` are files whose present content the text shows, with their SHA-256: from now on the model knows them."""

    code = "conflict"

    def __init__(self, message: str, seen_hashes: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.seen = dict(seen_hashes or {})


class WorldBusy(ToolError):
    code = "world_busy"


class EditError(ToolError):
    code = "edit"


# -- suggestions for misspelt names


def suggest_name(name: str, known_names: Iterable[str], prefix: str = "") -> str:
    """The near name as the end of a sentence; empty if none is near. All known names have the prefix."""
    from difflib import get_close_matches

    close_matches = get_close_matches(name.removeprefix(prefix), [each.removeprefix(prefix) for each in known_names], 1)
    return f"; did you mean {prefix + close_matches[0]!r}?" if close_matches else ""


def describe_unknown_names(kind: str, names: Iterable[str], known_names: Collection[str]) -> str:
    """A sentence about those that are not known, with the near ones; empty if all are."""
    unknown = sorted(set(names) - set(known_names))
    return " ".join(f"There is no {kind} {name!r}{suggest_name(name, known_names) or '.'}" for name in unknown)
