"""Which files a model may change without asking (S-06). A pattern says true = safe to auto-approve, false = ask; the
last one that matches wins, and what none matches is safe. Patterns: `*` and `?` within one name, `**` across folders,
`[…]`, `{a,b}`; without a slash at any depth; case and Unicode spelling make no difference, as on many disks."""

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice

import msgspec

from treadle.base.file_system import is_below
from treadle.diff.changes import CACHES

WILD = re.compile(r"[*?\[\]{}\\]")


def matches_path(pattern: str, path: str) -> bool:
    return _compile_pattern(pattern).fullmatch(fold_case(path)) is not None


def fold_case(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def escape_path(path: str) -> str:
    escaped = WILD.sub(lambda match: f"\\{match[0]}", path)
    return escaped if "/" in escaped else f"/{escaped}"


def is_literal(pattern: str) -> bool:
    return WILD.search(re.sub(r"\\.", "", pattern)) is None


@lru_cache(maxsize=1_024)
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    text = fold_case(pattern).removeprefix("./")
    anywhere = "/" not in text.rstrip("/")
    text = text.lstrip("/")
    if text.endswith("/"):
        text += "**"
    prefix = "(?:.*/)?" if anywhere else ""
    try:
        return re.compile(prefix + _translate_pattern(text), re.DOTALL)
    except re.error:  # such as [z-a]: then every character stands for itself
        return re.compile(prefix + re.escape(text), re.DOTALL)


_GLOB_TOKEN = re.compile(r"\*\*/|\*\*|\[(?P<set>.[^]]*)\]|\\(?P<escaped>.)|.", re.S)
_GLOB_MEANINGS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _translate_pattern(text: str) -> str:
    pieces: list[str] = []
    depth = 0
    for match in _GLOB_TOKEN.finditer(text):
        token = match[0]
        if token in _GLOB_MEANINGS:
            pieces.append(_GLOB_MEANINGS[token])
        elif inside := match["set"]:
            inside = inside.replace("\\", r"\\").replace("[", r"\[")
            pieces.append(f"(?!/)[{'^' + inside[1:] if inside[0] in '!^' else inside}]")
        elif token == "{" and "}" in text[match.end() :]:
            pieces.append("(?:")
            depth += 1
        elif token == "}" and depth:
            pieces.append(")")
            depth -= 1
        elif token == "," and depth:
            pieces.append("|")
        else:
            pieces.append(re.escape(match["escaped"] or token))
    return "".join(pieces) + ")" * depth


PINS = "a tool writes it, and it pins what is installed"
# fmt: off
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "it may hold secrets": (
        ".env", ".env.*", ".envrc", "*.{pem,key,p12,pfx,jks,keystore,kdbx,asc,gpg,ppk}", "id_{rsa,dsa,ecdsa,ed25519}*",
        "**/.{ssh,gnupg,aws,azure,kube,docker}/**",
        ".{netrc,npmrc,yarnrc,yarnrc.yml,pypirc,git-credentials,htpasswd,pgpass,condarc,gemrc,terraformrc,Renviron}",
        "{pip.conf,pip.ini,uv.toml,auth.json}", "[nN]u[gG]et.[cC]onfig",
        "{credentials,secrets}.{json,yml,yaml,toml,ini,txt}", "*.{tfstate,tfvars}", "*.tfstate.*",
    ),
    PINS: (
        "*.{lock,lockb,lockfile}", "*-lock.{json,yaml,yml}", ".terraform.lock.hcl", "npm-shrinkwrap.json",
        "pylock*.toml", "go.sum", "Package.resolved",
    ),
    "servers run what it says": (
        "**/.github/{workflows,actions,hooks}/**", "**/.github/{dependabot.yml,dependabot.yaml,CODEOWNERS}",
        "CODEOWNERS",
        "**/.{circleci,buildkite,gitea,forgejo,woodpecker,gitlab,gitlab-ci,tekton,semaphore,harness,teamcity}/**",
        "**/.{azuredevops,azure-pipelines,builds,codebuild}/**",
        ".{gitlab-ci,travis,drone,woodpecker,appveyor,cirrus,build,readthedocs,mergify}.{yml,yaml}",
        ".gitlab-ci*.{yml,yaml}",
        "{appveyor,azure-pipelines,bitbucket-pipelines,cloudbuild,buildspec,buildkite}.{yml,yaml}", ".cirrus.star",
        "{renovate.json,renovate.json5,.renovaterc,.renovaterc.json}", "Jenkinsfile*",
    ),
    "version control runs or obeys it": (
        ".git", "**/.git/**", ".git{modules,attributes,config}", "**/.{husky,githooks,hg,svn,jj}/**",
        ".pre-commit-{config,hooks}.{yaml,yml}",
        "{lefthook,.lefthook,lefthook-local,.lefthook-local}.{yml,yaml,toml,json}",
        "**/.{lefthook,lefthook-local,git-hooks}/**", ".{huskyrc,lintstagedrc,czrc,overcommit.yml}*",
    ),
    "a build or a package manager runs what it names": (
        "**/.{cargo,mvn,bundle}/**", "**/gradle/wrapper/**", "init.gradle{,.kts}",
        "**/.yarn/{releases,plugins,patches,sdks}/**", ".pnpmfile.{cjs,js,mjs}", "bunfig.toml",
        ".{bazelrc,bazeliskrc,buckconfig,sbtopts,jvmopts,bowerrc}", "rust-toolchain{,.toml}", ".pnp.{cjs,loader.mjs}",
        ".{mocharc,taprc,c8rc,nycrc}*", ".{rspec,proverc,byebugrc}",
    ),
    "a shell or an editor runs what is in it": (
        ".{bashrc,bash_profile,bash_login,bash_logout,bash_aliases,profile,inputrc}",
        ".z{shrc,shenv,profile,login,logout}", "config.fish",
        ".{vimrc,vimrc.local,lvimrc,exrc,nvimrc,nvim.lua,nvimrc.lua,gdbinit,lldbinit,dir-locals.el,dir-locals-2.el}",
        "**/.{vscode,idea,zed,fleet,devcontainer,helix,vim,nvim,emacs.d,kak,nova,vs,theia}/**",
        "**/.{codesandbox,idx,ona}/**", ".devcontainer.json", ".gitpod{.yml,.yaml,.Dockerfile}",
        "{.replit,replit.nix,devfile.yaml,.devfile.yaml}", "{jupyter_*config,ipython_config}.{py,json}",
        "*.{code-workspace,sublime-project,sublime-workspace}",
        ".{pdbrc,pdbrc.py,Rprofile,irbrc,pryrc,rdbgrc,ghci,iex.exs,psqlrc,sqliterc,octaverc,ocamlinit,erlang,guile}",
        ".{mongorc.js,mongoshrc.js,pythonrc,pythonrc.py,pythonstartup,juliarc.jl,radare2rc,tclshrc}",
        ".{mise,rtx}*.toml", "mise*.toml", "**/.mise/**", "**/.config/mise{,.toml}/**", "**/.config/mise*.toml",
        ".{tool-versions,asdfrc,autoenv,autoenv.zsh,env.leave}", "{devbox,devenv}.{json,nix,yaml}",
        "{sitecustomize,usercustomize}.py", "*.pth",
    ),
    "it tells agents what to do": (
        "{AGENTS,AGENT,CLAUDE,GEMINI,QWEN,CRUSH,WARP}{,.local,.override}.md", "**/.github/copilot-instructions.md",
        "**/.github/{instructions,agents,skills,prompts,chatmodes}/**",
        ".{cursorrules,windsurfrules,clinerules,roorules,roomodes,kilocodemodes,kilocoderules,continuerules,goosehints}*",
        ".rules*",
        "**/.{treadle,claude,cursor,codex,gemini,windsurf,clinerules,roo,agents,agent,amazonq,augment,kiro,junie}/**",
        "**/.{trae,qwen,opencode,continue,goose,copilot,factory,openhands,crush,aider,kilocode,claude-plugin,zencoder}/**",
        "**/.{serena,specify,tabnine,sourcegraph,devin,bolt,amp}/**", "replit.md",
        "{opencode,.opencode,crush,.crush}.{json,jsonc}", ".aider.{conf.yml,conf.yaml,model.settings.yml}",
        "{.mcp,mcp}.json",
    ),
}
_SAFE = ("*.{example,sample,template,dist}",)  # templates, which only show the shape of a sensitive file
_HARMLESS_DOT_FILES = (
    ".*ignore", ".git{keep,-blame-ignore-revs}", ".{keep,nojekyll,editorconfig,mailmap,coverage,DS_Store}",
    ".{python,node,ruby,java,go,terraform}-version", ".{nvmrc,isort.cfg,clang-format,clang-tidy,rustfmt.toml}",
    ".{markdownlint,yamllint,hadolint,swiftlint,editorconfig}.{json,yml,yaml,toml}",
    ".{ruff.toml,yamllint,jshintrc,shellcheckrc,pydocstyle,pycodestyle,ocamlformat,swiftformat,taplo.toml,typos.toml}",
    ".codecov.{yml,yaml}", ".{eslintcache,stylelintcache,phpunit.result.cache,testmondata,tsbuildinfo,coverage.*}",
    "**/.nyc_output/**/*.json",
    "**/.{changeset,well-known,reuse,github/ISSUE_TEMPLATE,github/PULL_REQUEST_TEMPLATE}/**/*.{md,txt,yml,yaml}",
    "**/.github/*.md",
)
# fmt: on
"""Dot-files that hold data: no program runs something because of them. Settings by which linters load code of the
project are not among them: `init-hook` of Pylint, plugins of Flake8, Prettier and Coverage, `require` of RuboCop."""
_MOST_ENTRIES = 1_000  # of a folder in which links are looked for
NEW_DOT_FILE = "it is new and hidden by its name, and a program may obey it"
_DOT_PATTERN = "**/.*"

