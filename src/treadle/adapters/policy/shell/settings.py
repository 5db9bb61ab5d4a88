"""Variables that make programs obey: where programs are found, what is loaded into them, what they run."""

import re

from treadle.adapters.policy.shell.idioms import ruin
from treadle.adapters.policy.shell.model import UNKNOWN, Rating, mask_unknown
from treadle.chat.carried_variables import starts_programs

_LOADED = re.compile(r"PERL5LIB|RUBYLIB|CLASSPATH|NODE_PATH")
"""Where languages find code by the names that programs give."""
_HARMLESS = ("", "cat", "less", "more", "true", ":", "false", "vim", "nano", "less -R", "vi")
_OBEYED = re.compile(
    r"GIT_\w+|LESS\w*|MAN\w+|TERMINFO\w*|BAT_\w+|S?RANDOM|SECONDS|LINENO|OPTIND|NODE_OPTIONS|PYTHONPATH|PYTHONINSPECT|CC|CXX|LD|AR|SHELL|(?i:https?_proxy|all_proxy)|\w*_(?:INDEX_URL|REGISTRY)"
    r"|npm_config_\w+|PIP_\w+|HOME|DOCKER_HOST|KUBECONFIG|\w+_BASE_URL"
)
_TOOL_PLACES = re.compile(r"/(?:usr|opt|snap|nix)/|/s?bin|~/\.(?:cargo|local|nvm|pyenv|rbenv|npm|deno|bun|rustup)|~/go")


def setting(name: str, value: str) -> list[Rating]:
    """Rate the setting of a variable, by its effect on later commands."""
    if name == "PATH":
        places = [place for place in value.split(":") if place != UNKNOWN]
        has_known_places = all(_TOOL_PLACES.match(place) for place in places)
        return [
            Rating(
                "medium" if has_known_places else "high",
                f"changes where programs are found: {mask_unknown(value)[:80]}",
            )
        ]
    if starts_programs(name, value) or _LOADED.fullmatch(name):
        harmless = value.strip() in _HARMLESS
        return [] if harmless else [Rating("high", f"sets {name}, by which programs run code"), *ruin(value)]
    return [Rating("medium", f"sets {name}, which other programs obey")] if _OBEYED.fullmatch(name) else []
