"""Which exported variables one command of a chat may hand to the next, and which of them make the words of a command
say less than they seem to (T-14, S-18). Pure: names and values only.

Three kinds. *Starting* variables make a program run, load or obey something else before it does what it was called for:
they never carry over. *Appearance* is locale and terminal: it carries over, and no one needs to be asked about it.
Everything else carries over (an activated virtual environment is `PATH` and `VIRTUAL_ENV`), and a command that is judged
by its words is unknown with it, since `make` may be another program by then.

Search paths of languages (`PYTHONPATH`, `NODE_PATH`, `PERL5LIB`, `RUBYLIB`, `CLASSPATH`, `GOPATH`) carry over, as `PATH`
does: they say where something is found that the command names, and projects need them. So do `CC` and its like: a build
names them. Wrappers, options and start-up files do not: no command names those.
"""

import re

from treadle.protocol.content import Shell

_STARTING = {
    "shells": r"BASH_ENV|ENV|ZDOTDIR|SHELLOPTS|BASHOPTS|BASH_FUNC_.*|BASH_LOADABLES_PATH|BASH_XTRACEFD|BASH_COMPAT"
    r"|PROMPT_COMMAND|IFS|CDPATH|GLOBIGNORE|FPATH|INPUTRC|FCEDIT|HISTFILE|SHELL|CONFIG_SITE|CONFIG_SHELL",
    "the loader and libraries": r"LD_\w+|DYLD_\w+|GCONV_PATH|GLIBC_TUNABLES|LOCPATH|HOSTALIASES|OPENSSL_(?:CONF|MODULES|ENGINES)"
    r"|SSLKEYLOGFILE|G(?:IO|TK)_\w*(?:MODULES?|PATH)\w*|QT_PLUGIN_PATH|SASL_PATH|KRB5_CONFIG|VK_\w*LAYER\w*|TERMINFO\w*|TERMCAP",
    "homes, which hold configuration": r"HOME|XDG_CONFIG_(?:HOME|DIRS)|CARGO_HOME|GNUPGHOME|CURL_HOME|NETRC|WGETRC|MAILCAPS?",
    "Python": r"PYTHON(?:STARTUP|HOME|INSPECT|BREAKPOINT|WARNINGS|USERBASE|EXECUTABLE|PLATLIBDIR|PYCACHEPREFIX|CASEOK|NODEBUGRANGES)"
    r"|PYTEST_(?:ADDOPTS|PLUGINS)|IPYTHONDIR|JUPYTER_CONFIG_\w+|PIP_(?:CONFIG_FILE|PYTHON)|UV_(?:CONFIG_FILE|PYTHON)",
    "JavaScript": r"NODE_(?:OPTIONS|REPL_EXTERNAL_MODULE)|BUN_OPTIONS|DENO_(?:DIR|CONFIG)"
    r"|(?i:npm_config_(?:script[_-]shell|shell|node[_-]options|userconfig|globalconfig|prefix|git|editor|viewer|browser|onload[_-]script|init[_-]module))"
    r"|YARN_(?:RC_FILENAME|YARN_PATH|IGNORE_PATH|PLUGINS)|npm_(?:execpath|node_execpath)",
    "Ruby, Perl, PHP, Lua, R, Tcl, Julia": r"RUBY(?:OPT|SHELL)|BUNDLE_(?:CONFIG|GEMFILE|BUNDLER_SETUP)|PERL5(?:OPT|DB|SHELL)"
    r"|PHPRC|PHP_INI_SCAN_DIR|LUA_INIT\w*|R_(?:PROFILE|ENVIRON)(?:_USER)?|R_HOME|TCLLIBPATH|JULIA_(?:DEPOT_PATH|PROJECT)",
    "Java, .NET, Erlang": r"_?JAVA_(?:TOOL_)?OPTIONS|JDK_JAVA_OPTIONS|_JAVA_OPTIONS|JAVA_OPTS|(?:MAVEN|GRADLE|SBT|ANT|KOTLIN|SCALA|JRUBY)_OPTS"
    r"|MAVEN_(?:ARGS|CONFIG)|DOTNET_(?:STARTUP_HOOKS|ADDITIONAL_DEPS|SHARED_STORE)|COR(?:ECLR)?_\w*PROFIL\w*|(?:ERL|ELIXIR)_\w*(?:FLAGS|OPTIONS)",
    "builds": r"MAKEFLAGS|GNUMAKEFLAGS|MFLAGS|MAKEFILES|RUSTC|RUSTDOC|RUST(?:DOC)?FLAGS|RUSTC_\w*WRAPPER|RUSTUP_TOOLCHAIN"
    r"|CARGO_(?:BUILD_\w+|TARGET_\w+|ENCODED_RUSTFLAGS|REGISTRIES_\w+|ALIAS_\w+)|GOFLAGS|GOENV|GOTOOLCHAIN|GOWORK"
    r"|CMAKE_\w*(?:LAUNCHER|TOOLCHAIN_FILE)|CCACHE_(?:PREFIX\w*|COMPILER|CONFIGPATH|CONFIGFILE)|SCCACHE_\w+|GCC_EXEC_PREFIX|COMPILER_PATH"
    r"|MESON_\w+|NINJA_STATUS_COMMAND|TAR_OPTIONS|RSYNC_\w+|TEXINPUTS|TEXMF\w*",
    "pagers, editors, browsers": r"\w*PAGER|\w*EDITOR|\w*VISUAL|BROWSER|\w+_ASKPASS|LESS|LESSOPEN|LESSCLOSE|LESSKEY\w*|MANOPT|MANROFFOPT"
    r"|(?:G?VIM|EX)INIT|MYVIMRC|NVIM_\w+|EMACSLOADPATH|TEXTEDIT|DIFFPROG|\w+_RSH|SVN_SSH|HG(?:RCPATH|EDITOR|MERGE|PLAIN)",
    "tools with configuration that names programs": r"RIPGREP_CONFIG_PATH|BAT_CONFIG_(?:PATH|DIR)|FZF_DEFAULT_(?:COMMAND|OPTS\w*)|GREP_OPTIONS"
    r"|AWS_CONFIG_FILE|KUBECONFIG|DOCKER_(?:CONFIG|HOST)|ANSIBLE_CONFIG|TF_CLI_CONFIG_FILE|TF_PLUGIN\w*|DIRENV_\w+|PRE_COMMIT_\w+|HUSKY\w*|LEFTHOOK\w*",
}
"""By what reads them: variables that make a program run, load or obey something else first."""
_NEVER = re.compile("|".join(_STARTING.values()))
_GIT = re.compile(
    r"GIT_(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)|GIT_TERMINAL_PROMPT|GIT_MERGE_AUTOEDIT|GIT_OPTIONAL_LOCKS|GIT_ADVICE"
    r"|GIT_LFS_SKIP_SMUDGE|GIT_PROGRESS_DELAY|GIT_TRACE\w*|GIT_CURL_VERBOSE"
)
"""What carries over of git's own variables: all others name programs, configuration or another repository."""
_PROMPT = re.compile(r"PS[0-4]|RPS\d|RPROMPT")
_RUNS_IN_PROMPT = re.compile(r"\$[({\[]|`")
_APPEARANCE = re.compile(
    r"LANG|LANGUAGE|LC_\w+|TZ|TERM|TERM_PROGRAM\w*|COLORTERM|NO_COLOR|FORCE_COLOR|CLICOLOR\w*|LS_COLORS|COLUMNS|LINES"
    r"|PS[0-4]|VIRTUAL_ENV_PROMPT|PYTHONIOENCODING|PYTHONUTF8|PYTHONUNBUFFERED|DEBIAN_FRONTEND|CI"
)


def starts_programs(name: str, value: str) -> bool:
    """Whether a variable makes programs run, load or obey something else first, so that it must not carry over."""
    if name.startswith("GIT_"):
        return _GIT.fullmatch(name) is None
    if _PROMPT.fullmatch(name):
        return _RUNS_IN_PROMPT.search(value) is not None
    return _NEVER.fullmatch(name) is not None


def unknown_variables(shell: Shell) -> dict[str, str | None]:
    """By name, what earlier commands set (None: unset) and what may change what the words of a command mean: all but
    locale and terminal."""
    carried = {name: value for name, value in shell.exports.items() if not starts_programs(name, value)}
    return {
        name: value
        for name, value in sorted({**carried, **dict.fromkeys(shell.unset)}.items())
        if _APPEARANCE.fullmatch(name) is None
    }
