"""The concerns about a set of changes for which a person is asked (S-06, S-07, S-16), for file tools and commands
alike. Pure: the state of the disk is passed in as data. `standard` decides which concerns count in which mode.

Files that tools can rebuild (caches by their name, files in .gitignore) raise only concerns of the user's own patterns
and rules. Files in the `.git` of the project are not changes of the project, unless history is lost;
`treadle.chat.change_rules` defines which of them may be written.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from treadle.adapters.policy import rules
from treadle.adapters.policy.sensitive_files import OWN_PATTERN, PINS, Sensitive, judge, judge_new
from treadle.base.inert import printable
from treadle.chat.change_rules import left_out
from treadle.diff.changes import cache_of, count, in_git, is_folder
from treadle.protocol.files import FileChange, FileState, decode_path
from treadle.protocol.options import ChatOptions
from treadle.protocol.permissions import Rule, RuleEffect
from treadle.protocol.tools import EDIT_TOOL

MOST_FILES = 200
MOST_BYTES = 50_000_000
"""More than this in one set of changes is asked for."""
_RUNS = 0o111
_NAMED = 3
_REPOSITORY = frozenset((".git", ".git/HEAD", ".git/objects", ".git/refs"))
"""Without one of these there is no repository, and no history."""

_ENVIRONMENT = re.compile(
    r"\.?(?:v|virtual)?env(?:[-_.\d].*)?|\.?(?:venv|virtualenv)s?|\.(?:tox|nox|eggs|direnv|conda|pixi)|__pypackages__"
    r"|(?:site|dist)-packages"
)
"""Folders with the packages of Python."""
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
    """Why a person should look at a set of changes before it is made."""

    kind: ConcernKind
    paths: tuple[str, ...]
    """As they are shown: decoded, relative to the root."""
    reason: str


class ChangeSet(msgspec.Struct, frozen=True):
    """The changes of one call, with what is known of them beyond themselves."""

    files: tuple[FileChange, ...]
    unrecoverable: tuple[str, ...] = ()
    """See `treadle.ports.toolset.Rehearsal`."""
    history: tuple[str, ...] = ()
    """See `treadle.ports.snapshots.Effect`."""
    spelled: tuple[Sensitive, ...] = ()
    """Sensitive names of these files beside their own: those that the call gives, and links that lead to them."""


def concerns(
    changes: ChangeSet, user_patterns: Mapping[str, bool], applicable_rules: Sequence[Rule]
) -> tuple[Concern, ...]:
    """Return the concerns about the changes. `user_patterns`: sensitive paths by the user's settings."""
    plain = tuple(
        _ChangedPath(file, decode_path(file.path))
        for file in changes.files
        if not in_git(file.path) and not is_folder(file)
    )
    ignored, lost_paths = _ignored(plain), frozenset(changes.unrecoverable)
    source_files = tuple(each for each in plain if not cache_of(each.file) and each.path not in ignored)
    raised = (
        _sensitive(plain, ignored, changes.spelled, user_patterns, applicable_rules),
        _ruled(plain, applicable_rules),
        _about(
            "unrecoverable",
            [each.path for each in source_files if each.file.path in lost_paths],
            "it removes or overwrites {}, which exists nowhere else (not in git, not in this chat)",
        ),
        _many(source_files),
        _about(
            "outside_link",
            [each.path for each in plain if _leaves(each) and not cache_of(each.file)],
            "it makes {}, a symbolic link that leaves the project",
        ),
        _executables(source_files, plain),
        # Files among installed packages that programs run or load: a person starts them without having seen the
        # change, since caches are not listed.
        _about(
            "installed",
            [each.path for each in plain if (cache_of(each.file) or each.file.ignored) and _is_started(each)],
            "it changes {}, which programs run from a folder of installed packages",
        ),
        _repository(changes.files, changes.history),
    )
    return tuple(each for each in raised if each is not None)


