"""The effects of a call: the commands that its words would run and the files that they would change, the call as shown
to a person, and the concerns about a set of changes for which a person is asked (S-06, S-07, S-16), for file tools and
commands alike. `standard` decides which concerns count in which mode.

Files that tools can rebuild (caches by their name, files in .gitignore) raise only concerns of the user's own patterns
and rules. Files in the `.git` of the project are not changes of the project, unless history is lost;
`treadle.chat.change_rules` defines which of them may be written."""

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from treadle.adapters.policy import rules, sensitive_files
from treadle.adapters.policy.sensitive_files import OWN_PATTERN, PINS, Sensitive
from treadle.adapters.policy.shell.model import Finding, Part, select_worst
from treadle.base.inert import escape_unprintable
from treadle.chat.carried_variables import select_unknown_variables
from treadle.chat.change_rules import explain_left_out
from treadle.diff.changes import count, get_cache, is_folder, is_in_git
from treadle.ports.toolset import Invocation
from treadle.protocol.files import FileChange, FileState, decode_path
from treadle.protocol.options import ChatOptions
from treadle.protocol.permissions import Rule, RuleEffect
from treadle.protocol.tools import EDIT_TOOL, ToolSpec

Kind = Literal["read", "edit", "command", "job", "other", "free"]
"""`free` changes and executes nothing, though it is not a read either. `job` may commit what a background command has
changed, and is then judged as that command."""

UNKNOWN = "…"  # how the shell analysis writes what cannot be known

_HEADERS = re.compile(
    r"^[ \t]*(?:\*\*\*[ ]?(?:(?:Add|Create|Update|Modify|Delete|Remove)[ ]File|(?:Move|Rename)[ ]to):"
    r"|rename[ ](?:from|to)[ ]|---[ ]|\+\+\+[ ])(?P<path>.*)$",
    re.MULTILINE | re.IGNORECASE,
)
_CHANGES_ALL = frozenset({"tee", "touch", "truncate", "mv", "rm", "unlink", "shred", "patch", "sponge"})
_CHANGES_LAST = frozenset({"cp", "install", "ln", "rsync", "scp"})
_MOST_VARIABLES = 5
_MOVES = frozenset(("cd", "pushd"))
_MOST_FOLDERS = 16
_SHOWN_CHARS = 20_000
_MEDIUM = "it goes to a program that is running, which may do anything with it"


class Act(msgspec.Struct, frozen=True):
    kind: Kind
    files: tuple[str, ...] = ()  # the paths it would change, as written; for a command only those visible in its text
    finding: Finding = Finding("none")
    parts: tuple[Part, ...] = ()
    folder: str = "."  # where a command starts: relative to the root, or absolute
    hidden_target: bool = False  # it writes a file whose name cannot be known beforehand
    variables: Mapping[str, str | None] = {}  # set by earlier commands (None: unset); they may change its words (T-14)

    def find_sensitive(self, root: str, user_patterns: Mapping[str, bool]) -> tuple[Sensitive, ...]:
        sensitive = [sensitive_files.find(root, file, user_patterns) for file in self.files]
        if self.kind == "command":
            sensitive += [sensitive_files.find_new(root, file, user_patterns) for file in self.files]
        return tuple(dict.fromkeys(each for each in sensitive if each is not None))

    def iterate_names(self, root: str) -> Iterator[tuple[str, ...]]:
        return (sensitive_files.resolve_names(root, file) for file in self.files)


def find_act(spec: ToolSpec, invocation: Invocation) -> Act:
    arguments = invocation.arguments
    if (command := spec.find_command(arguments)) is not None:
        return find_command_act(command, invocation)
    if spec.job_argument:
        return Act("job")
    if spec.input_argument:
        return _make_input_act(str(arguments.get(spec.input_argument) or ""))
    files = tuple(arguments[key] for key in ("path", "file_path") if isinstance(arguments.get(key), str))
    if spec.effect == "edit":
        texts = [arguments.get(key) for key in ("patch", "input")]
        headers = [match["path"] for text in texts if isinstance(text, str) for match in _HEADERS.finditer(text)]
        paths = (*files, *(path for header in headers for path in _list_patch_paths(header)))
        return Act("edit", tuple(dict.fromkeys(paths)), hidden_target=not paths)
    return Act("read" if spec.read_only else "free" if spec.effect == "none" else "other", files)


