"""The severity of each program: by its name, by patterns of its arguments, by the paths that it writes. Read-only
programs are none; unknown programs are medium. Scripts that a program may run are searched for destructive idioms.
"""

import re

import msgspec

from treadle.adapters.policy.shell.arguments import read
from treadle.adapters.policy.shell.idioms import ruin
from treadle.adapters.policy.shell.model import UNKNOWN, Meanings, Rating, ShellCall, names
from treadle.adapters.policy.shell.places import deleting, reading, resolve, writing
from treadle.adapters.policy.shell.ratings import is_rated, ratings
from treadle.adapters.policy.shell.read_only_programs import literal, only_looks
from treadle.adapters.policy.shell.wrappers import SHELLS, wrapper

_INTERPRETER = re.compile(
    r"(?:python|perl|ruby|node|nodejs|php|lua|luajit|deno|bun|Rscript|R|julia|tclsh|osascript|pwsh|powershell|groovy|elixir"
    r"|erl|scala|ghci|guile|expect|jshell|irb|ipython|pypy|ts-node|tsx|awk|gawk|mawk|nawk)[\d.]*"
)
_CODE = names("-c -e -E -r -p -eval --eval -Command eval --exec")
_READS_CODE = names("ssh at batch ed ex psql mysql sqlite3 make gdb parallel vim nvim mail")
_SYSTEM_PLACES = re.compile(r"(?:/usr(?:/local)?|/opt/homebrew|/run/current-system/sw)?/s?bin/[^/]+|/usr/lib/\w+/\w+")
_OUTPUT = re.compile(r"(?:^|\s)(?:-o|-O|--output(?:-document)?|--cookie-jar|--dump-header|of)(?:=|\s+|(?=/))(\S+)")
_ALL_WRITTEN = names("tee sponge truncate touch mkdir mkfifo mknod fallocate shred mv")
_LAST_WRITTEN = names("cp ln install rsync scp ditto")
_MENTIONS = SHELLS | names(
    "echo printf : true false test [ [[ ls stat file mkdir touch rm rmdir chmod chown du cd basename dirname realpath"
    " find fd ln trap env timeout nice nohup command exec time eval sudo xargs"
)
"""Programs whose words are not files that they read; those that run others are judged by what they run."""
_PATTERN_FIRST = names("grep egrep fgrep zgrep rg sed awk gawk jq perl")


def plain_name(name: str) -> tuple[str, bool]:
    """A program's name without its place, and whether it is the one that everybody knows by that name."""
    if "/" not in name:
        return name, True
    clean = re.sub(r"/(?:[^/]+/\.\.)?/*", "/", name)
    return name.rstrip("/").rsplit("/", 1)[-1], _SYSTEM_PLACES.fullmatch(clean) is not None


def is_known(name: str) -> bool:
    bare = ShellCall(name, ("x",))
    has_rating = is_rated(name) or name.startswith("mkfs.") or _INTERPRETER.fullmatch(name) is not None
    return has_rating or only_looks(bare) or wrapper(bare) is not None


def judge(call: ShellCall) -> Meanings:
    name = "mkfs" if call.name.startswith("mkfs.") else call.name
    if name != name.lower() and not is_known(name) and is_known(name.lower()):  # some file systems know no capitals
        yield Rating("medium", f"{name} is a program that is not known here")
        name = name.lower()
    call = msgspec.structs.replace(call, name=name)
    yield from _secrets(call)
    looks = only_looks(call)
    if not looks or name in _ALL_WRITTEN:
        yield from _places(call)
    if name == "git":
        git_ratings = list(_git(call))
        yield from git_ratings
        yield from _runs_text(call) if git_ratings else ()
        return
    inner = wrapper(call)
    yield from inner or ()
    rated = ratings(call) if call.args not in (("--version",), ("--help",)) else []
    if looks:
        yield from (Rating("none", each.reason, network=True) for each in rated if each.network)
        return
    yield from rated
    if _INTERPRETER.fullmatch(name):
        yield from _interpreter(call)
    elif not rated and inner is None:
        yield Rating("medium", f"{name or 'it'} is a program that is not known here")
    if inner is None:
        yield from _runs_text(call)


def _interpreter(call: ShellCall) -> Meanings:
    """Rate an interpreter. Code is not parsed: running it is medium, and high if the code is not in the text."""
    yield Rating("medium", f"{call.name} runs code", unseen=True)
    at = next((n for n, word in enumerate(call.args) if word in _CODE or not word.startswith("-")), None)
    code_arguments = call.args[at : at + 2 if call.args[at] in _CODE else at + 1] if at is not None else ()
    if any(UNKNOWN in word for word in code_arguments):
        yield Rating("high", f"{call.name} runs code that is not known before it does", unseen=True)
    if call.stdin is not None and (not code_arguments or code_arguments == ("-",)):
        if UNKNOWN in call.stdin:
            reason = f"{call.name} runs the text that is piped into it, which no person has seen"
            yield Rating("high", reason, unseen=True)
        yield from ruin(call.stdin)


def _runs_text(call: ShellCall) -> Meanings:
    """Any of its words may be a command, in an option or in code."""
    if call.name not in ("rm", "mv", "cp", "chmod"):
        attached = " ".join(word[2:] for word in call.args if word[:1] == "-" and " " in word)
        yield from ruin(f"{call.line} ; {attached}" if attached else call.line)
    if call.name in _READS_CODE and call.stdin is not None:
        yield from ruin(call.stdin)


