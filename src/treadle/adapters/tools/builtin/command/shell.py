"""The shell of a chat: each command runs in a process of its own, yet the working directory and the exported variables
carry over (T-14). The shell writes both to a descriptor when it ends; a command that was killed, or that became another
program, leaves them as they were."""

import re
import resource
import shlex
import shutil
from collections.abc import Mapping, Sequence
from functools import cache

import msgspec

from treadle.adapters.tools.builtin.environment import is_secret, secrets_of
from treadle.chat.carried_variables import starts_programs
from treadle.errors import OutsideRoot, RootChanged, ToolError
from treadle.ports.workspace import Workspace, inert
from treadle.protocol.content import Shell
from treadle.protocol.files import decode_path, encode_path

CAP = 32_000  # How many bytes of exported variables are carried over
STATE_CAP = 1 << 20  # How many bytes of what the shell writes are kept. Of more, only the working directory is used.
_NOT_CARRIED = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "TERM", "TREADLE_CALL", "LINES", "COLUMNS"})
_PASSING = re.compile(r"/treadle-\d+-\d+-[0-9a-f]{12}(/home)?\Z")
"""Folders that a sandbox makes for one command: they are HOME and TMPDIR to that one only."""
_NO_TEXT = re.compile("[\ud800-\udfff]")  # bytes that are no UTF-8, in a name or a value
_END = b"end"
_LEFT = b"left="
"""Before the name of a process that the command left running and that was stopped, behind the end of the state."""
_UNRECORDED_WHY = "a secret by its name or value, or too long"
_TOO_MUCH = "[the exported variables are too long to carry over; later commands have those that this one began with]"
_STARTING_WHY = "programs would run or obey something else because of it; set it in each command that needs it"

# The text before the command, on its first line, so that line numbers in messages are right. No eval, or the output of
# `set -x` would differ. A high descriptor, which no script uses by chance; dash knows only those of one digit.
_BASH_FD = 199
_LOWEST_FD = 10
_BASH = (
    r"__treadle_left() { local IFS=$'\n' __name __value; { printf 'cwd='; pwd -P; printf '\0'; "
    # One subshell for both lists: each costs a millisecond, and one that is still there counts as left running.
    r"""for __name in $(compgen -e; declare -Fx); do """
    r"""[[ $__name == 'declare '* ]] && { printf 'BASH_FUNC_%s%%%%=\0' "${__name##* }"; continue; }; """
    r"""__value=${!__name-}; if ((${#__value} > {cap})); then printf '%s\0' "$__name"; """
    r"""else printf '%s=%s\0' "$__name" "$__value"; fi; done; """
    r"""printf 'end\0'; } >&{fd} || :; }; """
    r"trap '{ set +eux; __treadle_left; } 2>/dev/null' EXIT; "
)
_SH_FD = 7
_SH = (
    r"""trap '{ set +eux; printf "cwd="; pwd -P; printf "\0"; export -p; printf "\0end\0"; } 2>/dev/null >&7' EXIT; """
)


class ShellEnd(msgspec.Struct, frozen=True):
    """The state that a command left: the shell from now on (None: as before), and notes about it."""

    shell: Shell | None = None
    notes: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()  # Names of processes that the command left running and that were stopped


def shell_argv(command: str) -> tuple[tuple[str, ...], int]:
    """The command line that runs a command so that its shell tells how it ends, and the descriptor it tells it on."""
    bash, sh = _shells()
    if not bash:
        return (sh, "-c", _SH + command, "sh"), _SH_FD
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[
        0
    ]  # a number as high as this process, and so the command, may have
    number = _BASH_FD if most == resource.RLIM_INFINITY else max(_LOWEST_FD, min(_BASH_FD, most - 1))
    prelude = _BASH.replace("{fd}", str(number)).replace("{cap}", str(CAP))
    return (bash, "-c", prelude + command, "bash"), number


@cache
def _shells() -> tuple[str, str]:
    return shutil.which("bash") or "", shutil.which("sh") or "/bin/sh"


def start_directory(workspace: Workspace, folder: str, last: str) -> tuple[str, str]:
    """Where to run, the wanted folder or that of the last command, and what to say about it."""
    if folder:
        try:
            return workspace.directory(folder), ""
        except OutsideRoot:
            text = f"[cwd {inert(folder)} is outside the project root; the command ran in the root instead]"
            return workspace.path, text
    last = decode_path(last)
    try:
        return workspace.directory(last), ""
    except RootChanged:
        raise
    except ToolError:
        return workspace.path, f"[the shell's directory {inert(last)} is gone; the command ran in the root instead]"


def environment(base: Mapping[str, str], shell: Shell) -> dict[str, str]:
    """A fresh environment with the shell's changes. Earlier logs may hold variables that no longer carry over."""
    carried = {name: value for name, value in shell.exports.items() if not starts_programs(name, value)}
    return {name: value for name, value in {**base, **carried}.items() if name not in shell.unset}