def find_command_act(command: str, invocation: Invocation) -> Act:
    from treadle.adapters.policy.command_severity import classify, parse_parts  # late: many a chat runs no command

    folder = find_start_folder(invocation)
    variables = {} if invocation.arguments.get("fresh") else select_unknown_variables(invocation.shell)
    command_parts, finding = parse_parts(command), classify(command)
    if variables:
        command_parts = tuple(
            replace(part, unknown=True, assigns=(*part.assigns, *variables)) for part in command_parts
        )
        name_list = ", ".join([*variables][:_MOST_VARIABLES]) + (" …" if len(variables) > _MOST_VARIABLES else "")
        reason = f"earlier commands changed {name_list}, so what its words run is unknown"
        finding = replace(
            finding, severity=select_worst((finding.severity, "medium")), reasons=(*finding.reasons, reason)
        )
    targets = list(_place_targets(command_parts, folder))
    files = tuple(dict.fromkeys(target for target in targets if UNKNOWN not in target))
    has_unknown = any(UNKNOWN in target for target in targets)
    return Act("command", files, finding, command_parts, folder, has_unknown, variables)


def _place_targets(parts: Iterable[Part], start: str) -> Iterator[str]:
    """The files that the parts write; a relative name in every folder that the command may have gone to by then."""
    folders = [start]
    for part in parts:
        if os.path.basename(part.program) in _MOVES:
            words = [word for word in part.words[1:] if not word.startswith("-")] or [UNKNOWN]
            goals = [os.path.join(folder, words[0]) for folder in folders]
            folders = list(dict.fromkeys([*folders, *goals])) if len(folders) < _MOST_FOLDERS else [*folders, UNKNOWN]
        yield from (os.path.join(folder, target) for target in _find_targets(part) for folder in folders)


def _find_targets(part: Part) -> Iterator[str]:
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


def _make_input_act(text: str) -> Act:
    from treadle.adapters.policy.command_severity import classify

    finding = classify(text) if text.strip() else Finding("none")
    if finding.severity in ("none", "medium"):
        finding = Finding("medium", (_MEDIUM, *finding.reasons))
    return Act("command", finding=finding)


def _list_patch_paths(text: str) -> Iterator[str]:
    """A name in the header of a patch, however it is decorated; git's a/ and b/ may be folders as well."""
    path = text.partition("\t")[0].strip().strip("\"'`")
    if not path or path == "/dev/null":
        return
    yield path
    if path.startswith(("a/", "b/")):
        yield path[2:]


def find_start_folder(invocation: Invocation) -> str:
    folder = invocation.arguments.get("cwd")
    if isinstance(folder, str) and folder:
        return folder
    return "." if invocation.arguments.get("fresh") else decode_path(invocation.shell.cwd)


# -- the call as shown to a person, complete and inert: an approval is bound to this text (S-08, S-12) ----------------
def render_call(invocation: Invocation, act: Act) -> str:
    """Name and arguments, long texts as blocks; of a command also its folder and the variables left by earlier ones."""
    inherited = [
        ("set by an earlier command", f"{name} is unset" if value is None else f"{name}={value}")
        for name, value in act.variables.items()
    ]
    if act.folder != "." and not invocation.arguments.get("cwd"):
        inherited.insert(0, ("in the folder", act.folder))
    lines = [invocation.name]
    for name, value in (*invocation.arguments.items(), *inherited):
        text = escape_unprintable(value if isinstance(value, str) else msgspec.json.encode(value).decode())
        if len(text) > _SHOWN_CHARS:  # by the hash an approval is bound to all of it
            digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
            rest = f"[{len(text) - _SHOWN_CHARS:,} more characters; SHA-256 of all: {digest}]"
            text = f"{text[:_SHOWN_CHARS]}\n{rest}"
        if "\n" in text:
            lines += [f"  {escape_unprintable(name)}:", *(f"    {line}" for line in text.split("\n"))]
        else:
            lines.append(f"  {escape_unprintable(name)}: {text}")
    return "\n".join(lines)


MOST_FILES = 200
MOST_BYTES = 50_000_000  # more than this in one set of changes is asked for
_RUNS = 0o111
_NAMED = 3
_REPOSITORY = frozenset((".git", ".git/HEAD", ".git/objects", ".git/refs"))  # without one of these there is no history

_ENVIRONMENT = re.compile(
    r"\.?(?:v|virtual)?env(?:[-_.\d].*)?|\.?(?:venv|virtualenv)s?|\.(?:tox|nox|eggs|direnv|conda|pixi)|__pypackages__"
    r"|(?:site|dist)-packages"
)  # folders with the packages of Python
_PACKAGE_FOLDERS = frozenset(("node_modules", "bower_components", "jspm_packages", ".yarn", ".pnpm-store"))
_PROGRAM_FOLDERS = frozenset(("bin", "Scripts"))
_START_FILES = (".pth", ".egg-link", "pyvenv.cfg", "entry_points.txt")
_CODE = (".py", ".so", ".pyd", ".js", ".cjs", ".mjs", ".ts", ".node", ".sh")
_COMPILED = (".pyc", ".pyo")

