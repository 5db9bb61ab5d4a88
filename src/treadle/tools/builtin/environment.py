"""The environment of a command: the user's own, minus what looks like secrets: by its name, by its value, or because
it contains the value of one that does (M-13, T-05)."""

import re
from collections.abc import Mapping

from treadle.protocol.permissions import SECRET_NAME

_SECRET_VALUE = re.compile(
    r"^[a-z][a-z0-9+.-]*://[^/@\s]*:[^/@\s]+@"  # a URL with a password in it
    r"|^(sk-|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|AKIA|AIza|hf_)[A-Za-z0-9_-]{8}",
    re.I,
)
_QUIET = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""Nobody sits at this terminal: no colours, no pager, no question."""
_LEAST = 12
"""Shorter values of secrets are not looked for in others: they may be any word."""


def is_secret(name: str, value: str) -> bool:
    return bool(SECRET_NAME.search(name) or _SECRET_VALUE.search(value))


def secrets_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values that are secret by the name of their variable and long enough to be told from a word."""
    return tuple(
        value for name, value in environment.items() if SECRET_NAME.search(name) and len(value.strip()) >= _LEAST
    )


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    known = secrets_of(environment)
    kept = {
        name: value
        for name, value in environment.items()
        if not is_secret(name, value) and not any(secret in value for secret in known)
    }
    return kept | _QUIET
