"""Patterns of rules about commands: which are accepted, and which commands they cover (S-07). Pure functions.

An allow rule is read narrowly and a deny or ask rule widely. An allow rule covers a simple command that is literal,
word by word (or is the very text of the rule), stands alone (no wrapper, no variable set for it, no output into a file,
no input into an interpreter), runs the program of the same place and is not critical. For a deny rule it is enough that
the command would run at all: wrapped, with options before its words, or named by a variable. Where the words leave open
whether it would run, the answer is "maybe", and a person is asked."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal

from treadle.adapters.policy.shell.model import Part, parse_names, parse_table
from treadle.adapters.policy.shell.model import read as read_arguments
from treadle.adapters.policy.shell.programs import FILE_WRITERS, is_known
from treadle.adapters.policy.shell.wrappers import COMMAND_OPTIONS, RUNNERS
from treadle.errors import InvalidInput
from treadle.protocol.permissions import Rule, RuleEffect
from treadle.protocol.tools import COMMAND_TOOL

ANY = "*"
Match = Literal["yes", "maybe", "no"]

INTERPRETERS = parse_names(
    """
    ash awk bash bun bunx busybox clojure cmd csh dash deno ed elixir elvish emacs erl escript ex expect fish gawk gdb
    ghci groovy guile iex ipython irb java jshell julia kotlin ksh lldb lua luajit m4 mawk mksh mysql nawk node nodejs
    npx nu nvim ocaml octave osascript perl php pipx pnpx powershell psql pwsh pypy python R racket rbash Rscript ruby
    runghc sbcl scala sed sh sqlite ssh swift tclsh tcsh ts-node tsx uvx vi vim wish xonsh yash zsh
    """
)
"""Programs that run their input or arguments as code: a rule for all their uses would allow everything. Names
are without the version that may end them."""
_BY_LATER_WORDS = parse_names("busybox cmd ed emacs ex expect gdb lldb m4 mysql nvim psql sed sqlite ssh vi vim")
"""Those that take commands behind the name of a file or host, too."""
WRAPPERS = parse_names(
    """
    . at batch builtin chroot chrt command coproc doas docker entr env eval exec find flock gosu ionice kubectl ltrace
    nice nohup nsenter numactl parallel pkexec podman proxychains run0 runuser script setarch setpriv setsid sg source
    stdbuf strace su sudo systemd-run taskset time timeout torsocks unshare valgrind watch xargs xvfb-run
    """
)  # programs that run others
_QUIET_WRAPPERS = frozenset({"time", "timeout", "nice", "ionice", "stdbuf"})  # a command stays allowed behind them
_MAKE = parse_names("make gmake bmake")
_OPEN_FILE = re.compile(r"(?:--[a-z]+=|-[A-Za-z]*f)?(?:-|/dev/.*|/proc/.*)")  # an open file, also as an option's value
_CODE_OPTIONS = parse_table(
    """
    make gmake bmake : f file makefile I include-dir
    npm pnpm yarn bun : script-shell node-options prefix C dir cwd userconfig globalconfig
    jest vitest mocha : c config r require root rootDir dir globalSetup setupFiles runner
    cargo : config manifest-path C Z
    eslint : c config rulesdir parser resolve-plugins-relative-to f format
    git : upload-pack receive-pack exec x c config config-env ext-diff textconv open-files-in-pager template
    go : overlay modfile C
    gradle : I init-script b build-file p project-dir c settings-file
    mvn : f file s settings
    mypy : python-executable config-file
    pytest : p c o override-ini rootdir confcutdir config-file pdbcls
    rsync : rsync-path
    """
)
"""Options that, like COMMAND_OPTIONS, name a program or the file with the commands to run. A `*` in an allow rule does
not stand for them: a rule must name them."""
_SHORT_CODE_OPTIONS_OF_GIT = {"x": "rebase", "c": "clone"}  # other git commands mean something else by them
_MAKE_CODE = re.compile(r"(?:\.?SHELL\w*|MAKE\w*)\s*[:?+!]*=|.*(?:\$[({]|`|!=)", re.S)
"""Variables of make that choose its shell or its makefiles, and values that make runs."""
_NOWHERE = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
_MOVES = frozenset({"cd", "pushd", "popd"})
_OPEN = "…"  # how the shell analysis writes what cannot be known
_VERSION = re.compile(r"(?<=[A-Za-z])-?\d[\d.]*$")
_GLOB = re.compile(r"[*?\[]")
_VALUED = parse_table(
    """
    git : C c git-dir work-tree namespace super-prefix config-env attr-source shallow-file
    npm pnpm yarn : prefix C dir cwd w workspace filter F userconfig registry cache loglevel
    docker podman docker-compose : c context H host l log-level config tlscacert tlscert tlskey
    docker podman docker-compose : f file p project-name project-directory profile
    kubectl : n namespace context cluster user kubeconfig s server token as as-group v cache-dir request-timeout
    helm : n namespace kube-context kubeconfig kube-apiserver kube-token
    cargo : C Z config color manifest-path target-dir
    make gmake bmake : C directory f file makefile I include-dir o W E eval l load-average
    pip : index-url i extra-index-url proxy timeout cache-dir log python retries cert client-cert trusted-host
    go : C
    gh : R repo
    uv : directory project config-file cache-dir color
    poetry : C directory P project
    apt apt-get : o c t option config-file
    systemctl : H host M machine
    terraform : chdir
    aws : profile region endpoint-url output query ca-bundle
    gcloud : project account configuration
    """
)
"""Options with a value that may stand before or between the words that say what the program does. Of a program that is
not listed, every option may have one."""
_LISTED_WHOLE = parse_names("git make gmake bmake cargo go terraform")  # of the others, more options may have a value
_RUN_WORDS = parse_names(
    "conda docker gdb just kubectl nix pnpm podman screen ssh tmux uv yarn"
)  # behind words of their own
_SAME_OPTIONS = {"--force": "-f", "--recursive": "-r", "-R": "-r"}  # spellings that deny rules take for one
_CONTAINER_COMMANDS = re.sub(
    r"(\w+)",
    r"container_\1=\1",
    "attach commit cp create diff exec export kill logs pause port rename restart rm run start stats stop top unpause "
    "update wait",
)
_SYNONYMS = parse_table(
    f"""
    npm pnpm bun : i=install add=install
    npm : in=install ins=install inst=install insta=install instal=install isnt=install isnta=install isntal=install
    npm : isntall=install clean-install=ci ic=ci install-clean=ci isntall-clean=ci run-script=run rum=run urn=run
    npm pnpm : t=test tst=test rm=uninstall remove=uninstall un=uninstall x=exec up=update upgrade=update udpate=update
    npm : r=uninstall unlink=uninstall c=config add-user=adduser create=init innit=init ln=link owner=author
    npm : dist-tags=dist-tag
    pnpm : ln=link
    bun : a=install rm=remove r=remove
    yarn : up=upgrade
    cargo : b=build c=check d=doc r=run t=test rm=remove
    docker podman : {_CONTAINER_COMMANDS} container_remove=rm container_ls=ps container_list=ps container_ps=ps
    docker podman : image_build=build builder_build=build image_history=history image_import=import image_load=load
    docker podman : image_pull=pull image_push=push image_save=save image_tag=tag image_ls=images image_list=images
    docker podman : image_rm=rmi image_remove=rmi buildx_build=build remove=rm
    helm : uninstall=delete un=delete del=delete ls=list
    git : stage=add remote_rm=remote_remove
    brew : rm=uninstall remove=uninstall
    """
)
"""By program, its names for the same command; `_` stands for a space. For deny and ask rules only."""
_SAME_PROGRAMS = {"apt-get": ["apt"], "docker-compose": ["docker", "compose"], "gmake": ["make"], "nodejs": ["node"]}
_ABBREVIATING = parse_names("npm hg gradle gradlew tmux")  # they take the beginning of a command's name for the whole
_MOST_WRAPPED_READINGS = 8
_GIT_ALIASES = ("-c", "--config-env")


# -- what a pattern may say -------------------------------------------------------------------------------------------
def check_command_pattern(pattern: str, effect: RuleEffect) -> None:
    words = split_pattern(pattern)
    if any(ANY in word for word in words[:-1]) or (ANY in words[-1] and words[-1] != ANY):
        raise InvalidInput(f"in {pattern!r} a * may stand only as the last word, for any further words")
    if effect != "allow":
        return
    if len(words) == 1 and words[0] == ANY:
        raise InvalidInput("a rule cannot allow every command; to let commands pass set auto_approve_commands")
    if refusal := find_refusal(words):
        raise InvalidInput(f"{pattern!r} cannot be allowed by a rule: {refusal}")


def find_refusal(words: Sequence[str]) -> str:
    """Why no allow rule may have these words (the last may be `*`); empty when it may."""
    program = _get_program_kind(words[0])
    open_ended = words[-1] == ANY
    arguments = [word for word in words[1:] if word != ANY]
    verb = RUNNERS.get(program, "")  # as in `uv run *`: it runs the words behind its verb, and the pattern names none
    names_none = open_ended and all(word.startswith("-") for word in arguments[1:])
    if program in WRAPPERS or (verb and arguments[:1] == [verb] and names_none):
        return f"{program} runs other commands, and it would cover them all"
    if program in INTERPRETERS and not _has_script(program, arguments, open_ended):
        return f"{program} runs any code, and the rule would cover all of it; name a script, as in 'python gen.py'"
    if program == "git" and any(word == "-c" or word.startswith(("--config-env", "--exec-path")) for word in arguments):
        return "git runs what -c sets"
    if program == "git" and open_ended and not arguments:
        return "git runs its aliases and hooks; name the git command, as in 'git status *'"
    return ""


def _has_script(program: str, arguments: Sequence[str], open_ended: bool) -> bool:
    """True if the words name the script. An option may take a word, so with `*` the script or `-m` comes first."""
    if not open_ended:
        return any(not word.startswith("-") for word in arguments)
    if program in _BY_LATER_WORDS or not arguments:
        return False
    return not arguments[0].startswith("-") or (
        arguments[0] == "-m" and len(arguments) > 1 and not arguments[1].startswith("-")
    )


def split_pattern(pattern: str) -> list[str]:
    try:
        words = shlex.split(pattern)
    except ValueError as error:
        raise InvalidInput(f"{pattern!r} cannot be read as the words of a command: {error}") from error
    if not words:
        raise InvalidInput("the pattern of a command is empty; write its words, as in 'make test'")
    return words


# -- what an allow rule covers ----------------------------------------------------------------------------------------
def is_read_only(part: Part) -> bool:
    """True for a part that needs no rule: it only looks, writes no file, and sets nothing that other parts obey."""
    if part.severity != "none" or part.assigns or set(part.writes) - _NOWHERE:
        return False
    return part.program not in FILE_WRITERS and part.program != "exec"


def is_quiet_wrapper(part: Part) -> bool:
    return _get_program_name(part.program) in _QUIET_WRAPPERS


def find_folder(root: str, start: str, parts: Iterable[Part]) -> str | None:
    """The folder of the parts, relative to the root (or "."); None if unknown, because the command changes it."""
    if any(part.program in _MOVES for part in parts) or ".." in start.split("/"):
        return None
    path = os.path.normpath(os.path.join(root, start))
    top = os.path.normpath(root)
    return "." if path == top else path[len(top) + 1 :] if path.startswith(f"{top}/") else path


def find_rule_allowing_part(rules: Iterable[Rule], part: Part, folder: str | None = ".") -> Rule | None:
    if part.assigns or set(part.writes) - _NOWHERE or part.severity == "critical" or not part.words:
        return None
    if set(part.wrapped_by) - _QUIET_WRAPPERS:
        return None
    kind = _get_program_kind(part.words[0])
    if (kind in INTERPRETERS or kind in WRAPPERS) and (part.unknown or part.reads_input or folder != "."):
        return None  # where it runs decides which script the words name
    words = place_words(part.words, folder)
    if words is None or (kind in _MAKE and any(_OPEN_FILE.fullmatch(word) for word in part.words)):
        return None
    usable = (rule for rule in rules if rule.effect == "allow" and rule.tool == COMMAND_TOOL and rule.pattern)
    return next((rule for rule in usable if _covers_part(rule.pattern, part, words)), None)


def place_words(words: Sequence[str], folder: str | None) -> tuple[str, ...] | None:
    """The words with a relative program (`./run.sh`) as the root would name it; None if that cannot be known."""
    program = words[0]
    if _OPEN in program or (_GLOB.search(program) and program not in ("[", "[[", ANY)):
        return None
    if "/" not in program or program[0] in "/~":
        return tuple(words)
    if folder is None:
        return None
    if ".." in program.split("/"):  # behind a link `..` leads elsewhere
        return tuple(words) if folder == "." else None
    path = os.path.normpath(os.path.join(folder, program))
    return (path if path[0] == "/" else f"./{path}", *words[1:])


def _covers_part(pattern: str, part: Part, words: Sequence[str]) -> bool:
    """A part that is not literal is covered by the very same text only."""
    if part.unknown:
        return pattern == part.text and words[0] == part.words[0]
    pattern_words = split_pattern(pattern)
    if find_refusal(pattern_words):  # a rule that was made before this was refused
        return False
    rule_words = place_words(pattern_words, ".")
    if rule_words is None or not _fit(rule_words, words):
        return False
    return pattern_words[-1] != ANY or not _contains_code(words, len(rule_words) - 1)


def _contains_code(words: Sequence[str], start: int) -> bool:
    """True if the words from `start` on, for which a `*` stands, tell the program to run something of their own."""
    program, arguments = _get_program_kind(words[0]), words[start:]
    if program in _MAKE and any(_MAKE_CODE.match(word) for word in arguments):
        return True
    names_of_options = {*_CODE_OPTIONS.get(program, "").split(), *COMMAND_OPTIONS.get(program, "").split()}
    if program == "git":
        names_of_options -= {letter for letter, verb in _SHORT_CODE_OPTIONS_OF_GIT.items() if verb not in words[1:2]}
    return any(
        flag == name or (len(flag) > 1 and len(name) > 1 and name.startswith(flag))
        for flag in read_arguments(arguments, " ".join(names_of_options)).flags
        for name in names_of_options
    )


def _fit(pattern_words: Sequence[str], words: Sequence[str]) -> bool:
    if pattern_words[-1] == ANY:
        return tuple(pattern_words[:-1]) == tuple(words[: len(pattern_words) - 1]) and bool(words)
    return tuple(pattern_words) == tuple(words)


# -- what a deny or ask rule covers -----------------------------------------------------------------------------------
def find_rule_stopping_command(
    rules: Iterable[Rule], effect: RuleEffect, tool: str, parts: Iterable[Part]
) -> tuple[Rule, Match] | None:
    """The rule that stops one of the commands in it, and whether it surely does ("yes", preferred) or may ("maybe")."""
    candidates = [rule for rule in rules if rule.effect == effect and rule.tool == tool]
    doubtful: Rule | None = None
    for part in parts:
        for rule in candidates:
            if (match := compare_widely(rule.pattern, part)) == "yes":
                return rule, "yes"
            doubtful = doubtful or (rule if match == "maybe" else None)
    return None if doubtful is None else (doubtful, "maybe")


def compare_widely(pattern: str, part: Part) -> Match:
    if not pattern:
        return "yes"
    if not part.words:
        return "maybe" if part.unknown and part.severity in ("high", "critical") else "no"
    pattern_words = split_pattern(pattern)
    readings = list(_iterate_readings(part.words, pattern_words[0]))
    answers = {_WordComparison(pattern_words, words).compute_match() for words in readings}
    if "yes" in answers or any(_fit(pattern_words, words) for words in readings):
        return "yes"
    return "maybe" if "maybe" in answers or part.hides_commands or _can_wrap_command(pattern_words, part) else "no"


def _can_wrap_command(pattern_words: Sequence[str], part: Part) -> bool:
    """True if a program that may be a wrapper has the pattern's command among its arguments: `chronic git push`?"""
    words, program = part.words, _get_program_kind(pattern_words[0])
    if _get_program_kind(words[0]) in _RUN_WORDS:
        words = tuple(" ".join(words).split())  # it may stand in one word, too
    elif is_known(_get_program_name(words[0])):
        return False
    places = (at for at, word in enumerate(words) if at and _get_program_kind(word) == program)
    return any(
        _WordComparison(pattern_words, words[at:]).compute_match() != "no"
        for at in islice(places, _MOST_WRAPPED_READINGS)
    )


