"""The environment of a command: the user's own, minus what looks like a secret (M-13, T-05)."""

import re
from collections.abc import Mapping

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|PRIVATE|_AUTH$|_PAT$|^PGPASS", re.I)
_SECRET_VALUE = re.compile(
    r"^[a-z][a-z0-9+.-]*://[^/@\s]*:[^/@\s]+@"  # a URL with a password in it
    r"|^(sk-|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|AKIA|AIza|hf_)[A-Za-z0-9_-]{8}",
    re.I,
)
_QUIET = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""Nobody sits at this terminal: no colours, no pager, no question."""


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in environment.items()
        if not _SECRET_NAME.search(name) and not _SECRET_VALUE.search(value)
    }
    return kept | _QUIET
