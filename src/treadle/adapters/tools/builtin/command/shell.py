"""The shell of a chat: each command runs in a process of its own, yet folder and exported variables carry over (T-14):
the shell writes both to a descriptor when it ends. And the environment of a command, without variables that look like
secrets by name or value, or contain one (M-13, T-05, S-11)."""

import re
import resource
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, lru_cache

import msgspec

from treadle.chat.carried_variables import can_start_programs
from treadle.errors import OutsideRoot, RootChanged, ToolError
from treadle.ports.workspace import Workspace, escape_name
from treadle.protocol.content import Shell
from treadle.protocol.files import decode_path, encode_path
from treadle.protocol.permissions import SECRET_NAME

_SECRET_VALUE = re.compile(
    r"^[a-z][a-z0-9+.-]*://[^/@\s]*:[^/@\s]+@"  # a URL with a password in it
    r"|^(sk-|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|AKIA|AIza|hf_)[A-Za-z0-9_-]{8}",
    re.I,
)
_QUIET = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""For a terminal without a person: no colours, no pager, no question."""
_LEAST = 12  # Shorter values of secrets are not looked for in others: they may be any word

_NAMES = """
HOME USER LOGNAME USERNAME SHELL PATH PWD OLDPWD SHLVL HOSTNAME TMPDIR TEMP TMP MANPATH INFOPATH EDITOR VISUAL
XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME
LANG LANGUAGE TZ TERM COLORTERM NO_COLOR FORCE_COLOR COLUMNS LINES LS_COLORS
CC CXX CPP LD AR AS NM RANLIB STRIP CFLAGS CXXFLAGS CPPFLAGS LDFLAGS LDLIBS MAKE MAKEFLAGS ARCH CROSS_COMPILE
LD_LIBRARY_PATH LIBRARY_PATH CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH ACLOCAL_PATH SOURCE_DATE_EPOCH
GOPATH GOROOT GOBIN GOCACHE GOMODCACHE GOFLAGS GOOS GOARCH GOARM GOAMD64 GOPROXY GOPRIVATE GONOPROXY GONOSUMDB
GOSUMDB GOTOOLCHAIN GO111MODULE GOEXPERIMENT GOMAXPROCS GODEBUG GOENV GOWORK
M2_HOME ANT_HOME KOTLIN_HOME SBT_OPTS ANDROID_HOME ANDROID_SDK_ROOT ANDROID_NDK_HOME
DJANGO_SETTINGS_MODULE STACK_ROOT HOMEBREW_PREFIX HOMEBREW_CELLAR HOMEBREW_REPOSITORY PERL5LIB
CI DEBUG VERBOSE DEBIAN_FRONTEND
SSL_CERT_FILE SSL_CERT_DIR CURL_CA_BUNDLE REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS GIT_SSL_CAINFO AWS_CA_BUNDLE
HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy
"""
_BEGINNINGS = """
LC_ CLICOLOR PYTHON VIRTUAL_ENV CONDA_ PIP_ UV_ POETRY_ PYENV_ PIPX_ PDM_ HATCH_ TOX_ NOX PYTEST_ COVERAGE_ MYPY RUFF_
FLASK_ CARGO RUST CGO_ JAVA_ JDK_ MAVEN_ MVN GRADLE_ NODE_ NVM_ NPM_CONFIG_ npm_config_ YARN_ PNPM_ COREPACK_ VOLTA_
FNM_ BUN_ DENO_ GEM_ BUNDLE_ RUBY RBENV_ COMPOSER_ PHP_ PERL_ DOTNET_ NUGET_ GHCUP_ CABAL_ MIX_ HEX_ NIX_ CMAKE_
PKG_CONFIG CCACHE_ SCCACHE_ VCPKG_ CONAN_ NINJA_ CUDA_ OMP_ OPENBLAS_ MKL_ ASDF_ MISE_ SDKMAN_ GIT_AUTHOR_
GIT_COMMITTER_
"""
ALLOWED = frozenset(_NAMES.split())
ALLOWED_BEGINNINGS = tuple(_BEGINNINGS.split())
"""The variables that developers' tools read, by name. All others stay outside: sockets (SSH_AUTH_SOCK, DOCKER_HOST,
DISPLAY), variables that make programs run others (LD_PRELOAD, BASH_ENV, GIT_SSH_COMMAND), and unknown ones."""


# An environment changes seldom, and every command looks at all of it several times.
@lru_cache(maxsize=2048)
def is_secret(name: str, value: str) -> bool:
    return _has_secret_name(name) or bool(_SECRET_VALUE.search(value))


@lru_cache(maxsize=2048)
def _has_secret_name(name: str) -> bool:
    return bool(SECRET_NAME.search(name))


def list_secrets(environment: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        value for name, value in environment.items() if _has_secret_name(name) and len(value.strip()) >= _LEAST
    )


def drop_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """All that is no secret: for programs that the user named himself."""
    secrets = list_secrets(environment)
    return {
        name: value
        for name, value in environment.items()
        if not is_secret(name, value) and not any(secret in value for secret in secrets)
    } | _QUIET


def build_command_environment(environment: Mapping[str, str], extra_names: Iterable[str] = ()) -> dict[str, str]:
    patterns = tuple(extra_names)
    return {
        name: value
        for name, value in drop_secrets(environment).items()
        if name in ALLOWED
        or name in _QUIET
        or name.startswith(ALLOWED_BEGINNINGS)
        or any(fnmatchcase(name, pattern) for pattern in patterns)
    }


CAP = 32_000  # How many bytes of exported variables are carried over
STATE_CAP = 1 << 20  # How many bytes of what the shell writes are kept. Of more, only the working directory is used.
_NOT_CARRIED = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "TERM", "TREADLE_CALL", "LINES", "COLUMNS"})
_PASSING = re.compile(r"/treadle-\d+-\d+-[0-9a-f]{12}(/home)?\Z")  # HOME and TMPDIR of one command, by its sandbox
_NO_TEXT = re.compile("[\ud800-\udfff]")  # bytes that are no UTF-8, in a name or a value
_END = b"end"
_LEFT = b"left="  # before the name of a process that was left running and stopped, behind the state
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


def build_shell_argv(command: str) -> tuple[tuple[str, ...], int]:
    """The command line that runs a command so that its shell tells how it ends, and the descriptor it tells it on."""
    bash, sh = _find_shells()
    if not bash:
        return (sh, "-c", _SH + command, "sh"), _SH_FD
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[
        0
    ]  # a number as high as this process, and so the command, may have
    number = _BASH_FD if most == resource.RLIM_INFINITY else max(_LOWEST_FD, min(_BASH_FD, most - 1))
    return (bash, "-c", _BASH.replace("{fd}", str(number)).replace("{cap}", str(CAP)) + command, "bash"), number


@cache
def _find_shells() -> tuple[str, str]:
    return shutil.which("bash") or "", shutil.which("sh") or "/bin/sh"


def choose_start_directory(workspace: Workspace, folder: str, last: str) -> tuple[str, str]:
    """Where to run, the wanted folder or that of the last command, and what to say about it."""
    path = folder or decode_path(last)
    try:
        return workspace.resolve_directory(path), ""
    except RootChanged:
        raise
    except ToolError as error:
        if folder and not isinstance(error, OutsideRoot):
            raise
        note = "cwd {} is outside the project root" if folder else "the shell's directory {} is gone"
        return workspace.path, f"[{note.format(escape_name(path))}; the command ran in the root instead]"


def build_shell_environment(base: Mapping[str, str], shell: Shell) -> dict[str, str]:
    """A fresh environment with the shell's changes. Earlier logs may hold variables that no longer carry over."""
    carried = {name: value for name, value in shell.exports.items() if not can_start_programs(name, value)}
    return {name: value for name, value in {**base, **carried}.items() if name not in shell.unset}