def _iterate_readings(words: tuple[str, ...], target: str) -> Iterator[tuple[str, ...]]:
    """The words, and those of the module or script that an interpreter runs by them, if the target may be one."""
    yield words
    kind = _get_program_kind(words[0])
    if kind.startswith("git-"):  # git's own folder has its commands as programs
        yield ("git", kind.removeprefix("git-"), *words[1:])
    if kind not in INTERPRETERS and kind not in ("source", "."):
        return
    if "-m" in words[1:-1]:
        yield words[words.index("-m", 1) + 1 :]
    script = next((at for at, word in enumerate(words) if at and not word.startswith("-")), 0)
    if script and ("/" in target or "." in target):
        yield words[script:]


class _WordComparison:
    """One pattern against the words of one command. Options and their values may stand between the words."""

    def __init__(self, pattern_words: Sequence[str], words: tuple[str, ...]) -> None:
        pattern_words, words = _replace_synonyms(pattern_words), _replace_synonyms(words)
        self._open_ended = pattern_words[-1] == ANY
        literal = pattern_words[:-1] if self._open_ended else pattern_words
        self._pattern = [word for word in literal if not word.startswith("-")]
        self._options = {word for word in literal if word.startswith("-")}
        self._words = words
        self._flags = {flag for word in self._options for flag in _parse_flags(word)}
        self._spellings = self._options | self._flags
        flags = {flag for word in words for flag in _parse_flags(word, self._spellings)}
        self._has_options = all(word in words or _parse_flags(word) <= flags for word in self._options)
        self._has_unknown = any(_OPEN in word for word in words)
        self._program = _get_program_kind(words[0])
        self._known: dict[tuple[int, int], Match] = {}

    def compute_match(self) -> Match:
        for at in range(len(self._words), -1, -1):  # from the end, because a command may have thousands of words
            for pattern_at in range(len(self._pattern), -1, -1):
                self._known[pattern_at, at] = self._compare(pattern_at, at)
        return self._known[0, 0]

    def _compare(self, pattern_at: int, at: int) -> Match:
        if pattern_at == len(self._pattern):
            return self._compare_rest(at)
        if at == len(self._words):
            return "no"
        word, target = self._words[at], self._pattern[pattern_at]
        if _can_match(_get_program_name(word), _get_program_kind(target)) if at == 0 else _can_match(word, target):
            return "maybe"
        answers: set[Match] = set()
        if word == target or (at == 0 and _get_program_kind(word) == _get_program_kind(target)):
            answers.add(self._known[pattern_at + 1, at + 1])
        elif pattern_at == 1 and self._program in _ABBREVIATING and target.startswith(word):
            answers.add("maybe" if self._known[pattern_at + 1, at + 1] != "no" else "no")
        # of make also other targets and assignments
        skips = self._program in _MAKE or word.startswith("-") or (self._program == "cargo" and word.startswith("+"))
        if at and skips:
            for next_at in self._skip_option(at):
                unknown = any(_OPEN in skipped for skipped in self._words[at:next_at])  # it may be several words
                answers.add("maybe" if unknown else self._known[pattern_at, min(next_at, len(self._words))])
            if self._program == "git" and word.startswith(_GIT_ALIASES):
                answers.add("maybe")  # an alias may have any name
            if self._program not in _LISTED_WHOLE and self._known.get((pattern_at, at + 2), "no") != "no":
                answers.add("maybe")  # the next word may be the value of this option
        return "yes" if "yes" in answers else "maybe" if "maybe" in answers else "no"

    def _compare_rest(self, at: int) -> Match:
        """Compare the rest when all words are matched: options of the pattern, and for an exact one no other words."""
        if not self._has_options:
            return "maybe" if self._has_unknown else "no"
        if self._open_ended or (self._program in _MAKE and len(self._pattern) > 1):
            return "yes"
        literal = [word for word in self._words[at:] if _OPEN not in word]
        if any(not word.startswith("-") or not _parse_flags(word, self._spellings) <= self._flags for word in literal):
            return "no"
        return "yes" if len(literal) == len(self._words[at:]) else "maybe"

    def _skip_option(self, at: int) -> Iterator[int]:
        word = self._words[at]
        following = "".join(self._words[at + 1 : at + 2])
        listed = _VALUED.get(self._program)
        takes_value = listed is not None and word.startswith("-") and word.lstrip("-") in listed.split()
        if not takes_value:
            yield at + 1
        if takes_value or (word.startswith("-") and "=" not in word and (listed is None or following.isdecimal())):
            yield at + 2