def after_the_fact(
    files: Sequence[FileChange], options: ChatOptions, applicable_rules: Sequence[Rule], history: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the reasons why changes that could not be judged beforehand should have been stopped (W-10)."""
    raised = concerns(ChangeSet(tuple(files), history=tuple(history)), options.sensitive, applicable_rules)
    if options.auto_approve_commands or options.mode in ("auto-edit", "autopilot"):
        raised = tuple(each for each in raised if each.kind in ALWAYS_ASKED)
    never = left_out(files, lambda _path: False)
    refusals = [printable(f"{decode_path(path)}: {reason}") for path, reason in never.items()]
    denied = stopping_rule(files, "deny", applicable_rules)
    denial = () if denied is None else (printable(f"it changes what {rules.in_words(denied)} denies"),)
    return (*denial, *(each.reason for each in raised), *refusals[:_NAMED])


def stopping_rule(files: Iterable[FileChange], effect: RuleEffect, applicable_rules: Sequence[Rule]) -> Rule | None:
    """The rule by path that denies one of these changes, or asks for it."""
    path_rules = [rule for rule in applicable_rules if rule.effect == effect and rule.pattern]
    if not path_rules:
        return None
    paths = (decode_path(file.path) for file in files if not is_folder(file))
    hits = (rules.about_file(path_rules, effect, EDIT_TOOL, (path,), edits=True) for path in paths)
    return next((rule for rule in hits if rule is not None), None)


class _ChangedPath(msgspec.Struct, frozen=True):
    file: FileChange
    path: str


def _ignored(files: Sequence[_ChangedPath]) -> frozenset[str]:
    """Return the ignored paths; none if a .gitignore changes, which must not exempt files from review."""
    if any(each.path.rpartition("/")[2] == ".gitignore" for each in files):
        return frozenset()
    return frozenset(each.path for each in files if each.file.ignored)


def _sensitive(
    files: Sequence[_ChangedPath],
    ignored: frozenset[str],
    spelled: Iterable[Sensitive],
    user_patterns: Mapping[str, bool],
    applicable_rules: Sequence[Rule],
) -> Concern | None:
    raised = {each.path: each for each in spelled}
    for each in files:
        cached = bool(cache_of(each.file))
        if cached and not user_patterns:
            continue
        appears = each.file.before is None and not cached and each.path not in ignored
        reason = judge_new(each.path, user_patterns) if appears else judge(each.path, user_patterns)
        if reason is None or (cached and reason.reason != OWN_PATTERN):
            continue
        if reason.reason != PINS or each.path not in ignored:  # locks of build output pin nothing
            raised.setdefault(each.path, reason)
    open_files = [
        each
        for path, each in raised.items()
        if rules.allows_file(applicable_rules, EDIT_TOOL, (path,), sensitive=True) is None
    ]
    if not open_files:
        return None
    return Concern("sensitive", tuple(each.path for each in open_files), f"it changes {listed(open_files)}")


def listed(files: Sequence[Sensitive]) -> str:
    """The first of these files with what is sensitive about it, and how many more there are."""
    first = files[0]
    more = f" and {len(files) - 1} more sensitive files" if len(files) > 1 else ""
    return printable(f"{first.path}{more}, which is sensitive: {first.reason} (pattern {first.pattern})")


def _ruled(files: Sequence[_ChangedPath], applicable_rules: Sequence[Rule]) -> Concern | None:
    for each in files:
        if (rule := stopping_rule((each.file,), "ask", applicable_rules)) is not None:
            reason = printable(f"it changes {each.path}, and {rules.in_words(rule)} says so")
            return Concern("rule", (each.path,), reason)
    return None


def _many(files: Sequence[_ChangedPath]) -> Concern | None:
    size = sum(each.file.after.size for each in files if each.file.after is not None)
    if len(files) > MOST_FILES:
        return Concern("many", (), f"it changes {count(len(files), 'file')}, which is more than {MOST_FILES}")
    if size > MOST_BYTES:
        return Concern("many", (), f"it writes {size:,} bytes, which is more than {MOST_BYTES:,}")
    return None


def _leaves(each: _ChangedPath) -> bool:
    new_state = each.file.after
    if new_state is None or new_state.kind != "link":
        return False
    steps = [step for step in decode_path(new_state.target).split("/") if step not in ("", ".")]
    upwards = next((number for number, step in enumerate(steps) if step != ".."), len(steps))
    if ".." in steps[upwards:]:  # behind a name that is itself a link, `..` leads anywhere
        return True
    return new_state.target.startswith("/") or upwards > each.path.count("/")


def _executables(files: Iterable[_ChangedPath], all_of: Iterable[_ChangedPath]) -> Concern | None:
    """Files that can be run and could not before; one that was only moved could."""
    removed = [each.file.before for each in all_of if each.file.after is None]
    moved_digests = {before.digest for before in removed if before is not None and _can_run(before)}
    changed = [(each.path, each.file.before, each.file.after) for each in files]
    paths = [
        path
        for path, before, after in changed
        if after is not None and _can_run(after) and not _can_run(before) and after.digest not in moved_digests
    ]
    return _about("executable", paths, "it makes {} executable")


def _is_started(each: _ChangedPath) -> bool:
    before, after = each.file.before, each.file.after
    return after is not None and _runs_by_itself(each.path, existed=before is not None, is_link=after.kind == "link")


def is_run_from_cache(path: str) -> bool:
    """True if programs run such a file unasked, by its name alone: for changes that are not known beforehand."""
    return path.endswith(_COMPILED) or _runs_by_itself(path, existed=True)


def _runs_by_itself(path: str, *, existed: bool, is_link: bool = False) -> bool:
    """A new file counts, too: a package is found before a module of the same name, and a nested `node_modules` before
    the one above. A link may lead to a folder with code. Compiled files that are new are compared with their source."""
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


def _repository(files: Iterable[FileChange], history: Sequence[str]) -> Concern | None:
    paths = [file.path for file in files if file.path in _REPOSITORY and file.after is None]
    if paths:
        reason = "it takes {} away, and with it the history that git keeps of the project"
        return _about("repository", paths[:1], reason)
    return Concern("repository", (), printable("; ".join(f"it {each}" for each in history))) if history else None


def _can_run(state: FileState | None) -> bool:
    return state is not None and state.kind == "file" and bool(state.mode & _RUNS)


def _about(kind: ConcernKind, paths: Sequence[str], reason: str) -> Concern | None:
    if not paths:
        return None
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return Concern(kind, tuple(paths), printable(reason.format(", ".join(paths[:_NAMED]) + more)))
