"""git: reading is harmless, changing is not, and many of its settings are commands that it runs."""

import re

from treadle.policy.shell.arguments import read
from treadle.policy.shell.model import Effects, Found, Run, Script, ShellCall, names
from treadle.policy.shell.places import writing
from treadle.policy.shell.wrappers import Rule

_READING = names(
    """
    status log diff show rev-parse ls-files ls-tree blame annotate shortlog describe cat-file reflog grep
    rev-list merge-base name-rev for-each-ref show-ref show-branch check-ignore check-attr whatchanged version
    help diff-tree diff-index diff-files count-objects var cherry range-diff verify-commit verify-tag
    get-tar-commit-id --version --help -v --exec-path --html-path --man-path verify-pack
    """
)
_COMMAND_SETTINGS = re.compile(
    r"core\.(pager|editor|sshcommand|fsmonitor|hookspath|askpass|gitproxy|alternaterefscommand)|sequence\.editor"
    r"|pager\.|alias\.|diff\.(external|.*\.(command|textconv))|difftool\..*|mergetool\..*|merge\..*\.driver|filter\..*"
    r"|credential\..*helper|credential\.helper|gpg\..*program|gpg\.program|interactive\.difffilter|web\.browser|browser\."
    r"|man\.|uploadpack\.|receive\.|remote\..*\.(uploadpack|receivepack|proxy|vcs)|protocol\..*allow|include|init\.templatedir"
    r"|url\..*|sendemail\.|trailer\..*|submodule\..*\.update|tar\..*\.command|instaweb\.",
    re.I,
)
_QUIET_SETTINGS = re.compile(
    r"(user|color|advice|core\.(quotepath|autocrlf|abbrev)|diff\.(algorithm|renames)|log)\b", re.I
)
_HARMLESS_PROGRAMS = ("cat", "less", "more", "", "true", ":", "false", "less -R", "less -FRX")
_COMMIT_OPTIONS = "m F C c message file author date t template cleanup fixup squash trailer u"


def git(call: ShellCall) -> Effects:
    options = read(call.args, "C c git-dir work-tree namespace exec-path super-prefix config-env", until_word=True)
    for setting in options.all("c"):
        name, _, value = setting.partition("=")
        yield from _setting(name, value, temporary=True)
    if options.all("exec-path", "config-env"):
        yield Found("high", "git takes its programs or settings from elsewhere")
    if not options.rest:
        return
    verb, args = options.rest[0], options.rest[1:]
    yield from _verb(verb, args, call)


def _verb(verb: str, args: tuple[str, ...], call: ShellCall) -> Effects:
    rule = _VERBS.get(verb)
    if rule is not None:
        yield from rule(ShellCall(verb, args, call.cwd, call.stdin))
    elif verb not in _READING:
        yield Found("medium", f"changes the repository (git {verb})")
    yield from _options_that_run(verb, args, call.cwd)


def _options_that_run(verb: str, args: tuple[str, ...], cwd: str) -> Effects:
    options = read(
        args, "u x exec upload-pack receive-pack output o extcmd open-files-in-pager template " + _COMMIT_OPTIONS
    )
    for name in ("upload-pack", "receive-pack", "extcmd"):
        for text in options.all(name):
            yield Found("high", f"git runs a command (--{name})")
            yield Script(text)
    if verb in ("clone", "fetch", "ls-remote") and options.all("u"):
        yield Script(options.all("u")[0])
        yield Found("high", "git runs a command (-u)")
    if verb in ("rebase", "difftool"):
        for text in options.all("x", "exec"):
            yield Script(text)
    if verb == "grep":
        for word in args:
            match = re.match(r"(?:-O|--open-files-in-pager=)(.+)", word, re.S)
            if match:
                yield Found("high", "git runs a command (-O)")
                yield Script(match[1])
    for path in options.all("output") if verb not in ("commit",) else ():
        if found := writing(path, cwd):
            yield found
    if any(re.match(r"ext::", word) for word in args):
        yield Found("high", "git runs a command as its transport")
        for word in args:
            if word.startswith("ext::"):
                yield Script(word[5:])


def _setting(name: str, value: str, *, temporary: bool) -> Effects:
    if _COMMAND_SETTINGS.match(name):
        if value.strip() in _HARMLESS_PROGRAMS and not name.lower().startswith(("alias", "include", "url")):
            if not temporary:
                yield Found("medium", f"changes git's setting {name}")
            return
        yield Found("high", f"sets {name}, which git obeys or runs")
        if name.lower().startswith("alias.") and not value.startswith("!"):
            yield Run(("git", *value.split()))
        else:
            yield Script(value.removeprefix("!"))
    elif not (temporary and _QUIET_SETTINGS.match(name)):
        yield Found("medium", f"changes git's setting {name}")


def _config(call: ShellCall) -> Effects:
    options = read(call.args, "f file blob type default get get-all get-regexp unset unset-all")
    if options.has("get", "get-all", "get-regexp", "l", "list", "show-origin", "get-urlmatch"):
        return
    rest = options.rest[1:] if options.rest[:1] in (("set",), ("get",), ("list",), ("unset",)) else options.rest
    if options.rest[:1] in (("get",), ("list",)) or (
        len(rest) == 1 and not options.has("unset", "unset-all", "e", "edit")
    ):
        return
    if options.has("global", "system"):
        yield Found("high", "changes git's settings for all projects")
    yield from _setting(rest[0] if rest else "", " ".join(rest[1:]), temporary=False)


def _push(call: ShellCall) -> Effects:
    options = read(call.args, "o repo push-option")
    forced = options.has("f", "force", "force-with-lease", "force-if-includes", "delete", "d", "mirror", "prune")
    if forced or any(word.startswith(("+", ":")) for word in options.rest[1:]):
        yield Found("high", "overwrites or deletes what others have on the remote")
    else:
        yield Found("medium", "sends commits to the remote")


