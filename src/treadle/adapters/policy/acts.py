"""The effects of a call that matter for permission: the commands it would run, the files it would change; and the call
as shown to a person. The tool's spec says what it does and which argument is its command; the policy decides elsewhere.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from treadle.adapters.policy.sensitive_files import Sensitive, find, find_new, names
from treadle.adapters.policy.shell.model import Finding, Part, worst
from treadle.base.inert import printable
from treadle.chat.carried_variables import unknown_variables
from treadle.ports.toolset import Invocation
from treadle.protocol.files import decode_path
from treadle.protocol.tools import ToolSpec

Kind = Literal["read", "edit", "command", "job", "other", "free"]
"""`free` changes and executes nothing, though it is not a read either. `job` may commit what a background command has
changed, and is then judged as that command."""

UNKNOWN = "…"
"""How the shell analysis writes what cannot be known."""

_HEADERS = re.compile(
    r"^[ \t]*(?:\*\*\*[ ]?(?:(?:Add|Create|Update|Modify|Delete|Remove)[ ]File|(?:Move|Rename)[ ]to):"
    r"|rename[ ](?:from|to)[ ]|---[ ]|\+\+\+[ ])(?P<path>.*)$",
    re.MULTILINE | re.IGNORECASE,
)
_CHANGES_ALL = frozenset({"tee", "touch", "truncate", "mv", "rm", "unlink", "shred", "patch", "sponge"})
_CHANGES_LAST = frozenset({"cp", "install", "ln", "rsync", "scp"})
_NAMED = 5
_MOVES = frozenset(("cd", "pushd"))
_MOST_FOLDERS = 16
_SHOWN_CHARS = 20_000
_MEDIUM = "it goes to a program that is running, which may do anything with it"


class Act(msgspec.Struct, frozen=True):
    kind: Kind
    files: tuple[str, ...] = ()
    """The paths it would change, as written; for a command only those visible in its text."""
    finding: Finding = Finding("none")
    parts: tuple[Part, ...] = ()
    folder: str = "."
    """Where a command starts: relative to the root, or absolute."""
    hidden_target: bool = False
    """It writes a file whose name cannot be known beforehand."""
    variables: Mapping[str, str | None] = {}
    """Variables that earlier commands set (None: unset) and that may change the meaning of its words (T-14, S-18)."""

    def sensitive(self, root: str, user_patterns: Mapping[str, bool]) -> tuple[Sensitive, ...]:
        sensitive = [find(root, file, user_patterns) for file in self.files]
        if self.kind == "command":
            sensitive += [find_new(root, file, user_patterns) for file in self.files]
        return tuple(dict.fromkeys(each for each in sensitive if each is not None))

    def names(self, root: str) -> Iterator[tuple[str, ...]]:
        """Of each file every name that it has."""
        return (names(root, file) for file in self.files)


def act_of(spec: ToolSpec, invocation: Invocation) -> Act:
    arguments = invocation.arguments
    if (command := spec.command_in(arguments)) is not None:
        return command_act(command, invocation)
    if spec.job_argument:
        return Act("job")
    if spec.input_argument:
        return _input(str(arguments.get(spec.input_argument) or ""))
    files = tuple(arguments[key] for key in ("path", "file_path") if isinstance(arguments.get(key), str))
    if spec.effect == "edit":
        texts = [arguments.get(key) for key in ("patch", "input")]
        headers = [match["path"] for text in texts if isinstance(text, str) for match in _HEADERS.finditer(text)]
        paths = (*files, *(path for header in headers for path in _patch_paths(header)))
        return Act("edit", tuple(dict.fromkeys(paths)), hidden_target=not paths)
    return Act("read" if spec.read_only else "free" if spec.effect == "none" else "other", files)


def command_act(command: str, invocation: Invocation) -> Act:
    """Of a command, or of a background command whose changes are committed by this call."""
    from treadle.adapters.policy.command_severity import classify, parts  # late: many a chat runs no command

    folder = start_folder(invocation)
    variables = {} if invocation.arguments.get("fresh") else unknown_variables(invocation.shell)
    command_parts, finding = parts(command), classify(command)
    if variables:
        command_parts = tuple(
            replace(part, unknown=True, assigns=(*part.assigns, *variables)) for part in command_parts
        )
        names = ", ".join([*variables][:_NAMED]) + (" …" if len(variables) > _NAMED else "")
        reason = f"earlier commands changed {names}, so what its words run is unknown"
        severity = worst((finding.severity, "medium"))
        finding = replace(finding, severity=severity, reasons=(*finding.reasons, reason))
    targets = list(_placed_targets(command_parts, folder))
    files = tuple(dict.fromkeys(target for target in targets if UNKNOWN not in target))
    has_unknown = any(UNKNOWN in target for target in targets)
    return Act("command", files, finding, command_parts, folder, has_unknown, variables)


def _placed_targets(parts: Iterable[Part], start: str) -> Iterator[str]:
    """The files that the parts write. A relative name is placed in every folder that the command may have gone to by
    then: nothing here tells if `cd` succeeds, or counts only in a subshell."""
    folders = [start]
    for part in parts:
        if os.path.basename(part.program) in _MOVES:
            words = [word for word in part.words[1:] if not word.startswith("-")] or [UNKNOWN]
            goals = [os.path.join(folder, words[0]) for folder in folders]
            folders = list(dict.fromkeys([*folders, *goals])) if len(folders) < _MOST_FOLDERS else [*folders, UNKNOWN]
        yield from (os.path.join(folder, target) for target in _targets(part) for folder in folders)


def _targets(part: Part) -> Iterator[str]:
    """The files that a simple command plainly writes: its redirections, and what well-known programs change."""
    yield from (target for target in part.writes if not target.startswith("/dev/"))
    name = os.path.basename(part.program)
    plain = [word for word in part.words[1:] if not word.startswith("-")]
    if name in _CHANGES_ALL:
        yield from plain
    elif name in _CHANGES_LAST and plain:
        yield plain[-1]
        yield from (os.path.join(plain[-1], os.path.basename(word)) for word in plain[:-1] if UNKNOWN not in word)
    elif name == "sed" and any(re.match(r"-[a-zA-Z]*i|--in-place", word) for word in part.words[1:]):
        yield from plain[1:] or plain
    elif name == "dd":
        yield from (word.removeprefix("of=") for word in plain if word.startswith("of="))


def _input(text: str) -> Act:
    from treadle.adapters.policy.command_severity import classify

    finding = classify(text) if text.strip() else Finding("none")
    if finding.severity in ("none", "medium"):
        finding = Finding("medium", (_MEDIUM, *finding.reasons))
    return Act("command", finding=finding)


def _patch_paths(text: str) -> Iterator[str]:
    """A name in the header of a patch, however it is decorated; git's a/ and b/ may be folders as well."""
    path = text.partition("\t")[0].strip().strip("\"'`")
    if not path or path == "/dev/null":
        return
    yield path
    if path.startswith(("a/", "b/")):
        yield path[2:]


