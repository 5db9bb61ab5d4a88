"""The environment of a command: the variables named here or by the user, without those that look like secrets: by name,
by value, or because they contain the value of a secret (M-13, T-05, S-11)."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

from treadle.protocol.permissions import SECRET_NAME

_SECRET_VALUE = re.compile(
    r"^[a-z][a-z0-9+.-]*://[^/@\s]*:[^/@\s]+@"  # a URL with a password in it
    r"|^(sk-|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|AKIA|AIza|hf_)[A-Za-z0-9_-]{8}",
    re.I,
)
_QUIET = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""For a terminal without a person: no colours, no pager, no question."""
_LEAST = 12  # Shorter values of secrets are not looked for in others: they may be any word

_NAMES = """
HOME USER LOGNAME USERNAME SHELL PATH PWD OLDPWD SHLVL HOSTNAME TMPDIR TEMP TMP MANPATH INFOPATH EDITOR VISUAL
XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME
LANG LANGUAGE TZ TERM COLORTERM NO_COLOR FORCE_COLOR COLUMNS LINES LS_COLORS
CC CXX CPP LD AR AS NM RANLIB STRIP CFLAGS CXXFLAGS CPPFLAGS LDFLAGS LDLIBS MAKE MAKEFLAGS ARCH CROSS_COMPILE
LD_LIBRARY_PATH LIBRARY_PATH CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH ACLOCAL_PATH SOURCE_DATE_EPOCH
GOPATH GOROOT GOBIN GOCACHE GOMODCACHE GOFLAGS GOOS GOARCH GOARM GOAMD64 GOPROXY GOPRIVATE GONOPROXY GONOSUMDB
GOSUMDB GOTOOLCHAIN GO111MODULE GOEXPERIMENT GOMAXPROCS GODEBUG GOENV GOWORK
M2_HOME ANT_HOME KOTLIN_HOME SBT_OPTS ANDROID_HOME ANDROID_SDK_ROOT ANDROID_NDK_HOME
DJANGO_SETTINGS_MODULE STACK_ROOT HOMEBREW_PREFIX HOMEBREW_CELLAR HOMEBREW_REPOSITORY PERL5LIB
CI DEBUG VERBOSE DEBIAN_FRONTEND
SSL_CERT_FILE SSL_CERT_DIR CURL_CA_BUNDLE REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS GIT_SSL_CAINFO AWS_CA_BUNDLE
HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy
"""
_BEGINNINGS = """
LC_ CLICOLOR PYTHON VIRTUAL_ENV CONDA_ PIP_ UV_ POETRY_ PYENV_ PIPX_ PDM_ HATCH_ TOX_ NOX PYTEST_ COVERAGE_ MYPY RUFF_
FLASK_ CARGO RUST CGO_ JAVA_ JDK_ MAVEN_ MVN GRADLE_ NODE_ NVM_ NPM_CONFIG_ npm_config_ YARN_ PNPM_ COREPACK_ VOLTA_
FNM_ BUN_ DENO_ GEM_ BUNDLE_ RUBY RBENV_ COMPOSER_ PHP_ PERL_ DOTNET_ NUGET_ GHCUP_ CABAL_ MIX_ HEX_ NIX_ CMAKE_
PKG_CONFIG CCACHE_ SCCACHE_ VCPKG_ CONAN_ NINJA_ CUDA_ OMP_ OPENBLAS_ MKL_ ASDF_ MISE_ SDKMAN_ GIT_AUTHOR_
GIT_COMMITTER_
"""
ALLOWED = frozenset(_NAMES.split())
ALLOWED_BEGINNINGS = tuple(_BEGINNINGS.split())
"""The variables that developers' tools read, by name. All others stay outside: sockets (SSH_AUTH_SOCK, DOCKER_HOST,
DISPLAY), variables that make programs run others (LD_PRELOAD, BASH_ENV, GIT_SSH_COMMAND), and unknown ones."""


# An environment changes seldom, and every command looks at all of it several times.
@lru_cache(maxsize=2048)
def is_secret(name: str, value: str) -> bool:
    return _has_secret_name(name) or bool(_SECRET_VALUE.search(value))


@lru_cache(maxsize=2048)
def _has_secret_name(name: str) -> bool:
    return bool(SECRET_NAME.search(name))


def secrets_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values that are secret by the name of their variable and long enough to be told from a word."""
    return tuple(
        value for name, value in environment.items() if _has_secret_name(name) and len(value.strip()) >= _LEAST
    )


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """All that is no secret: for programs that the user named himself."""
    secrets = secrets_of(environment)
    variables = {
        name: value
        for name, value in environment.items()
        if not is_secret(name, value) and not any(secret in value for secret in secrets)
    }
    return variables | _QUIET


def command_environment(environment: Mapping[str, str], extra_names: Iterable[str] = ()) -> dict[str, str]:
    """The environment for a command: the variables of the list and those that the user added, as patterns."""
    patterns = tuple(extra_names)
    return {
        name: value
        for name, value in without_secrets(environment).items()
        if name in ALLOWED
        or name in _QUIET
        or name.startswith(ALLOWED_BEGINNINGS)
        or any(fnmatchcase(name, pattern) for pattern in patterns)
    }