def is_interpreter(program: str) -> bool:
    return _get_program_kind(program) in INTERPRETERS


def _replace_synonyms(words: Sequence[str]) -> tuple[str, ...]:
    """The words with the usual names of the program and of its command: `npm i x` is `npm install x`."""
    words = (*_SAME_PROGRAMS.get(_get_program_name(words[0]), words[:1]), *words[1:])
    synonyms = dict(each.split("=") for each in _SYNONYMS.get(_get_program_kind(words[0]), "").split())
    for at in range(1, len(words)):
        for size in (2, 1):
            if usual := synonyms.get("_".join(words[at : at + size])):
                return (*words[:at], *usual.split("_"), *words[at + size :])
        if not (words[at].startswith("-") or words[at - 1].startswith("-")):
            break  # the name of the command
    return words


def _parse_flags(word: str, rule_options: Iterable[str] = ()) -> set[str]:
    """The options in a word: `-rf` is `-r` and `-f`. A long one may abbreviate an option of a rule: `--forc`."""
    if letters := re.fullmatch(r"-([A-Za-z]+)", word):
        flags = {f"-{letter}" for letter in letters[1]}
    else:
        name, _, value = word.partition("=")
        spellings = {long for long, short in _SAME_OPTIONS.items() if short in rule_options} | {*rule_options}
        parted = [(spelling, spelling.partition("=")) for spelling in spellings if spelling.startswith("--")]
        abbreviated = {each for each, (long, _, wanted) in parted if long.startswith(name) and wanted in ("", value)}
        flags = (abbreviated if len(name) > 2 else set()) or {word}
    return {_SAME_OPTIONS.get(flag, flag) for flag in flags}


def _can_match(word: str, target: str) -> bool:
    """True if a word that is not literal may turn out to be the target, or may begin with it."""
    if _OPEN not in word and not _GLOB.search(word):
        return False
    prefix, unknown, _ = word.partition(_OPEN)
    if unknown:
        return prefix == "" or _can_match(f"{prefix}*", target)
    pattern = re.sub(r"\\\[.*?\\\]|\\\*|\\\?", lambda wildcard: "." if wildcard[0] == r"\?" else ".*", re.escape(word))
    return re.fullmatch(pattern, target, re.S) is not None


def _get_program_name(word: str) -> str:
    return word.rpartition("/")[2] or word


def _get_program_kind(word: str) -> str:
    """A program's name without its place and, if known here, its version: `/usr/bin/python3.12` is python."""
    name = _get_program_name(word)
    plain = _VERSION.sub("", name)
    is_known_program = name not in INTERPRETERS and (plain in INTERPRETERS or plain in WRAPPERS or plain in _VALUED)
    return plain if is_known_program else name
