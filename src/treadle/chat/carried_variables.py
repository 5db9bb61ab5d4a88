"""Which exported variables one command of a chat may hand to the next, and which of them make the words of a command
say less than they seem to (T-14, S-18). Pure: names and values only.

There are three kinds. *Starting* variables make a program run, load or obey something else before it does what it was
called for: they never carry over. *Appearance* is locale and terminal: it carries over, and needs no question. All
other variables carry over (an activated virtual environment is `PATH` and `VIRTUAL_ENV`), and a command that is judged
by its words is unknown with them, since `make` may be another program by then.

Search paths of languages (`PYTHONPATH`, `NODE_PATH`, `PERL5LIB`, `RUBYLIB`, `CLASSPATH`, `GOPATH`) carry over, as
`PATH` does: they say where something is found that a command names, and projects need them. `CC` and its like carry
over: a build names them. Wrappers, options and start-up files do not: no command names those."""

import re
from fnmatch import translate

from treadle.protocol.content import Shell

_STARTING = {
    "shells": """
        BASH_ENV ENV ZDOTDIR SHELLOPTS BASHOPTS BASH_FUNC_* BASH_LOADABLES_PATH BASH_XTRACEFD BASH_COMPAT PROMPT_COMMAND
        IFS CDPATH GLOBIGNORE FPATH INPUTRC FCEDIT HISTFILE SHELL CONFIG_SITE CONFIG_SHELL""",
    "the loader and libraries": """
        LD_* DYLD_* GCONV_PATH GLIBC_TUNABLES LOCPATH HOSTALIASES OPENSSL_CONF OPENSSL_MODULES OPENSSL_ENGINES
        SSLKEYLOGFILE GIO_* GTK_MODULES GTK_PATH QT_PLUGIN_PATH SASL_PATH KRB5_CONFIG VK_*LAYER* TERMINFO* TERMCAP""",
    "homes, which hold configuration": """
        HOME XDG_CONFIG_HOME XDG_CONFIG_DIRS CARGO_HOME GNUPGHOME CURL_HOME NETRC WGETRC MAILCAP MAILCAPS""",
    "Python": """
        PYTHONSTARTUP PYTHONHOME PYTHONINSPECT PYTHONBREAKPOINT PYTHONWARNINGS PYTHONUSERBASE PYTHONEXECUTABLE
        PYTHONPLATLIBDIR PYTHONPYCACHEPREFIX PYTHON_PRESITE COVERAGE_PROCESS_START COVERAGE_RCFILE PYTEST_ADDOPTS
        PYTEST_PLUGINS IPYTHONDIR JUPYTER_CONFIG_* PIP_CONFIG_FILE
        PIP_PYTHON UV_CONFIG_FILE UV_PYTHON VIRTUALENV_CONFIG_FILE PIPENV_PIPFILE POETRY_CONFIG_DIR PDM_CONFIG_FILE""",
    "JavaScript": """
        NODE_OPTIONS NODE_REPL_EXTERNAL_MODULE BUN_OPTIONS DENO_DIR DENO_CONFIG NPM_CONFIG_*SHELL
        NPM_CONFIG_NODE_OPTIONS
        NPM_CONFIG_USERCONFIG NPM_CONFIG_GLOBALCONFIG NPM_CONFIG_PREFIX NPM_CONFIG_GIT NPM_CONFIG_VIEWER
        NPM_CONFIG_ONLOAD_SCRIPT NPM_CONFIG_INIT_MODULE NPM_EXECPATH NPM_NODE_EXECPATH YARN_RC_FILENAME YARN_YARN_PATH
        YARN_IGNORE_PATH YARN_PLUGINS TS_NODE_* VSCODE_NODE_OPTIONS ELECTRON_RUN_AS_NODE PUPPETEER_EXECUTABLE_PATH
        CHROME_PATH""",
    "Ruby, Perl, PHP, Lua, R, Tcl, Julia, Haskell, OCaml": """
        RUBYOPT RUBYSHELL BUNDLE_CONFIG BUNDLE_GEMFILE BUNDLE_BUNDLER_SETUP PERL5OPT PERL5DB PERL5SHELL PHPRC
        PHP_INI_SCAN_DIR LUA_INIT* R_PROFILE* R_ENVIRON* R_HOME TCLLIBPATH JULIA_DEPOT_PATH JULIA_PROJECT
        PERL_MM_OPT PERL_MB_OPT GHC_ENVIRONMENT STACK_YAML CABAL_CONFIG OCAML_TOPLEVEL_PATH""",
    "Java, .NET, Erlang": """
        JAVA_OPTIONS _JAVA_OPTIONS JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS JAVA_OPTS MAVEN_OPTS MAVEN_ARGS MAVEN_CONFIG
        GRADLE_OPTS SBT_OPTS ANT_OPTS KOTLIN_OPTS SCALA_OPTS JRUBY_OPTS DOTNET_STARTUP_HOOKS DOTNET_ADDITIONAL_DEPS
        DOTNET_SHARED_STORE COR_*PROFIL* CORECLR_*PROFIL* ERL_*FLAGS ELIXIR_ERL_OPTIONS
        ERL_LIBS MIX_EXS MIX_ARCHIVES MIX_HOME JAVACMD""",
    "builds": """
        MAKEFLAGS GNUMAKEFLAGS MFLAGS MAKEFILES RUSTC RUSTDOC RUSTFLAGS RUSTDOCFLAGS RUSTC_*WRAPPER RUSTUP_TOOLCHAIN
        CARGO_BUILD_* CARGO_TARGET_* CARGO_ENCODED_RUSTFLAGS CARGO_REGISTR* CARGO_CREDENTIAL_* CARGO_ALIAS_* CARGO
        RUSTFMT
        GOFLAGS GOENV GOTOOLCHAIN GOCACHEPROG GOAUTH GOROOT SCONSFLAGS SWIFT_EXEC GOWORK CMAKE_*LAUNCHER
        CMAKE_TOOLCHAIN_FILE CCACHE_PREFIX* CCACHE_COMPILER CCACHE_CONFIGPATH SCCACHE_*
        GCC_EXEC_PREFIX COMPILER_PATH TAR_OPTIONS RSYNC_* TEXINPUTS TEXMF*""",
    "pagers, editors, browsers": """
        *PAGER *EDITOR *VISUAL *BROWSER *_ASKPASS *_RSH LESS LESSOPEN LESSCLOSE LESSKEY* MANOPT MANROFFOPT VIM VIMINIT
        VIMRUNTIME PSQLRC GVIMINIT EXINIT MYVIMRC NVIM_* EMACSLOADPATH TEXTEDIT DIFFPROG SVN_SSH HGRCPATH HGMERGE""",
    "tools whose configuration names programs": """
        RIPGREP_CONFIG_PATH BAT_CONFIG_* FZF_DEFAULT_* GREP_OPTIONS AWS_CONFIG_FILE KUBECONFIG DOCKER_CONFIG DOCKER_HOST
        ANSIBLE_* TF_CLI_* TF_PLUGIN* HELM_PLUGINS PACKER_CONFIG* PACKER_PLUGIN_PATH VAGRANT_VAGRANTFILE
        COMPOSE_FILE AWKPATH AWKLIBPATH NIX_PATH DIRENV_* PRE_COMMIT_* HUSKY* LEFTHOOK*""",
}
"""By what reads them: variables that make a program run, load or obey something else first. npm takes its own in
either letter case."""
_NEVER = re.compile("|".join(translate(glob) for names in _STARTING.values() for glob in names.split()))
_GIT = re.compile(
    r"GIT_(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)|GIT_TERMINAL_PROMPT|GIT_MERGE_AUTOEDIT|GIT_OPTIONAL_LOCKS|GIT_ADVICE"
    r"|GIT_LFS_SKIP_SMUDGE|GIT_PROGRESS_DELAY|GIT_TRACE\w*|GIT_CURL_VERBOSE"
)
"""Variables of git that carry over. All others name programs, configuration or another repository."""
_PROMPT = re.compile(r"PS[0-4]|RPS\d|RPROMPT")
_RUNS_IN_PROMPT = re.compile(r"\$[({\[]|`")
_APPEARANCE = re.compile(
    r"LANG|LANGUAGE|LC_\w+|TZ|TERM|TERM_PROGRAM\w*|COLORTERM|NO_COLOR|FORCE_COLOR|CLICOLOR\w*|LS_COLORS|COLUMNS|LINES"
    r"|PS[0-4]|VIRTUAL_ENV_PROMPT|PYTHONIOENCODING|PYTHONUTF8|PYTHONUNBUFFERED|DEBIAN_FRONTEND|CI"
)


def can_start_programs(name: str, value: str) -> bool:
    """True for a variable that makes programs run, load or obey something else first: it must not carry over."""
    if name.startswith("GIT_"):
        return _GIT.fullmatch(name) is None
    if _PROMPT.fullmatch(name):
        return _RUNS_IN_PROMPT.search(value) is not None
    return _NEVER.fullmatch(name.upper() if name.startswith("npm_") else name) is not None


def select_unknown_variables(shell: Shell) -> dict[str, str | None]:
    """Variables that earlier commands set (None: unset) and that may change the meaning of a command, by name."""
    carried = {name: value for name, value in shell.exports.items() if not can_start_programs(name, value)}
    variables = sorted({**carried, **dict.fromkeys(shell.unset)}.items())
    return {name: value for name, value in variables if _APPEARANCE.fullmatch(name) is None}