ConcernKind = Literal[
    "sensitive", "rule", "unrecoverable", "many", "outside_link", "executable", "installed", "repository"
]
ALWAYS_ASKED: frozenset[ConcernKind] = frozenset(("sensitive", "rule", "repository"))
"""The concerns that are asked about even if the command's text or the mode is trusted."""


class Concern(msgspec.Struct, frozen=True):
    kind: ConcernKind
    paths: tuple[str, ...]  # as they are shown: decoded, relative to the root
    reason: str


class ChangeSet(msgspec.Struct, frozen=True):
    files: tuple[FileChange, ...]
    unrecoverable: tuple[str, ...] = ()  # see `treadle.ports.toolset.Rehearsal`
    history: tuple[str, ...] = ()  # see `treadle.ports.snapshots.Effect`
    spelled: tuple[Sensitive, ...] = ()  # sensitive names beside their own: as the call gives them, and links to them


def find_concerns(
    changes: ChangeSet, patterns: Mapping[str, bool], applicable_rules: Sequence[Rule]
) -> tuple[Concern, ...]:
    """Return the concerns about the changes. `patterns`: sensitive paths by the user's settings."""
    plain = {decode_path(file.path): file for file in changes.files if not is_in_git(file.path) and not is_folder(file)}
    # A changed .gitignore must not exempt files from review.
    hides = not any(path.rpartition("/")[2] == ".gitignore" for path in plain)
    lost_paths = frozenset(changes.unrecoverable)
    ignored = {path for path, file in plain.items() if file.ignored and hides}
    source_files = {path: file for path, file in plain.items() if not get_cache(file) and path not in ignored}
    raised = (
        _find_sensitive_concern(plain, ignored, changes.spelled, patterns, applicable_rules),
        _find_rule_concern(plain, applicable_rules),
        _make_concern(
            "unrecoverable",
            [path for path, file in source_files.items() if file.path in lost_paths],
            "it removes or overwrites {}, which exists nowhere else (not in git, not in this chat)",
        ),
        _find_size_concern(source_files.values()),
        _make_concern(
            "outside_link",
            [path for path, file in plain.items() if _is_outside_link(path, file.after) and not get_cache(file)],
            "it makes {}, a symbolic link that leaves the project",
        ),
        _make_concern("executable", _find_executables(source_files, plain.values()), "it makes {} executable"),
        # Files among installed packages that programs run or load: a person starts them without having seen the
        # change, since caches are not listed.
        _make_concern(
            "installed",
            [path for path, file in plain.items() if (get_cache(file) or file.ignored) and _is_run_unasked(path, file)],
            "it changes {}, which programs run from a folder of installed packages",
        ),
        _find_history_concern(changes.files, changes.history),
    )
    return tuple(each for each in raised if each is not None)


