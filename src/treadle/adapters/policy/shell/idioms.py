"""Idioms of destruction, found without any grammar: in texts that cannot be read, and in code given to a program. And
variables that make programs obey: where programs are found, what is loaded into them, what they run."""

import re

from treadle.adapters.policy.shell.model import UNKNOWN, Rating, mask_unknown
from treadle.chat.carried_variables import starts_programs

_QUOTES = re.compile(r"[\\'\"]|\$(?=['\"])")
_SEPARATORS = re.compile(rf"\$\{{?IFS\}}?|[,\t\n\[\]{UNKNOWN}]|\$@|\$\w*\*")
_RUIN = (
    (
        r"\brm\b(?=[^;|&]{0,200}(?:\s-\w*[rR]|--recursive))(?:\s+[^\s;|&]+){0,6}\s+"
        r"(?:/|~|\$\{?HOME\}?|\.\.)(?:[/*.\s;&|)}`]|$)",
        "looks as if it deletes everything",
    ),
    (r"\bmkfs(?:\.\w+)?\s", "looks as if it makes a file system"),
    (r"(?:\bof=|>\s*)/dev/(?:[shv]d|nvme|mmcblk|disk|mapper)", "looks as if it writes to a disk"),
    (r"\b(?:shred|wipefs|blkdiscard)\b.{0,200}\s/dev/", "looks as if it erases a disk"),
    (r"([^\s(){}|&;]{1,40})\s*\(\)\s*\{.{0,200}?\1\s*\|\s*\1", "looks like a fork bomb"),
    (r"\bfork\s*(?:\(\))?\s*(?:while|until)\b|(?:\bwhile\b|\bloop\b).{0,40}\bfork\b", "looks like a fork bomb"),
    (r">\s*/etc/(?:passwd|shadow|sudoers)", "looks as if it overwrites the accounts"),
    (r"\bfind\s+(?:/|~|\$HOME)\s.{0,200}-delete", "looks as if it deletes everything"),
    (
        r"\b(?:rmtree|rm_rf|rmSync|removeSync|rimraf)\b[\s(]{0,3}(?:/|~)(?:[\s);]|$)",
        "looks as if it deletes everything",
    ),
    (r"\bRemove-Item\b.{0,80}-Recurse.{0,80}\s[/~](?:\s|$)", "looks as if it deletes everything"),
)
_MOST = 50_000
_LOADED = re.compile(r"PERL5LIB|RUBYLIB|CLASSPATH|NODE_PATH")
"""Where languages find code by the names that programs give."""
_HARMLESS = ("", "cat", "less", "more", "true", ":", "false", "vim", "nano", "less -R", "vi")
_OBEYED = re.compile(
    r"GIT_\w+|LESS\w*|MAN\w+|TERMINFO\w*|BAT_\w+|S?RANDOM|SECONDS|LINENO|OPTIND|NODE_OPTIONS|PYTHONPATH|PYTHONINSPECT|CC|CXX|LD|AR|SHELL|(?i:https?_proxy|all_proxy)|\w*_(?:INDEX_URL|REGISTRY)"
    r"|npm_config_\w+|PIP_\w+|HOME|DOCKER_HOST|KUBECONFIG|\w+_BASE_URL"
)
_TOOL_PLACES = re.compile(r"/(?:usr|opt|snap|nix)/|/s?bin|~/\.(?:cargo|local|nvm|pyenv|rbenv|npm|deno|bun|rustup)|~/go")


def ruin(text: str) -> list[Rating]:
    """Return the destructive idioms in a text that may be run. A mention counts as the act."""
    plain = _SEPARATORS.sub(" ", _QUOTES.sub("", text[:_MOST]))
    return [Rating("critical", reason) for pattern, reason in _RUIN if re.search(pattern, plain, re.DOTALL)]


def setting(name: str, value: str) -> list[Rating]:
    """Rate the setting of a variable, by its effect on later commands."""
    if name == "PATH":
        places = [place for place in value.split(":") if place != UNKNOWN]
        has_known_places = all(_TOOL_PLACES.match(place) for place in places)
        reason = f"changes where programs are found: {mask_unknown(value)[:80]}"
        return [Rating("medium" if has_known_places else "high", reason)]
    if starts_programs(name, value) or _LOADED.fullmatch(name):
        harmless = value.strip() in _HARMLESS
        return [] if harmless else [Rating("high", f"sets {name}, by which programs run code"), *ruin(value)]
    return [Rating("medium", f"sets {name}, which other programs obey")] if _OBEYED.fullmatch(name) else []
