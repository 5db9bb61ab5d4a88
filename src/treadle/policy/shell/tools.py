"""Tools of developers: package managers, builders, containers, clouds. Told by their verb."""

import re

from treadle.policy.shell.arguments import read
from treadle.policy.shell.model import UNKNOWN, Effects, Found, Run, Script, Severity, ShellCall, names
from treadle.policy.shell.wrappers import Rule, shell_input

_PUBLISH = names("publish unpublish deprecate upload push yank release owner login logout adduser token")
_READ = names(
    "list ls show view info search outdated freeze check why explain doctor help version tree metadata audit "
    "licenses env"
)

_MANAGERS = names(
    """
    npm pnpm yarn bun pip pip3 pipx uv poetry pdm hatch rye pipenv conda mamba gem bundle cargo go composer mix
    rebar3 apt apt-get apt-cache yum dnf zypper pacman apk brew port snap flatpak nix nix-env guix dpkg rpm
    stack cabal opam luarocks cpan cpanm nuget dotnet mvn gradle sbt lein deno flutter dart swift twine rustup
    nvm pyenv asdf mise corepack
    """
)

_RUNNERS = names(
    """
    npx bunx uvx pnpx npm-exec
    """
)

_BUILDERS = names(
    """
    make gmake cmake ninja meson bazel buck just task rake invoke ant scons waf tox nox pytest py.test jest
    vitest mocha ava karma cypress playwright phpunit rspec ctest unittest nosetests tsc webpack vite rollup
    esbuild parcel babel eslint prettier ruff black mypy pyright isort flake8 pylint clang clang++ gcc g++ cc
    c++ rustc javac java kotlinc scalac ghc ocaml gfortran ld as nasm protoc pre-commit sphinx-build mkdocs hugo
    jekyll latexmk pdflatex alembic django-admin flask uvicorn gunicorn celery jupyter streamlit next nuxt ng
    vue-cli react-scripts expo storybook shellcheck shfmt hadolint clang-tidy clang-format cppcheck
    golangci-lint gofmt rustfmt swc turbo nx lerna rush bats gdb lldb coverage basedpyright lint-imports treadle
    """
)

_DANGEROUS_VERBS: dict[str, tuple[str, str]] = {
    "docker": (
        "ps images logs inspect version info search top stats port diff history events",
        "rm rmi kill push prune",
    ),
    "podman": (
        "ps images logs inspect version info search top stats port diff history events",
        "rm rmi kill push prune",
    ),
    "kubectl": (
        "get describe logs version explain api-resources cluster-info",
        "delete drain cordon exec apply replace patch scale",
    ),
    "helm": ("list status version search show template lint get", "uninstall delete rollback install upgrade"),
    "terraform": ("version validate show output fmt providers graph", "destroy apply import taint state force-unlock"),
    "tofu": ("version validate show output fmt providers graph", "destroy apply import taint state force-unlock"),
    "pulumi": ("version preview stack about", "destroy up cancel"),
    "ansible-playbook": ("--version --syntax-check", ""),
    "aws": ("help --version", "delete terminate rm rb remove destroy put-bucket-policy create-access-key"),
    "gcloud": ("version info help", "delete remove destroy reset"),
    "az": ("version help", "delete purge remove"),
    "gsutil": ("version ls help", "rm rb"),
    "gh": ("status --version version help", "delete release secret archive"),
    "heroku": ("--version", "destroy delete"),
    "fly": ("version status", "destroy deploy"),
    "vercel": ("--version", "remove rm"),
    "wrangler": ("--version", "delete publish deploy"),
    "firebase": ("--version", "delete deploy"),
}


def manager(call: ShellCall) -> Effects:
    if call.args in ((), ("--version",), ("-v",), ("-V",), ("version",), ("--help",), ("help",)):
        return
    options = read(call.args, "C prefix cwd filter workspace w directory project", until_word=True)
    verb = options.rest[0] if options.rest else ""
    if verb in _PUBLISH or call.name == "twine" or "publish" in options.rest[:2]:
        yield Found("high", f"{call.name} {verb} shows it to the world or changes who may")
    elif verb in ("run", "exec", "x", "dlx", "tool", "shell", "develop"):
        yield Found("medium", f"{call.name} runs code of the project or of a package")
        yield from _inner(call.name, options.rest[1:])
    elif verb in ("purge", "autoremove", "uninstall", "remove", "clean", "prune", "Rns"):
        severe: Severity = "high" if verb == "purge" else "medium"
        yield Found(severe, f"{call.name} removes packages or files")
    elif verb not in _READ or options.has("fix"):
        yield Found("medium", f"{call.name} {verb} may fetch and run code".replace("  ", " "))
    if call.name in ("nix-shell", "nix"):
        for text in read(call.args, "run command c").all("run", "command", "c"):
            yield Script(text)


def _inner(name: str, words: tuple[str, ...]) -> Effects:
    if name in ("npm", "pnpm", "yarn", "bun", "go", "cargo", "deno", "dotnet"):
        rest = words[words.index("--") + 1 :] if name == "npm" and "--" in words else ()
    else:
        rest = read(
            words, "p python with extra group env-file directory m module index-url n name", until_word=True
        ).rest
        rest = rest[1:] if rest[:1] in (("run",), ("exec",)) else rest
    if rest:
        yield Run(rest)


def runner(call: ShellCall) -> Effects:
    yield Found("medium", "fetches a package and runs it")
    options = read(call.args, "p package c call from with python", until_word=True)
    for text in options.all("c", "call"):
        yield Script(text)
    if options.rest:
        yield Run(options.rest)


