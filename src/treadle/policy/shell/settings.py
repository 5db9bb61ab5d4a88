"""Variables that make programs obey: where programs are found, what is loaded into them, what they run."""

import re

from treadle.policy.shell.model import UNKNOWN, Effects, Found, Script, shown

_LOADS = re.compile(
    r"LD_(PRELOAD|AUDIT|LIBRARY_PATH|DEBUG_OUTPUT)|DYLD_\w+|GCONV_PATH|PYTHONSTARTUP|PYTHONHOME|PERL5(OPT|LIB|DB)|RUBY(OPT|LIB)"
    r"|BASH_ENV|ENV|ZDOTDIR|SHELLOPTS|BASHOPTS|BASH_FUNC.*|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|GIT_(CONFIG\w*|EXEC_PATH|TEMPLATE_DIR|DIR)"
    r"|TAR_OPTIONS|MAKEFLAGS|RUSTC(_WRAPPER)?|CLASSPATH|NODE_PATH|LUA_INIT|PHPRC|HOSTALIASES|LOCALDOMAIN|GLIBC_TUNABLES"
)
_RUNS = re.compile(
    r"(GIT_|MAN|PSQL_|SYSTEMD_|BAT_|AWS_)?PAGER|EDITOR|VISUAL|GIT_(EDITOR|SEQUENCE_EDITOR|SSH|SSH_COMMAND|EXTERNAL_DIFF|ASKPASS|PROXY_COMMAND)"
    r"|SSH_ASKPASS|SUDO_ASKPASS|SUDO_EDITOR|LESSOPEN|LESSCLOSE|BROWSER|RSYNC_RSH|CVS_RSH|PROMPT_COMMAND|PS[0-4]|FCEDIT|TEXTEDIT|DIFFPROG"
)
_HARMLESS = ("", "cat", "less", "more", "true", ":", "false", "vim", "nano", "less -R", "vi")
_OPTIONS = re.compile(
    r"NODE_OPTIONS|PYTHONPATH|PYTHONINSPECT|CC|CXX|LD|AR|SHELL|IFS_|http_proxy|https_proxy|HTTPS?_PROXY|ALL_PROXY"
    r"|\w*_(INDEX_URL|REGISTRY)|npm_config_\w+|PIP_\w+|HOME|DOCKER_HOST|KUBECONFIG|\w+_BASE_URL"
)
_SECRET = re.compile(
    r"(^|_)(SECRETS?|TOKEN|PASSWORD|PASSWD|PASSPHRASE|API_?KEY|PRIVATE_KEY|ACCESS_KEY|CREDENTIALS?|AUTH)(_|$)", re.I
)
_TOOL_PLACES = (
    "/usr/",
    "/bin",
    "/sbin",
    "/opt/",
    "/snap/",
    "/nix/",
    "~/.cargo",
    "~/.local",
    "~/go",
    "~/.nvm",
    "~/.pyenv",
    "~/.rbenv",
    "~/.npm",
    "~/.deno",
    "~/.bun",
    "~/.rustup",
    "/home/linuxbrew",
)


def setting(name: str, value: str) -> Effects:
    """What it means to set the variable, for what runs after it."""
    if name == "PATH":
        yield _path(value)
    elif _LOADS.fullmatch(name):
        if value:
            yield Found("high", f"sets {name}, which loads code or settings into every program after it")
    elif _RUNS.fullmatch(name):
        if name.startswith(("PS", "PROMPT")) and not re.search(r"[$`]", value) and name != "PROMPT_COMMAND":
            return
        if value.strip() not in _HARMLESS:
            yield Found("high", f"sets {name}, which programs run as a command")
            yield Script(value)
    elif _OPTIONS.fullmatch(name):
        yield Found("medium", f"sets {name}, which other programs obey")


def _path(value: str) -> Found:
    entries = [entry for entry in value.split(":") if entry != UNKNOWN]
    if any(not entry.startswith(_TOOL_PLACES) for entry in entries):
        return Found("high", f"changes where programs are found: {shown(value)[:80]}")
    return Found("medium", "changes where programs are found")


def is_secret(name: str) -> bool:
    return bool(_SECRET.search(name))
