"""GitHub Models through the `gh` program (M-06): `gh:openai/gpt-4.1`. No key: `gh` has its own."""

import re

from treadle.errors import ConfigError
from treadle.models.command_line.adapter import CommandLineModel, environment, find_program
from treadle.models.provider_context import ProviderContext
from treadle.ports.model import ModelInfo

WINDOW = 8_000
"""What GitHub takes of most models in one request, whatever the model could read."""
_INSTALL = "gh extension install github/gh-models"
_NAME = re.compile(r"\w[\w./-]*")
_HINTS = {
    'unknown command "models"': f"Get the extension with: {_INSTALL}",
    "gh auth login": "Sign in with: gh auth login",
    "unauthorized": "Sign in with: gh auth login",
}


def connect(name: str, around: ProviderContext) -> CommandLineModel:
    if not _NAME.fullmatch(name):  # it becomes a word of a command line: `--org` would be an order to gh
        raise ConfigError(f"gh:{name} names no model of GitHub; write it as gh:publisher/name")
    program = find_program("gh", around.env)
    if program is None:
        raise ConfigError(f"gh:{name} needs the program gh: install it, then: gh auth login; {_INSTALL}")
    info = ModelInfo("gh", name, window=WINDOW, max_output=WINDOW // 2, temperature=None, native_tools=False)
    env = environment(around.env, "GH_*", "GITHUB_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
    return CommandLineModel(around.catalogue.adjust(info), [program, "models", "run", name], env, hints=_HINTS)