def _places(call: ShellCall) -> Meanings:
    """The places that it deletes or writes, as far as its words name them."""
    options = read(call.args, "t target-directory" if call.name in ("cp", "mv", "install", "ln") else "")
    written_paths = list(options.operands if call.name in _ALL_WRITTEN else ())
    if call.name in _LAST_WRITTEN and len(options.operands) > 1:
        written_paths = [options.operands[-1]]
    written_paths += options.all("t", "target-directory")
    if call.name in ("sed", "gsed", "perl") and any(re.match(r"-[a-zA-Z]*i|--in-place", word) for word in call.args):
        written_paths += call.args
    written_paths += _OUTPUT.findall(call.line)
    for place in written_paths:
        if ":" not in place.split("/")[0] and (rating := writing(place, call.cwd)):
            yield rating
    yield from _rate_deletion(call, options.operands, options.has("R", "r", "recursive"))


def _rate_deletion(call: ShellCall, operands: tuple[str, ...], recursive: bool) -> Meanings:
    match call.name:
        case "rm" | "unlink" | "grm" | "rimraf" | "trash" | "srm":
            unsure = any(word.startswith(UNKNOWN) for word in call.args)  # it may be an option
            for word in filter(None, operands):
                top = resolve(word.replace(UNKNOWN, ""), call.cwd) == "/" and bool(word.strip(UNKNOWN))
                yield deleting(word, call.cwd, recursive=recursive or call.name == "rimraf" or (unsure and top))
        case "mv" | "chmod" | "chown" | "chgrp":
            for word in operands[:-1] if call.name == "mv" else operands[1:] if recursive else ():
                rating = deleting(word, call.cwd, recursive=True)
                if rating.severity == "critical" and not resolve(word, call.cwd).startswith((".", "*")):
                    yield Rating("critical", rating.reason.replace("deletes", "moves or changes", 1))
            written = [writing(word, call.cwd) for word in operands[1:]] if call.name != "mv" else []
            if any(each is not None and each.severity != "medium" for each in written):
                yield Rating("high", "changes the permissions of a part of the system")
        case "rsync" if any(word.startswith("--del") for word in call.args) and operands:
            if resolve(operands[-1], call.cwd) != "." and ":" not in operands[-1]:
                yield deleting(operands[-1], call.cwd, recursive=True)
            yield Rating("high", "deletes what the other side does not have")
        case _:
            pass


def _secrets(call: ShellCall) -> Meanings:
    if call.name in _MENTIONS:
        return
    words = call.args
    if call.name in _PATTERN_FIRST:
        first = next((n for n, word in enumerate(words) if not word.startswith("-")), len(words))
        words = (*words[:first], *words[first + 1 :])
    for word in words if call.name != "git" else call.line.split(" "):
        for each in (word, word.partition("=")[2]):
            if each and (rating := reading(each.replace(UNKNOWN, "x"), call.cwd)):
                yield rating


# -- git: which of its commands only look ------------------------------------------------------------------------------

_GIT_LOOKING = names(
    """
    status log diff show rev-parse ls-files ls-tree blame shortlog describe cat-file reflog grep rev-list merge-base
    show-ref check-ignore branch tag stash remote config worktree clean
    """
)
_GIT_SAFE = names(
    """
    oneline n p u s z a r v vv l i w c b q E F S L m o t stat graph all grep author since until follow pretty format
    decorate name-only name-status cached staged numstat shortstat patch no-patch short branch porcelain show-current
    list contains merged sort tags abbrev-ref show-toplevel git-dir verify quiet max-count reverse no-merges
    first-parent color no-color diff-filter untracked-files ignored others exclude-standard modified date unified
    count always dirty get get-all show-origin dry-run line-number ignore-case
    """
)
_GIT_VALUED = "n S G L e sort format grep author since until max-count contains merged get get-all"
_GIT_VERBS: dict[str, tuple[str, str, str]] = {
    "branch": ("", "list l contains merged a r", "u m c"),
    "tag": ("", "l list contains n", "a s u v"),
    "stash": (r"(?:list|show)\b.*", "", ""),
    "remote": (r"|get-url\b.*", "", ""),
    "config": (r"\S+", "get get-all l list show-origin", ""),
    "worktree": (r"list\b.*", "", ""),
    "clean": (r"(?!)", "n dry-run", ""),
    "reflog": (r"(?!expire|delete).*", "", ""),
}
"""Commands that look only with these words or these options, and never with the last ones."""


def _git(call: ShellCall) -> Meanings:
    options = read(call.args, "C c git-dir work-tree namespace exec-path super-prefix config-env", until_word=True)
    global_options = call.args[: len(call.args) - len(options.operands)]
    if _git_only_looks(global_options, options.operands):
        return
    all_ratings = ratings(ShellCall("git", options.operands))
    all_ratings += ratings(ShellCall("git-options", global_options))
    yield from all_ratings or [Rating("medium", f"changes the repository (git {' '.join(options.operands[:1])})")]


def _git_only_looks(global_options: tuple[str, ...], operands: tuple[str, ...]) -> bool:
    known_options = set(read(global_options, "C").flags) <= {"C", "no-pager", "P", "version", "help"}
    if not known_options or UNKNOWN in "".join(global_options):
        return False
    if not operands:
        return True
    verb, options = operands[0], read(operands[1:], _GIT_VALUED)
    has_known_flags = all(flag in _GIT_SAFE or re.fullmatch(r"[-\d.,]+", flag) for flag in options.flags)
    if verb not in _GIT_LOOKING or not has_known_flags or not literal(operands[1:]):
        return False
    words, options_wanted, options_barred = _GIT_VERBS.get(verb, (".*", "", ""))
    flags = frozenset(options.flags)
    fits = re.fullmatch(words, " ".join(options.operands), re.S) is not None or bool(flags & names(options_wanted))
    return fits and not flags & names(options_barred)