def read_end(
    data: bytes, previous: Shell, base: Mapping[str, str], workspace: Workspace, user: Mapping[str, str]
) -> ShellEnd:
    """Parse the shell's report, check it and compare it with `base`, the environment of a fresh command. `user` is the
    user's own environment, whose secrets are recorded by no name."""
    report = _parse(data)
    if report.cwd is None:
        return ShellEnd(stopped=report.stopped)
    cwd = "."
    notes: tuple[str, ...] = ("[the shell's directory is gone; the next command starts in the root]",)
    if report.cwd:
        try:
            cwd, notes = encode_path(workspace.relative(workspace.directory(report.cwd))), ()
        except OutsideRoot:
            place = f"in {inert(report.cwd)}, outside the project root"
            notes = (f"[the shell was {place}; the next command starts in the root]",)
        except ToolError:
            notes = (f"[the shell's directory {inert(report.cwd)} is gone; the next command starts in the root]",)
    if report.variables is None:
        shell = Shell(cwd, previous.exports, previous.unset)
        notes = (*notes, _TOO_MUCH)
    else:
        exports, unset, more = _variables(report, report.variables, previous, base, user)
        shell = Shell(cwd, exports, unset)
        notes = (*notes, *more)
    return ShellEnd(None if shell == previous else shell, notes, report.stopped)


def _variables(
    report: "_Report", variables: Mapping[str, str], previous: Shell, base: Mapping[str, str], user: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]:
    """The exported variables to carry over, the names that were unset, and notes on what is left out."""
    carried = {name for name, value in variables.items() if name not in _NOT_CARRIED and not _PASSING.search(value)}
    changed = {name: variables[name] for name in variables if name in carried and base.get(name) != variables[name]}
    starting = [name for name, value in changed.items() if starts_programs(name, value)]
    recorded = {name: value for name, value in changed.items() if name not in starting}
    exports, left_out = _recordable(recorded, previous, secrets_of(user))
    left_out += [name for name in report.too_long if len(base.get(name, "")) <= CAP]
    present = variables.keys() | report.too_long
    unset = sorted(
        name for name in base if name not in present and name not in _NOT_CARRIED and not _NO_TEXT.search(name)
    )
    notes = _not_carried(left_out, _UNRECORDED_WHY) + _not_carried(starting, _STARTING_WHY)
    return exports, tuple(unset), notes


class _Report(msgspec.Struct, frozen=True):
    """The report that the shell, and the sandbox around it, wrote to the descriptor."""

    cwd: str | None = None  # None: the shell did not get to its end, or something else wrote there
    variables: dict[str, str] | None = None  # None: more than is kept
    too_long: frozenset[str] = frozenset()  # Exported variables whose values are longer than what is carried over
    stopped: tuple[str, ...] = ()


def stopped_names(data: bytes) -> tuple[str, ...]:
    return _parse(data).stopped


def _parse(data: bytes) -> _Report:
    fields = data.split(b"\0")
    last = fields.pop()
    stopped: list[str] = []
    while not last and fields and fields[-1].startswith(_LEFT):
        stopped.insert(0, fields.pop().removeprefix(_LEFT).decode(errors="surrogateescape"))
    names = tuple(stopped)
    if not fields or not fields[0].startswith(b"cwd="):
        return _Report(stopped=names)
    path = fields[0][4:].removesuffix(b"\n").decode(errors="surrogateescape")
    if last or fields[-1] != _END:
        return _Report(path, stopped=names) if len(data) >= STATE_CAP else _Report(stopped=names)
    texts = [field.decode(errors="surrogateescape") for field in fields[1:-1]]
    if not _shells()[0]:
        try:
            texts = shlex.split("".join(texts))
        except ValueError:
            return _Report(stopped=names)
        too_long = frozenset[str]()
    else:
        too_long = frozenset(text for text in texts if "=" not in text)
    variables = dict(text.partition("=")[::2] for text in texts if "=" in text)
    return _Report(path, variables, too_long, names)


def _recordable(
    changed_variables: Mapping[str, str], previous: Shell, secrets: tuple[str, ...]
) -> tuple[dict[str, str], list[str]]:
    """The variables without secrets (S-11) and what is no text, within the cap; and the names of those left out."""
    kept_variables: dict[str, str] = {}
    left_out: list[str] = []
    room = CAP
    for name, value in sorted(changed_variables.items(), key=lambda item: (item[0] not in previous.exports, item[0])):
        size = len(name) + len(value.encode(errors="surrogateescape"))
        secret = is_secret(name, value) or any(each in value for each in secrets)
        if secret or size > room or _NO_TEXT.search(name + value):
            left_out.append(name)
        else:
            kept_variables[name] = value
            room -= size
    return dict(sorted(kept_variables.items())), left_out


def _not_carried(names: Sequence[str], reason: str) -> tuple[str, ...]:
    if not names:
        return ()
    name_list = ", ".join(inert(name) for name in sorted(names)[:10]) + (" …" if len(names) > 10 else "")
    return (f"[not carried over to later commands: {name_list} ({reason})]",)