_WHY = {pattern: why for why, patterns in _GROUPS.items() for pattern in patterns}
DEFAULTS = dict.fromkeys(_WHY, False) | dict.fromkeys(_SAFE, True)
OWN_PATTERN = "a setting says so"  # why a file is sensitive by a pattern of the user's own


class Sensitive(msgspec.Struct, frozen=True):
    """Why a file is asked for: the pattern that says so, and what that means."""

    path: str
    pattern: str
    reason: str


def find(root: str, path: str, user_patterns: Mapping[str, bool]) -> Sensitive | None:
    """Why a file is sensitive: by its name, by the file that it leads to, or by links to it."""
    known_names = resolve_names(root, path)
    by_name = next(filter(None, (judge(name, user_patterns) for name in known_names)), None)
    return by_name or next(find_linked(root, known_names[-1:], user_patterns), None)


def find_linked(root: str, paths: Iterable[str], user_patterns: Mapping[str, bool]) -> Iterator[Sensitive]:
    """Why files are sensitive by links to them: with `CLAUDE.md -> docs/ai.md`, agents obey `docs/ai.md`. Paths are
    free of links. Links are looked for in the root and its hidden folders."""
    targets = _list_link_targets(root) if root else {}
    for path in paths if targets else ():
        for target, link in targets.items():
            if is_below(path, target) and (sensitive := judge(link + path[len(target) :], user_patterns)) is not None:
                yield Sensitive(sensitive.path, sensitive.pattern, f"{sensitive.reason}; {link} is a link to {target}")


