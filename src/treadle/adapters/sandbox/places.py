"""The paths of a machine as commands get them: guarded ones in a project and in a home, and the stand-ins for those
that do not exist; and people's homes: an empty folder of its own, and in it, read-only, the folders of tools that
projects are built with. Owns the lists; mounts nothing.

The lists of homes name the visible paths, not the hidden ones: so a key in an unexpected place is invisible, and a
pattern such as `~/.*/id_*` has nothing to match."""

import glob
import os
import pwd
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from treadle.base.file_system import is_below
from treadle.base.subprocesses import Launch, run_blocking
from treadle.chat.change_rules import OWN_FOLDER
from treadle.errors import ToolError
from treadle.ports.sandbox import IN_A_REPOSITORY, PrivateHome

PROTECTED = (OWN_FOLDER,)

STAND_INS: Mapping[str, bytes] = {"config": b"", "config.worktree": b"", "commondir": b".\n"}
"""By name, the content of a file that is to git as if it were not there. All others are stood in for by a folder."""

SECRETS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".config/gcloud", ".config/gh", ".config/git/credentials", ".kube",
    ".docker/config.json", ".netrc", ".git-credentials", ".pypirc", ".cargo/credentials.toml", ".password-store",
    ".local/share/keyrings",
)  # fmt: skip
"""Keys and passwords, below the user's home folder."""


def find_protected_paths(root: str) -> tuple[str, ...]:
    """The paths below a root that commands may not write, whether they exist or not."""
    git = os.path.join(root, ".git")
    repositories = (git, *_iterate_modules(os.path.join(git, "modules")))
    paths = [os.path.join(repository, name) for repository in repositories for name in IN_A_REPOSITORY]
    for worktree in _list_folders(os.path.join(git, "worktrees")):  # linked worktrees name their repository in a file
        named = (os.path.join(worktree, name) for name in ("commondir", "config.worktree"))
        paths += (path for path in named if os.path.lexists(path))
    return (*paths, *(os.path.join(root, name) for name in PROTECTED))


def find_hidden_paths(*own_folders: str, user_home: str | None = None) -> tuple[str, ...]:
    """The paths that commands may not read: Treadle's own folders, and the user's keys."""
    home = user_home or str(Path.home())
    paths = [*own_folders, *(os.path.join(home, name) for name in SECRETS)]
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.lexists(path)))


def list_python_folders() -> tuple[str, ...]:
    """Where this interpreter and Treadle itself lie."""
    return sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[2])


def _iterate_modules(folder: str) -> Iterator[str]:
    """The repositories of submodules; their names may have slashes."""
    for child in _list_folders(folder):
        is_repository = os.path.lexists(os.path.join(child, "HEAD"))
        if is_repository:
            yield child
        yield from _iterate_modules(os.path.join(child, "modules") if is_repository else child)