def judge_afterwards(
    files: Sequence[FileChange], options: ChatOptions, applicable_rules: Sequence[Rule], history: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the reasons why changes that could not be judged beforehand should have been stopped (W-10)."""
    raised = find_concerns(ChangeSet(tuple(files), history=tuple(history)), options.sensitive, applicable_rules)
    if options.auto_approve_commands or options.mode in ("auto-edit", "autopilot"):
        raised = tuple(each for each in raised if each.kind in ALWAYS_ASKED)
    never = explain_left_out(files, lambda _path: False)
    refusals = [escape_unprintable(f"{decode_path(path)}: {reason}") for path, reason in never.items()]
    denied = find_stopping_rule(files, "deny", applicable_rules)
    denial = () if denied is None else (escape_unprintable(f"it changes what {rules.describe_rule(denied)} denies"),)
    return (*denial, *(each.reason for each in raised), *refusals[:_NAMED])


def find_stopping_rule(
    files: Iterable[FileChange], effect: RuleEffect, applicable_rules: Sequence[Rule]
) -> Rule | None:
    path_rules = [rule for rule in applicable_rules if rule.effect == effect and rule.pattern]
    if not path_rules:
        return None
    paths = (decode_path(file.path) for file in files if not is_folder(file))
    hits = (rules.find_file_rule(path_rules, effect, EDIT_TOOL, (path,), edits=True) for path in paths)
    return next((rule for rule in hits if rule is not None), None)


def _find_sensitive_concern(
    files: Mapping[str, FileChange],
    ignored: Collection[str],
    spelled: Iterable[Sensitive],
    user_patterns: Mapping[str, bool],
    applicable_rules: Sequence[Rule],
) -> Concern | None:
    raised = {each.path: each for each in spelled}
    for path, file in files.items():
        cached = bool(get_cache(file))
        if cached and not user_patterns:
            continue
        appears = file.before is None and not cached and path not in ignored
        judge = sensitive_files.judge_new if appears else sensitive_files.judge
        reason = judge(path, user_patterns)
        if reason is None or (cached and reason.reason != OWN_PATTERN):
            continue
        if reason.reason != PINS or path not in ignored:  # locks of build output pin nothing
            raised.setdefault(path, reason)
    open_files = [
        each
        for path, each in raised.items()
        if rules.find_rule_allowing_file(applicable_rules, EDIT_TOOL, (path,), sensitive=True) is None
    ]
    if not open_files:
        return None
    return Concern("sensitive", tuple(each.path for each in open_files), f"it changes {render_sensitive(open_files)}")


def render_sensitive(files: Sequence[Sensitive]) -> str:
    first = files[0]
    more = f" and {len(files) - 1} more sensitive files" if len(files) > 1 else ""
    return escape_unprintable(f"{first.path}{more}, which is sensitive: {first.reason} (pattern {first.pattern})")


def _find_rule_concern(files: Mapping[str, FileChange], applicable_rules: Sequence[Rule]) -> Concern | None:
    for path, file in files.items():
        if (rule := find_stopping_rule((file,), "ask", applicable_rules)) is not None:
            return Concern(
                "rule", (path,), escape_unprintable(f"it changes {path}, and {rules.describe_rule(rule)} says so")
            )
    return None


def _find_size_concern(files: Collection[FileChange]) -> Concern | None:
    if len(files) > MOST_FILES:
        return Concern("many", (), f"it changes {count(len(files), 'file')}, which is more than {MOST_FILES}")
    size = sum(file.after.size for file in files if file.after is not None)
    reason = f"it writes {size:,} bytes, which is more than {MOST_BYTES:,}"
    return Concern("many", (), reason) if size > MOST_BYTES else None


def _is_outside_link(path: str, state: FileState | None) -> bool:
    if state is None or state.kind != "link":
        return False
    steps = [step for step in decode_path(state.target).split("/") if step not in ("", ".")]
    upwards = next((number for number, step in enumerate(steps) if step != ".."), len(steps))
    # Behind a name that is itself a link, `..` leads anywhere.
    return ".." in steps[upwards:] or state.target.startswith("/") or upwards > path.count("/")


def _find_executables(files: Mapping[str, FileChange], all_of: Iterable[FileChange]) -> list[str]:
    """Files that can be run and could not before; one that was only moved could."""

    def is_executable(state: FileState | None) -> bool:
        return state is not None and state.kind == "file" and bool(state.mode & _RUNS)

    moved = {file.before.digest for file in all_of if file.after is None and file.before and is_executable(file.before)}
    changed = ((path, file.before, file.after) for path, file in files.items())
    return [
        path
        for path, old, new in changed
        if new and is_executable(new) and not is_executable(old) and new.digest not in moved
    ]


def is_run_from_cache(path: str) -> bool:
    """True if programs run such a file unasked, by its name alone: for changes that are not known beforehand."""
    return path.endswith(_COMPILED) or _is_run_unasked(path)


def _is_run_unasked(path: str, file: FileChange | None = None) -> bool:
    """New files count: they may hide a module or `node_modules` above; new compiled ones are checked by Python."""
    if file is not None and file.after is None:
        return False
    existed = file is None or file.before is not None
    is_link = file is not None and file.after is not None and file.after.kind == "link"
    *folders, name = path.split("/")
    at = next((number for number, folder in enumerate(folders) if folder in _PACKAGE_FOLDERS), None)
    if at is not None:
        inner = folders[at + 1 :]
        if ".bin" in inner:
            return True
        belongs_to_tool = bool(inner) and inner[0].startswith(".") and inner[0] != ".pnpm"
        return not belongs_to_tool and (is_link or name == "package.json" or name.endswith(_CODE))
    if ".terraform" in folders:
        return "providers" in folders
    if not any(_ENVIRONMENT.fullmatch(folder) for folder in folders):
        return False
    if name.endswith(_START_FILES) or ".direnv" in folders or _PROGRAM_FOLDERS.intersection(folders):
        return True
    return is_link or name.endswith(_CODE) or (existed and name.endswith(_COMPILED))


def _find_history_concern(files: Iterable[FileChange], history: Sequence[str]) -> Concern | None:
    if paths := [file.path for file in files if file.path in _REPOSITORY and file.after is None]:
        reason = "it takes {} away, and with it the history that git keeps of the project"
        return _make_concern("repository", paths[:1], reason)
    return (
        Concern("repository", (), escape_unprintable("; ".join(f"it {each}" for each in history))) if history else None
    )


def _make_concern(kind: ConcernKind, paths: Sequence[str], reason: str) -> Concern | None:
    if not paths:
        return None
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return Concern(kind, tuple(paths), escape_unprintable(reason.format(", ".join(paths[:_NAMED]) + more)))
