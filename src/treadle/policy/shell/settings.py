"""Variables that make programs obey: where programs are found, what is loaded into them, what they run."""

import re

from treadle.policy.shell.idioms import ruin
from treadle.policy.shell.model import UNKNOWN, Found, shown

_LOADS = re.compile(
    r"LD_\w+|DYLD_\w+|GCONV_PATH|PYTHON(?:STARTUP|HOME)|PERL5(?:OPT|LIB|DB)|RUBY(?:OPT|LIB)|BASH_ENV|ENV|ZDOTDIR|SHELLOPTS"
    r"|BASHOPTS|BASH_FUNC.*|_?JAVA_(?:TOOL_)?OPTIONS|GIT_(?:CONFIG\w*|EXEC_PATH|TEMPLATE_DIR|DIR)|TAR_OPTIONS|MAKEFLAGS"
    r"|RUSTC(?:_WRAPPER)?|CLASSPATH|NODE_PATH|LUA_INIT|PHPRC|HOSTALIASES|GLIBC_TUNABLES|RIPGREP_CONFIG_PATH"
)
_RUNS = re.compile(
    r"\w*PAGER|EDITOR|VISUAL|GIT_(?:EDITOR|SEQUENCE_EDITOR|SSH|SSH_COMMAND|EXTERNAL_DIFF|ASKPASS|PROXY_COMMAND)|\w+_ASKPASS"
    r"|SUDO_EDITOR|LESSOPEN|LESSCLOSE|BROWSER|\w+_RSH|PROMPT_COMMAND|PS[0-4]|FCEDIT|TEXTEDIT|DIFFPROG"
)
_HARMLESS = ("", "cat", "less", "more", "true", ":", "false", "vim", "nano", "less -R", "vi")
_OBEYED = re.compile(
    r"GIT_\w+|LESS\w*|MAN\w+|TERMINFO\w*|BAT_\w+|S?RANDOM|SECONDS|LINENO|OPTIND|NODE_OPTIONS|PYTHONPATH|PYTHONINSPECT|CC|CXX|LD|AR|SHELL|(?i:https?_proxy|all_proxy)|\w*_(?:INDEX_URL|REGISTRY)"
    r"|npm_config_\w+|PIP_\w+|HOME|DOCKER_HOST|KUBECONFIG|\w+_BASE_URL"
)
_SECRET = re.compile(
    r"(^|_)(SECRETS?|TOKEN|PASSWORD|PASSWD|PASSPHRASE|API_?KEY|PRIVATE_KEY|ACCESS_KEY|CREDENTIALS?|AUTH)(_|$)", re.I
)
_TOOL_PLACES = re.compile(r"/(?:usr|opt|snap|nix)/|/s?bin|~/\.(?:cargo|local|nvm|pyenv|rbenv|npm|deno|bun|rustup)|~/go")


def setting(name: str, value: str) -> list[Found]:
    """What it means to set the variable, for what runs after it."""
    if name == "PATH":
        places = [place for place in value.split(":") if place != UNKNOWN]
        known = all(_TOOL_PLACES.match(place) for place in places)
        return [Found("medium" if known else "high", f"changes where programs are found: {shown(value)[:80]}")]
    if _LOADS.fullmatch(name):
        return (
            [Found("high", f"sets {name}, which loads code or settings into programs"), *ruin(value)] if value else []
        )
    if _RUNS.fullmatch(name):
        quiet = re.fullmatch(r"PS[0-4]", name) and not re.search(rf"[$`{UNKNOWN}]", value)
        if quiet or value.strip() in _HARMLESS:
            return []
        return [Found("high", f"sets {name}, which programs run as a command"), *ruin(value)]
    return [Found("medium", f"sets {name}, which other programs obey")] if _OBEYED.fullmatch(name) else []


def is_secret(name: str) -> bool:
    return bool(_SECRET.search(name))
