"""Which files a model may change without asking (S-06). A pattern says true = safe to auto-approve, false = ask; the
last one that matches wins, and what none matches is safe. Knows no tools and no modes."""

import os
from collections.abc import Mapping

import msgspec

from treadle.file_system import is_below
from treadle.policy.globs import matches

PINS = "a tool writes it, and it pins what is installed"
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "it may hold secrets": (
        ".env",
        ".env.*",
        ".envrc",
        "*.{pem,key,p12,pfx,jks,keystore,kdbx,asc,gpg,ppk}",
        "id_{rsa,dsa,ecdsa,ed25519}*",
        "**/.{ssh,gnupg,aws,azure,kube,docker}/**",
        ".{netrc,npmrc,yarnrc,yarnrc.yml,pypirc,git-credentials,htpasswd,pgpass}",
        "{credentials,secrets}.{json,yml,yaml,toml,ini,txt}",
        "*.{tfstate,tfvars}",
        "*.tfstate.*",
    ),
    PINS: (
        "*.{lock,lockb,lockfile}",
        "*-lock.{json,yaml,yml}",
        "npm-shrinkwrap.json",
        "pylock*.toml",
        "go.sum",
        "Package.resolved",
    ),
    "servers run what it says": (
        "**/.github/{workflows,actions}/**",
        "**/.github/{dependabot.yml,dependabot.yaml,CODEOWNERS}",
        "CODEOWNERS",
        "**/.{circleci,buildkite,gitea,forgejo,woodpecker}/**",
        ".{gitlab-ci,travis,drone,woodpecker,appveyor}.{yml,yaml}",
        "{appveyor,azure-pipelines,bitbucket-pipelines,cloudbuild}.{yml,yaml}",
        "Jenkinsfile*",
    ),
    "version control runs or obeys it": (
        ".git",
        "**/.git/**",
        ".git{modules,attributes,config}",
        "**/.{husky,githooks,hg,svn,jj}/**",
        ".pre-commit-config.yaml",
        "lefthook.{yml,yaml,toml}",
    ),
    "a build runs what it names": ("**/.{cargo,mvn,bundle}/**", "**/gradle/wrapper/**"),
    "a shell or an editor runs what is in it": (
        ".{bashrc,bash_profile,bash_login,bash_logout,bash_aliases,profile,inputrc}",
        ".z{shrc,shenv,profile,login,logout}",
        "config.fish",
        ".{vimrc,exrc,nvimrc,nvim.lua,gdbinit,lldbinit,dir-locals.el}",
        "**/.{vscode,idea,zed,fleet,devcontainer}/**",
        ".devcontainer.json",
        "*.code-workspace",
        "{sitecustomize,usercustomize}.py",
        "*.pth",
    ),
    "it tells agents what to do": (
        "{AGENTS,CLAUDE,GEMINI}.md",
        "**/.github/copilot-instructions.md",
        ".{cursorrules,windsurfrules,clinerules}",
        "**/.{treadle,claude,cursor,codex,gemini,windsurf}/**",
        "{.mcp,mcp}.json",
    ),
}
_SAFE = ("*.{example,sample,template,dist}",)
"""What only shows the shape of a sensitive file."""

DEFAULTS: Mapping[str, bool] = {
    pattern: False for patterns in _GROUPS.values() for pattern in patterns
} | dict.fromkeys(_SAFE, True)
_WHY = {pattern: why for why, patterns in _GROUPS.items() for pattern in patterns}
OWN_PATTERN = "a setting says so"
"""Why a file is sensitive by a pattern of the user's own."""


class Sensitive(msgspec.Struct, frozen=True):
    """Why a file is asked for: the pattern that says so, and what that means."""

    path: str
    pattern: str
    why: str


def find(root: str, path: str, own: Mapping[str, bool]) -> Sensitive | None:
    """What is sensitive about a file, by its name as given and by the file that it leads to: a link is what it points
    at. A path that leads out of the root is the business of the workspace, which refuses it."""
    for name in names(root, path):
        if (found := judge(name, own)) is not None:
            return found
    return None


def judge(name: str, own: Mapping[str, bool]) -> Sensitive | None:
    """The same for one name, relative to the root."""
    for pattern in reversed(tuple(own)):
        if matches(pattern, name):
            return None if own[pattern] else Sensitive(name, pattern, OWN_PATTERN)
    for pattern in _BACKWARDS:
        if matches(pattern, name):
            return None if DEFAULTS[pattern] else Sensitive(name, pattern, _WHY[pattern])
    return None


_BACKWARDS = tuple(DEFAULTS)[::-1]


def names(root: str, path: str) -> tuple[str, ...]:
    """A path inside the root as it is spelled, and as it is when links are followed; each relative to the root."""
    if not root or "\0" in path:
        return (os.path.normpath(path),)
    spelled = os.path.normpath(os.path.join(root, path))
    real_root = os.path.realpath(root)
    base = real_root if is_below(spelled, real_root) else root
    named = os.path.relpath(spelled, base)
    real = os.path.realpath(os.path.join(real_root, named))
    return tuple(dict.fromkeys((named, os.path.relpath(real, real_root))))