def read_end(
    data: bytes, previous: Shell, base: Mapping[str, str], workspace: Workspace, user: Mapping[str, str]
) -> ShellEnd:
    """Compare the shell's report with `base`, a fresh environment. Secrets of the user's environment are left out."""
    report = _parse(data)
    if report.cwd is None:
        return ShellEnd(stopped=report.stopped)
    cwd = "."
    notes: tuple[str, ...] = ("[the shell's directory is gone; the next command starts in the root]",)
    if report.cwd:
        try:
            cwd, notes = encode_path(workspace.to_relative(workspace.resolve_directory(report.cwd))), ()
        except OutsideRoot:
            place = f"in {escape_name(report.cwd)}, outside the project root"
            notes = (f"[the shell was {place}; the next command starts in the root]",)
        except ToolError:
            notes = (f"[the shell's directory {escape_name(report.cwd)} is gone; the next command starts in the root]",)
    shell = Shell(cwd, previous.exports, previous.unset)
    if report.variables is None:
        notes += (_TOO_MUCH,)
    else:
        exports, unset, more = _compare_variables(report, report.variables, previous, base, user)
        shell, notes = Shell(cwd, exports, unset), notes + more
    return ShellEnd(None if shell == previous else shell, notes, report.stopped)


def _compare_variables(
    report: "_Report", variables: Mapping[str, str], previous: Shell, base: Mapping[str, str], user: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]:
    carried = {name for name, value in variables.items() if name not in _NOT_CARRIED and not _PASSING.search(value)}
    changed = {name: variables[name] for name in variables if name in carried and base.get(name) != variables[name]}
    starting = [name for name, value in changed.items() if can_start_programs(name, value)]
    recorded = {name: value for name, value in changed.items() if name not in starting}
    exports, left_out = _select_recordable(recorded, previous, list_secrets(user))
    left_out += [name for name in report.too_long if len(base.get(name, "")) <= CAP]
    present = variables.keys() | report.too_long
    unset = sorted(
        name for name in base if name not in present and name not in _NOT_CARRIED and not _NO_TEXT.search(name)
    )
    return (
        exports,
        tuple(unset),
        _describe_not_carried(left_out, _UNRECORDED_WHY) + _describe_not_carried(starting, _STARTING_WHY),
    )


class _Report(msgspec.Struct, frozen=True):
    cwd: str | None = None  # None: the shell did not get to its end, or something else wrote there
    variables: dict[str, str] | None = None  # None: more than is kept
    too_long: frozenset[str] = frozenset()  # Exported variables whose values are longer than what is carried over
    stopped: tuple[str, ...] = ()


def parse_stopped_names(data: bytes) -> tuple[str, ...]:
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
    too_long = frozenset(text for text in texts if "=" not in text)
    if not _find_shells()[0]:
        try:
            texts, too_long = shlex.split("".join(texts)), frozenset()
        except ValueError:
            return _Report(stopped=names)
    return _Report(path, dict(text.partition("=")[::2] for text in texts if "=" in text), too_long, names)


def _select_recordable(
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


def _describe_not_carried(names: Sequence[str], reason: str) -> tuple[str, ...]:
    name_list = ", ".join(escape_name(name) for name in sorted(names)[:10]) + (" …" if len(names) > 10 else "")
    return (f"[not carried over to later commands: {name_list} ({reason})]",) if names else ()
