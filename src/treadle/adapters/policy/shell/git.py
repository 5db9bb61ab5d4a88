"""git: which of its commands only look."""

import re

from treadle.adapters.policy.shell.arguments import read
from treadle.adapters.policy.shell.model import UNKNOWN, Meanings, Rating, ShellCall, names
from treadle.adapters.policy.shell.ratings import ratings
from treadle.adapters.policy.shell.read_only_programs import literal

_LOOKING = names(
    """
    status log diff show rev-parse ls-files ls-tree blame shortlog describe cat-file reflog grep rev-list merge-base
    show-ref check-ignore branch tag stash remote config worktree clean
    """
)
_SAFE = names(
    """
    oneline n p u s z a r v vv l i w c b q E F S L m o t stat graph all grep author since until follow pretty format
    decorate name-only name-status cached staged numstat shortstat patch no-patch short branch porcelain show-current
    list contains merged sort tags abbrev-ref show-toplevel git-dir verify quiet max-count reverse no-merges
    first-parent color no-color diff-filter untracked-files ignored others exclude-standard modified date unified
    count always dirty get get-all show-origin dry-run line-number ignore-case
    """
)
_VALUED = "n S G L e sort format grep author since until max-count contains merged get get-all"
_VERBS: dict[str, tuple[str, str, str]] = {
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


def git(call: ShellCall) -> Meanings:
    options = read(call.args, "C c git-dir work-tree namespace exec-path super-prefix config-env", until_word=True)
    global_options = call.args[: len(call.args) - len(options.operands)]
    if _only_looks(global_options, options.operands):
        return
    all_ratings = ratings(ShellCall("git", options.operands))
    all_ratings += ratings(ShellCall("git-options", global_options))
    yield from all_ratings or [Rating("medium", f"changes the repository (git {' '.join(options.operands[:1])})")]


def _only_looks(global_options: tuple[str, ...], operands: tuple[str, ...]) -> bool:
    if not set(read(global_options, "C").flags) <= {"C", "no-pager", "P", "version", "help"} or UNKNOWN in "".join(
        global_options
    ):
        return False
    if not operands:
        return True
    verb, options = operands[0], read(operands[1:], _VALUED)
    has_known_flags = all(flag in _SAFE or re.fullmatch(r"[-\d.,]+", flag) for flag in options.flags)
    if verb not in _LOOKING or not has_known_flags or not literal(operands[1:]):
        return False
    words, options_wanted, options_barred = _VERBS.get(verb, (".*", "", ""))
    flags = frozenset(options.flags)
    fits = re.fullmatch(words, " ".join(options.operands), re.S) is not None or bool(flags & names(options_wanted))
    return fits and not flags & names(options_barred)