def _reset(call: ShellCall) -> Effects:
    if read(call.args).has("hard", "merge", "keep"):
        yield Found("high", "throws uncommitted work away")
    else:
        yield Found("medium", "changes the repository (git reset)")


def _clean(call: ShellCall) -> Effects:
    options = read(call.args, "e exclude")
    if options.has("n", "dry-run"):
        return
    yield Found("high", "deletes files that git does not know, which exist nowhere else")


def _checkout(call: ShellCall) -> Effects:
    options = read(call.args, "b B c C s source orphan")
    discards = options.has("f", "force", "discard-changes") or "--" in call.args or "." in options.rest
    if discards or (call.name == "restore" and not options.has("S", "staged")):
        yield Found("high", "throws uncommitted work away")
    else:
        yield Found("medium", "changes the files to another state")


def _branch(call: ShellCall) -> Effects:
    options = read(call.args, "u contains no-contains merged sort format points-at set-upstream-to")
    if options.has("D") or (options.has("d", "delete") and options.has("f", "force")):
        yield Found("high", "deletes branches, merged or not")
    elif options.has("d", "delete", "m", "M", "c", "C", "move", "copy", "u", "f", "force", "edit-description"):
        yield Found("medium", "changes branches")
    elif options.rest and not options.has("list", "l", "contains", "merged", "no-merged", "a", "r"):
        yield Found("medium", "makes a branch")


def _tag(call: ShellCall) -> Effects:
    options = read(call.args, "m F u n sort contains message")
    if options.rest and not options.has("l", "list", "n", "contains", "v", "verify"):
        yield Found("medium", "changes tags")


def _stash(call: ShellCall) -> Effects:
    verb = call.args[:1]
    if verb in (("list",), ("show",)):
        return
    if verb in (("drop",), ("clear",)):
        yield Found("high", "throws stashed work away")
    else:
        yield Found("medium", "moves uncommitted work")


def _remote(call: ShellCall) -> Effects:
    rest = read(call.args).rest
    if rest[:1] not in ((), ("show",), ("get-url",)):
        yield Found("medium", "changes where the repository comes from or goes to")


def _reflog(call: ShellCall) -> Effects:
    if call.args[:1] in (("expire",), ("delete",)):
        yield Found("high", "deletes history that undo needs")


def _rewrite(call: ShellCall) -> Effects:
    yield Found("high", "rewrites the history")
    options = read(
        call.args, "tree-filter index-filter msg-filter env-filter parent-filter commit-filter setup tag-name-filter"
    )
    for name, text in options.values:
        if name.endswith("filter") or name == "setup":
            yield Script(text)


def _gc(call: ShellCall) -> Effects:
    forced = call.name == "prune" or any(word.startswith("--prune=") for word in call.args)
    yield Found("high" if forced else "medium", "tidies the repository and may delete lost commits")


def _bisect(call: ShellCall) -> Effects:
    yield Found("medium", "changes the files to another state")
    if call.args[:1] == ("run",):
        yield Run(call.args[1:])


def _submodule(call: ShellCall) -> Effects:
    rest = read(call.args, until_word=True).rest
    if rest[:1] in ((), ("status",), ("summary",)):
        return
    yield Found("medium", "changes submodules")
    if rest[:1] == ("foreach",):
        words = tuple(word for word in rest[1:] if word not in ("--recursive", "--quiet", "-q"))
        yield Script(words[0]) if len(words) == 1 else Run(words)


def _transfer(call: ShellCall) -> Effects:
    yield Found("medium", "transfers commits over the network")
    options = read(call.args, "c config b branch u o depth origin j template recurse-submodules upload-pack")
    for setting in options.all("c", "config") if call.name == "clone" else ():
        yield from _setting(*setting.partition("=")[::2], temporary=True)
    if options.has("template"):
        yield Found("high", "takes hooks from elsewhere")


def _update_ref(call: ShellCall) -> Effects:
    yield Found("high", "moves or deletes references")


def _worktree(call: ShellCall) -> Effects:
    if call.args[:1] != ("list",):
        forced = read(call.args).has("f", "force")
        yield Found("high" if forced else "medium", "makes or deletes working trees")


def _rm(call: ShellCall) -> Effects:
    options = read(call.args)
    wide = options.has("r") and not options.has("cached")
    yield Found("high" if wide else "medium", "deletes files and stages that")


def _bare(call: ShellCall) -> Effects:
    yield Found("medium", f"changes the repository (git {call.name})")


_VERBS: dict[str, Rule] = {
    **dict.fromkeys(("checkout", "switch", "restore"), _checkout),
    **dict.fromkeys(("filter-branch", "filter-repo", "replace", "fast-import"), _rewrite),
    **dict.fromkeys(
        ("clone", "fetch", "pull", "ls-remote", "send-email", "request-pull", "archive", "svn", "p4"), _transfer
    ),
    **dict.fromkeys(("gc", "prune", "repack"), _gc),
    **dict.fromkeys(("update-ref", "symbolic-ref", "pack-refs"), _update_ref),
    **dict.fromkeys(("difftool", "mergetool"), _bare),
    "bisect": _bisect,
    "branch": _branch,
    "clean": _clean,
    "config": _config,
    "push": _push,
    "reflog": _reflog,
    "remote": _remote,
    "reset": _reset,
    "rm": _rm,
    "stash": _stash,
    "submodule": _submodule,
    "tag": _tag,
    "worktree": _worktree,
}
RULES: dict[str, Rule] = {"git": git, "hub": git, "yadm": git}