def _list_folders(folder: str) -> list[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    return []


HOMES = ("/home", "/root", "/Users")  # Where people's homes lie
_SYSTEM_HOMES = "/ /bin /dev /etc /lib /opt /proc /run /sbin /srv /sys /tmp /usr /usr/sbin /var /var/tmp"
"""Homes of the system's own users, which are no homes."""

_TOOLS = """
.pyenv .rye .virtualenvs miniconda3 anaconda3 miniforge3 mambaforge .local/bin .local/lib .local/share/virtualenvs
.local/share/uv .local/share/pipx .local/share/hatch .local/share/mise .local/share/rtx .local/share/fnm
.local/share/pnpm .local/share/pypoetry .rustup .cargo/bin .cargo/env .nvm .volta .asdf .fnm .nodenv .bun .deno .yarn
.sdkman .jenv .rbenv .gem .ghcup .stack .opam .elan .juliaup .julia .dotnet .nix-profile .local/state/nix Android/Sdk
Library/Python Library/Android Library/pnpm
"""
_CACHES = """
.cargo/registry .cargo/git go/pkg .m2/repository .gradle/caches .gradle/wrapper .npm/_cacache .nuget/packages .ccache
.pnpm-store .cabal/packages .cabal/store .cache/pip .cache/uv .cache/go-build .cache/golangci-lint .cache/yarn
.cache/pnpm .cache/node .cache/node-gyp .cache/pre-commit .cache/ruff .cache/mypy .cache/ccache .cache/sccache
.cache/bazel .cache/deno .cache/bun .cache/composer .cache/electron .cache/ms-playwright .cache/puppeteer .cache/Cypress
.cache/huggingface/hub .cache/torch .cache/pypoetry .cache/virtualenv .cache/pipenv .cache/zig .cache/typescript
Library/Caches/pip Library/Caches/uv Library/Caches/go-build Library/Caches/Yarn Library/Caches/ms-playwright
"""
_SETTINGS = (".cargo/config.toml", ".cargo/config")  # Visible if there is no secret in them
_VARIABLES: Mapping[str, str] = {
    "CARGO_HOME": ".cargo", "RUSTUP_HOME": ".rustup", "PYENV_ROOT": ".pyenv", "NVM_DIR": ".nvm", "VOLTA_HOME": ".volta",
    "ASDF_DATA_DIR": ".asdf", "SDKMAN_DIR": ".sdkman", "GOPATH": "go", "MISE_DATA_DIR": ".local/share/mise",
}  # fmt: skip
"""Which variable says where a tool's folder is: so it is found where commands have a home elsewhere."""
_NAMED_BY = (
    *("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "RUSTUP_HOME", "NVM_DIR", "VOLTA_HOME", "ASDF_DIR", "ASDF_DATA_DIR"),
    *("GOROOT", "GOMODCACHE", "GOCACHE", "JAVA_HOME", "SDKMAN_DIR", "ANDROID_HOME", "ANDROID_SDK_ROOT", "DOTNET_ROOT"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE"),
)
"""Variables of the user that name such a folder, wherever it lies."""
KEY_FILES = (
    *("credentials*", ".netrc", "_netrc", ".npmrc", ".pypirc", ".git-credentials", ".env", ".env.*", ".vault-token"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore"),
)
"""Names of keys, hidden where they lie at the top of a visible folder."""
_SECRET_TEXT = re.compile(rb"token|passw|secret|://[^/@\s]*:[^/@\s]+@", re.I)
_GIT_KEYS = re.compile(
    r"(user\.(name|email)|init\.defaultbranch|safe\.directory|core\.(autocrlf|eol|filemode|ignorecase)"
    r"|pull\.rebase|branch\.autosetuprebase|merge\.conflictstyle|diff\.algorithm)\Z"
)
_GIT_S = 5.0


def find_private_home(root: str, env: Mapping[str, str], extra_paths: Iterable[str] = ()) -> PrivateHome | None:
    """The home that commands see instead of the real ones; None if the project is a home or contains one."""
    own_homes, homes = _find_homes(env)
    home = next(iter(own_homes), "")
    if not home or is_below(home, root):
        return None
    covered = tuple(path for path in homes if not is_below(path, root))
    candidates = [*_join_paths(own_homes, _TOOLS.split())]
    for path in _join_paths(own_homes, _SETTINGS):
        with suppress(OSError):
            candidates += () if _SECRET_TEXT.search(Path(path).read_bytes()) else (path,)
    candidates += [*env.get("PATH", "").split(os.pathsep), *(env.get(name, "") for name in _NAMED_BY)]
    candidates += [*list_python_folders(), *_find_repositories(root, covered)]
    candidates += (os.path.normpath(os.path.join(home, os.path.expanduser(path))) for path in extra_paths)
    caches = _select_visible(_join_paths(own_homes, _CACHES.split()), covered, root)
    visible = [path for path in _select_visible(candidates, covered, root) if path not in caches]
    keys = []
    for folder in visible:
        with suppress(OSError):
            names = os.listdir(folder) if os.path.isdir(folder) else ()
            keys += [f"{folder}/{name}" for name in names if any(fnmatchcase(name, each) for each in KEY_FILES)]
    return PrivateHome(
        path=home,
        covered=covered,
        visible=tuple(visible),
        caches=tuple(caches),
        keys=tuple(sorted(keys)),
        variables={name: f"{home}/{place}" for name, place in _VARIABLES.items() if os.path.isdir(f"{home}/{place}")},
        gitconfig=_read_git_settings(env.get("HOME", "")),
    )


def _find_homes(env: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The user's own homes, the one in use first; and all that there are. A home by a name that will be covered (a link
    in /home) counts by that name, too."""
    declared_homes = [env.get("HOME", ""), str(Path.home())]
    with suppress(KeyError):
        declared_homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    existing_homes = [os.path.normpath(path) for path in declared_homes if os.path.isabs(path) and os.path.isdir(path)]
    real = [os.path.realpath(path) for path in (*existing_homes, *HOMES) if os.path.isdir(path)]
    linked = [path for path in existing_homes if any(is_below(path, each) for each in real)]
    own_homes = dict.fromkeys(path if path in linked else os.path.realpath(path) for path in existing_homes)
    homes = [path for path in dict.fromkeys((*own_homes, *real, *linked)) if path not in _SYSTEM_HOMES.split()]
    return [path for path in homes if path in own_homes], homes


def _join_paths(homes: Iterable[str], names: Sequence[str]) -> Iterator[str]:
    return (f"{home}/{name}" for home in homes for name in names)


def _find_repositories(root: str, covered: Iterable[str]) -> Iterator[str]:
    """The repository in which the root is a folder, and the one of which it is a linked worktree."""
    folder = os.path.dirname(root)
    while any(is_below(folder, home) and folder != home for home in covered):
        if os.path.isdir(f"{folder}/.git"):
            yield folder
        folder = os.path.dirname(folder)
    with suppress(OSError, UnicodeDecodeError):
        git_folder = Path(root, ".git").read_text().removeprefix("gitdir:").strip()
        git = os.path.realpath(os.path.join(root, git_folder))
        back = os.path.realpath(os.path.dirname(Path(git, "gitdir").read_text().strip()))
        common = os.path.realpath(os.path.join(git, Path(git, "commondir").read_text().strip()))
        if back == root and os.path.dirname(git) == f"{common}/worktrees" and os.path.isfile(f"{common}/HEAD"):
            yield common


def _select_visible(paths: Iterable[str], covered: Iterable[str], root: str) -> list[str]:
    """Those that exist below a covered folder and outside the root, the outermost ones. A home is never shown."""
    homes = set(covered)
    absolute_paths = dict.fromkeys(os.path.normpath(path) for path in paths if os.path.isabs(path))
    outside = [path for path in absolute_paths if not is_below(path, root)]
    inside = [path for path in outside if any(is_below(path, home) for home in homes)]
    there = [path for path in inside if os.path.exists(path) and not any(is_below(home, path) for home in homes)]
    return [path for path in there if not any(is_below(path, outer) for outer in there if outer != path)]


_SYSTEM_PATH = "/usr/local/bin:/opt/homebrew/bin:/usr/bin:/bin"  # Where no project brings a git of its own (S-09)


@cache
def _read_git_settings(home: str) -> str:
    """The user's git settings that name neither programs nor secrets: the committer's name, line endings."""
    if (git := shutil.which("git", path=_SYSTEM_PATH)) is None:
        return ""
    env, output = {"HOME": home, "PATH": _SYSTEM_PATH, "GIT_CONFIG_NOSYSTEM": "1"}, bytearray()
    with suppress(ToolError):
        line = [git, "config", "--global", "--includes", "--null", "--list"]
        run_blocking(Launch(line, env), output.extend, _GIT_S)
    pairs = (entry.partition("\n")[::2] for entry in output.decode(errors="replace").split("\0"))
    lines = ""
    for key, value in ((key, value) for key, value in pairs if _GIT_KEYS.match(key)):
        section, _, name = key.rpartition(".")
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines += f'[{section}]\n\t{name} = "{escaped}"\n'
    return lines


SYSTEM_KEYS = (
    "/etc/shadow*", "/etc/gshadow*", "/etc/sudoers*", "/etc/ssh/ssh_host_*_key", "/etc/ssl/private", "/etc/krb5.keytab",
    "/etc/kubernetes", "/etc/docker/key.json", "/etc/wireguard", "/etc/NetworkManager/system-connections",
)  # fmt: skip


def find_system_keys() -> Iterator[str]:
    """Keys of the machine that this user could read: root, mostly."""
    return (path for pattern in SYSTEM_KEYS for path in glob.glob(pattern) if os.access(path, os.R_OK))