def find_new(root: str, path: str, user_patterns: Mapping[str, bool]) -> Sensitive | None:
    """The reason why a new file of the project is sensitive by its name; None if it exists, or lies in a cache."""
    name = resolve_names(root, path)[-1]
    folders = name.split("/")
    if "~" in folders or name.startswith(("/", "../")):  # in the home, or elsewhere outside of the project
        return None
    if os.path.lexists(os.path.join(root, name)) or CACHES.intersection(folders):
        return None
    return judge_new(name, user_patterns)


def _list_link_targets(root: str) -> dict[str, str]:
    """By target, the links of the root and of its hidden folders that lead to places in the project."""
    top = os.path.realpath(root)
    targets: dict[str, str] = {}
    folders = [""]
    for folder in folders:
        try:
            with os.scandir(os.path.join(top, folder)) as entries:
                for entry in islice(entries, _MOST_ENTRIES):
                    name = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_symlink():
                        target = os.path.realpath(entry.path)
                        if target != top and is_below(target, top):
                            targets[os.path.relpath(target, top)] = name
                    elif not folder and entry.name.startswith(".") and entry.name != ".git" and entry.is_dir():
                        folders.append(entry.name)
        except OSError:
            continue
    return targets


def judge(name: str, user_patterns: Mapping[str, bool]) -> Sensitive | None:
    for pattern in reversed(tuple(user_patterns)):
        if matches_path(pattern, name):
            return None if user_patterns[pattern] else Sensitive(name, pattern, OWN_PATTERN)
    for pattern in reversed(DEFAULTS):
        if matches_path(pattern, name):
            return None if DEFAULTS[pattern] else Sensitive(name, pattern, _WHY[pattern])
    return None


def judge_new(name: str, user_patterns: Mapping[str, bool]) -> Sensitive | None:
    """For a new file also by a dot-name or a dot-folder: programs look for such files, and listings hide them."""
    hidden = any(part.startswith(".") for part in name.split("/"))
    if (sensitive := judge(name, user_patterns)) is not None or not hidden:
        return sensitive
    if any(matches_path(pattern, name) for pattern in (*user_patterns, *_SAFE, *_HARMLESS_DOT_FILES)):
        return None
    return Sensitive(name, _DOT_PATTERN, NEW_DOT_FILE)


def resolve_names(root: str, path: str) -> tuple[str, ...]:
    """A path inside the root as it is spelled, and as it is when links are followed; each relative to the root."""
    if not root or "\0" in path:
        return (os.path.normpath(path),)
    spelled = os.path.normpath(os.path.join(root, path))
    real_root = os.path.realpath(root)
    relative = os.path.relpath(spelled, real_root if is_below(spelled, real_root) else root)
    real = os.path.realpath(os.path.join(real_root, relative))
    return tuple(dict.fromkeys((relative, os.path.relpath(real, real_root))))
