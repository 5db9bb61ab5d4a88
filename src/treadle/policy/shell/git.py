"""git: which of its commands only look."""

import re

from treadle.policy.shell.arguments import read
from treadle.policy.shell.model import UNKNOWN, Found, Meanings, ShellCall, names
from treadle.policy.shell.ratings import ratings

_LOOKING = names(
    """
    status log diff show rev-parse ls-files ls-tree blame annotate shortlog describe cat-file reflog grep rev-list
    merge-base name-rev for-each-ref show-ref show-branch check-ignore check-attr whatchanged version diff-tree
    diff-index diff-files count-objects var cherry range-diff branch tag stash remote config
    worktree clean submodule
    """
)
_SAFE = names(
    """
    oneline n p u s z a r v vv l i w e c b q E F G P S L m o d x f t h B C M stat graph all grep author since until
    after before follow pretty format decorate name-only name-status cached staged numstat shortstat summary patch
    no-patch short branch porcelain show-current list contains merged no-merged sort tags heads abbrev-ref
    abbrev-commit is-inside-work-tree show-toplevel git-dir verify quiet max-count reverse no-merges merges
    first-parent color no-color word-diff ignore-all-space ignore-space-change diff-filter exit-code untracked-files
    ignored others exclude-standard modified deleted full-name date relative topo-order patience histogram minimal
    unified no-renames find-renames left-right cherry-pick cherry-mark count always long dirty match points-at get
    get-all get-regexp show-origin dry-run line-number ignore-case word-regexp files-with-matches function-context
    and or not no-index is-ancestor stage
    """
)
_VALUED = "n S G L e sort format grep author since until after before max-count contains merged no-merged get get-all"
_QUIET = re.compile(
    r"(?i)(?:user|color|advice|core\.(?:quotepath|autocrlf|abbrev)|diff\.(?:algorithm|renames)|log)\b.*"
    r"|(?:core\.pager|pager\.\w+)=(?:cat|less|more|true|)"
)
_VERBS: dict[str, tuple[str, str, str]] = {
    "branch": ("", "list l contains merged no-merged a r", "d f u m c C M D"),
    "tag": ("", "l list contains n", "d a s f u e v"),
    "stash": (r"(?:list|show)\b.*", "", ""),
    "remote": (r"|get-url\b.*", "", ""),
    "config": (r"\S+", "get get-all get-regexp l list show-origin", "e"),
    "worktree": (r"list\b.*", "", ""),
    "clean": (r"(?!)", "n dry-run", ""),
    "submodule": (r"(?:status|summary)\b.*", "", ""),
    "reflog": (r"(?!expire|delete).*", "", ""),
}
"""Commands that look only with these words or these options, and never with the last ones."""


def git(call: ShellCall) -> Meanings:
    options = read(call.args, "C c git-dir work-tree namespace exec-path super-prefix config-env", until_word=True)
    before = call.args[: len(call.args) - len(options.rest)]
    if _only_looks(before, options.rest):
        return
    found = ratings(ShellCall("git", options.rest))
    found += ratings(ShellCall("git-options", before))
    yield from found or [Found("medium", f"changes the repository (git {' '.join(options.rest[:1])})")]


def _only_looks(before: tuple[str, ...], rest: tuple[str, ...]) -> bool:
    given = read(before, "C c")
    if any(flag not in ("C", "c", "no-pager", "P", "version", "v", "help") for flag in given.flags):
        return False
    if any(UNKNOWN in word for word in before) or any(not _QUIET.fullmatch(text) for text in given.all("c")):
        return False
    if not rest:
        return True
    verb, args = rest[0], rest[1:]
    options = read(args, _VALUED)
    literal = not any(UNKNOWN in word for word in (args[: args.index("--")] if "--" in args else args))
    known = all(flag in _SAFE or re.fullmatch(r"[-\d.,]+", flag) for flag in options.flags)
    if verb not in _LOOKING or not literal or not known:
        return False
    words, options_wanted, options_barred = _VERBS.get(verb, (".*", "", ""))
    flags = frozenset(options.flags)
    fits = re.fullmatch(words, " ".join(options.rest), re.S) is not None or bool(flags & names(options_wanted))
    return fits and not flags & names(options_barred)
