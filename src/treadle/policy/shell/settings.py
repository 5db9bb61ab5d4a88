"""Variables that make programs obey: where programs are found, what is loaded into them, what they run."""

import re

from treadle.policy.shell.idioms import ruin
from treadle.policy.shell.model import UNKNOWN, Found, shown

_RUNS = re.compile(
    r"LD_\w+|DYLD_\w+|GCONV_PATH|PYTHON(?:STARTUP|HOME)|PERL5(?:OPT|LIB|DB)|RUBY(?:OPT|LIB)|BASH_ENV|ENV|ZDOTDIR|SHELLOPTS"
    r"|BASHOPTS|BASH_FUNC.*|_?JAVA_(?:TOOL_)?OPTIONS|GIT_(?:CONFIG\w*|EXEC_PATH|TEMPLATE_DIR|DIR)|TAR_OPTIONS|MAKEFLAGS"
    r"|RUSTC(?:_WRAPPER)?|CLASSPATH|NODE_PATH|LUA_INIT|PHPRC|HOSTALIASES|GLIBC_TUNABLES|RIPGREP_CONFIG_PATH"
    r"|\w*PAGER|EDITOR|VISUAL|GIT_(?:EDITOR|SEQUENCE_EDITOR|SSH|SSH_COMMAND|EXTERNAL_DIFF|ASKPASS|PROXY_COMMAND)|\w+_ASKPASS"
    r"|SUDO_EDITOR|LESSOPEN|LESSCLOSE|BROWSER|\w+_RSH|PROMPT_COMMAND|PS[0-4]|FCEDIT|TEXTEDIT|DIFFPROG"
)
_HARMLESS = ("", "cat", "less", "more", "true", ":", "false", "vim", "nano", "less -R", "vi")
_OBEYED = re.compile(
    r"GIT_\w+|LESS\w*|MAN\w+|TERMINFO\w*|BAT_\w+|S?RANDOM|SECONDS|LINENO|OPTIND|NODE_OPTIONS|PYTHONPATH|PYTHONINSPECT|CC|CXX|LD|AR|SHELL|(?i:https?_proxy|all_proxy)|\w*_(?:INDEX_URL|REGISTRY)"
    r"|npm_config_\w+|PIP_\w+|HOME|DOCKER_HOST|KUBECONFIG|\w+_BASE_URL"
)
_TOOL_PLACES = re.compile(r"/(?:usr|opt|snap|nix)/|/s?bin|~/\.(?:cargo|local|nvm|pyenv|rbenv|npm|deno|bun|rustup)|~/go")


def setting(name: str, value: str) -> list[Found]:
    """What it means to set the variable, for what runs after it."""
    if name == "PATH":
        places = [place for place in value.split(":") if place != UNKNOWN]
        known = all(_TOOL_PLACES.match(place) for place in places)
        return [Found("medium" if known else "high", f"changes where programs are found: {shown(value)[:80]}")]
    if _RUNS.fullmatch(name):
        harmless = value.strip() in _HARMLESS
        return [] if harmless else [Found("high", f"sets {name}, by which programs run code"), *ruin(value)]
    return [Found("medium", f"sets {name}, which other programs obey")] if _OBEYED.fullmatch(name) else []