def builder(call: ShellCall) -> Effects:
    if call.args in (("--version",), ("-v",), ("-V",), ("--help",), ("-version",), ("version",)):
        return
    if call.name in ("ruff", "black", "shellcheck", "gofmt", "prettier", "mypy") and _only_checks(call):
        return
    yield Found("medium", "builds, checks or tests: it runs code or settings of the project")


def _only_checks(call: ShellCall) -> bool:
    checks = {"--check", "--diff", "-l", "check", "--list-different"}
    return call.name == "shellcheck" or (
        bool(checks & set(call.args)) and not {"--fix", "--write", "-w"} & set(call.args)
    )


def make(call: ShellCall) -> Effects:
    if call.args in (("--version",), ("-v",), ("--help",)):
        return
    yield Found("medium", "runs what the Makefile says")
    options = read(call.args, "f C I j l o W file directory eval include-dir")
    for word in (*options.rest, *(f"--eval={text}" for text in options.all("eval"))):
        name, equals, value = word.partition("=")
        if name.rstrip(":+?") in ("SHELL", ".SHELLFLAGS", "MAKE", "CC", "CXX", "LD", "RM") and equals:
            yield Found("high", f"make runs another program as its {name}")
            yield Script(value)
        elif name == "--eval":
            yield Found("high", "make gets a rule from the command line")
            yield Script(re.sub(r"^[^:]*:[^;]*;", "", value))
            yield Script(value.replace("$(shell ", "$("))
    if call.stdin is not None and any(path in ("-", "/dev/stdin") for path in options.all("f", "file")):
        yield Found("high", "make runs what is piped into it")
        yield Script(re.sub(r"(?m)^\S[^:\n]*:[^;\n]*(;|$)", "", call.stdin))


def container(call: ShellCall) -> Effects:
    reads, bad = (set(words.split()) for words in _DANGEROUS_VERBS[call.name])
    words = [word for word in call.args if not word.startswith("-")]
    if call.args in (("--version",), ("version",), ("--help",)) or (words[:1] and words[0] in reads):
        return
    verbs = set(words[:4])
    dangerous = next(
        (verb for verb in sorted(bad) if any(each == verb or each.startswith(f"{verb}-") for each in verbs)), ""
    )
    if dangerous:
        yield Found("high", f"{call.name} {dangerous} changes or destroys what others may use")
    else:
        yield Found("medium", f"{call.name} runs or changes things outside the project")
    if "--" in call.args:
        yield Run(call.args[call.args.index("--") + 1 :])
    if call.name in ("docker", "podman") and words[:1] and words[0] in ("run", "exec", "create", "compose"):
        yield from _docker_run(call)


def _docker_run(call: ShellCall) -> Effects:
    text = " ".join(call.args)
    if re.search(
        r"--privileged|--cap-add|--pid[= ]host|--net(work)?[= ]host|docker\.sock|--device|--security-opt", text
    ):
        yield Found("high", "the container gets rights over the machine")
    if re.search(
        r"(-v|--volume|source|src)[= ]?[\"']?(/|~|/(etc|root|home|var|usr|boot|dev|proc|sys)[^:,]*)(:|,)", text
    ):
        yield Found("high", "the container gets a directory of the machine")
    valued = (
        "v e u w p h l m name volume env user workdir publish network net mount entrypoint env-file label platform "
        "memory cpus"
    )
    at = next((n for n, word in enumerate(call.args) if word in ("run", "exec", "create")), len(call.args))
    options = read(call.args[at + 1 :], valued, until_word=True)
    for program in options.all("entrypoint"):
        yield Run((program, *options.rest[1:]))
    if options.rest[1:]:
        yield Run(options.rest[1:])


def ansible(call: ShellCall) -> Effects:
    yield Found("high", "runs commands on other machines")
    for text in read(call.args, "a m i args").all("a", "args"):
        yield Script(text)


def debugger(call: ShellCall) -> Effects:
    if call.args == ("--version",):
        return
    yield Found("medium", "runs a program in a debugger")
    for word in read(call.args, "ex eval-command iex x p o O command").all("ex", "iex", "eval-command", "o", "O"):
        match = re.match(r"\s*(?:!|shell\s|platform shell\s|(?:python|script)\b)(.*)", word, re.S)
        if match:
            yield Found("high", "the debugger runs a command")
            yield Script(match[1])
    if "--args" in call.args:
        yield Run(call.args[call.args.index("--args") + 1 :])


def fzf(call: ShellCall) -> Effects:
    options = read(call.args, "preview bind q query filter f")
    for text in options.all("preview"):
        yield Script(text.replace("{}", UNKNOWN))
    for text in options.all("bind"):
        for match in re.finditer(r"(?:execute|execute-silent|become|reload|transform)[(\[:](.*?)[)\]]?$", text):
            yield Found("high", "a key of fzf runs a command")
            yield Script(match[1])


def terminal(call: ShellCall) -> Effects:
    yield Found("medium", "starts a terminal that outlives the command")
    if call.stdin is not None:
        yield from shell_input(call)
    for at, word in enumerate(call.args):
        if word in ("-e", "-X", "send-keys", "new-session", "new", "-dm", "-dmS", "split-window", "new-window", "-x"):
            yield Script(" ".join(each for each in call.args[at + 1 :] if not each.startswith("-")))


RULES: dict[str, Rule] = {
    **dict.fromkeys(_BUILDERS, builder),
    **dict.fromkeys(_MANAGERS, manager),
    **dict.fromkeys(_RUNNERS, runner),
    **dict.fromkeys(_DANGEROUS_VERBS, container),
    **dict.fromkeys(("make", "gmake"), make),
    **dict.fromkeys(("gdb", "lldb"), debugger),
    **dict.fromkeys(("tmux", "screen", "xterm", "gnome-terminal", "zellij"), terminal),
    "nix-shell": manager,
    "ansible": ansible,
    "fzf": fzf,
}