def start_folder(invocation: Invocation) -> str:
    """Where a command starts, relative to the root."""
    folder = invocation.arguments.get("cwd")
    if isinstance(folder, str) and folder:
        return folder
    return "." if invocation.arguments.get("fresh") else decode_path(invocation.shell.cwd)


# -- the call as shown to a person, complete and inert: an approval is bound to this text (S-08, S-12) ----------------


def render_call(invocation: Invocation, act: Act) -> str:
    """The name, then each argument, long texts as indented blocks; of a command also the folder and the variables that
    earlier commands left it."""
    inherited = [
        ("set by an earlier command", f"{name} is unset" if value is None else f"{name}={value}")
        for name, value in act.variables.items()
    ]
    if act.folder != "." and not invocation.arguments.get("cwd"):
        inherited.insert(0, ("in the folder", act.folder))
    lines = [invocation.name]
    for name, value in (*invocation.arguments.items(), *inherited):
        text = printable(value if isinstance(value, str) else msgspec.json.encode(value).decode())
        if len(text) > _SHOWN_CHARS:  # by the hash an approval is bound to all of it
            digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
            rest = f"[{len(text) - _SHOWN_CHARS:,} more characters; SHA-256 of all: {digest}]"
            text = f"{text[:_SHOWN_CHARS]}\n{rest}"
        if "\n" in text:
            lines += [f"  {printable(name)}:", *(f"    {line}" for line in text.split("\n"))]
        else:
            lines.append(f"  {printable(name)}: {text}")
    return "\n".join(lines)
