"""Which exported variables carry over, and which make the words of a command unknown (T-14, S-18)."""

import pytest

from treadle.chat.carried_variables import can_start_programs, select_unknown_variables
from treadle.protocol.content import Shell

STARTING: str = """
BASH_ENV ENV PROMPT_COMMAND SHELLOPTS BASHOPTS ZDOTDIR IFS BASH_FUNC_ls%% LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT
DYLD_INSERT_LIBRARIES GCONV_PATH OPENSSL_CONF HOME XDG_CONFIG_HOME GIT_DIR GIT_CONFIG_GLOBAL GIT_CONFIG_COUNT
GIT_CONFIG_KEY_0 GIT_SSH GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_PAGER GIT_EDITOR GIT_SEQUENCE_EDITOR GIT_ASKPASS
GIT_EXEC_PATH GIT_TEMPLATE_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_PROXY_COMMAND GIT_ALTERNATE_OBJECT_DIRECTORIES
PYTHONSTARTUP PYTHONHOME PYTHONINSPECT PYTHONBREAKPOINT PYTHONPYCACHEPREFIX PYTEST_ADDOPTS PYTEST_PLUGINS NODE_OPTIONS
npm_config_script_shell NPM_CONFIG_NODE_OPTIONS RUBYOPT PERL5OPT PERL5DB LUA_INIT LUA_INIT_5_4 PHPRC R_PROFILE_USER
JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS MAVEN_OPTS GRADLE_OPTS DOTNET_STARTUP_HOOKS MAKEFLAGS MAKEFILES
RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER RUSTFLAGS CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER CARGO_BUILD_RUSTC_WRAPPER
GOFLAGS CMAKE_C_COMPILER_LAUNCHER CCACHE_PREFIX TAR_OPTIONS PAGER MANPAGER BAT_PAGER EDITOR VISUAL SUDO_EDITOR BROWSER
PYTHON_PRESITE COVERAGE_PROCESS_START TS_NODE_COMPILER GOCACHEPROG GOAUTH CARGO_REGISTRY_GLOBAL_CREDENTIAL_PROVIDERS
PSQLRC VIMRUNTIME GH_BROWSER ANSIBLE_LIBRARY TF_CLI_ARGS HELM_PLUGINS COMPOSE_FILE AWKPATH MIX_EXS STACK_YAML
SSH_ASKPASS LESSOPEN LESS VIMINIT EXINIT RSYNC_RSH RIPGREP_CONFIG_PATH FZF_DEFAULT_COMMAND KUBECONFIG DOCKER_HOST
"""
CARRIED: str = """
PATH VIRTUAL_ENV VIRTUAL_ENV_PROMPT PYTHONPATH NODE_PATH NODE_ENV GOPATH CLASSPATH PERL5LIB CC CXX CFLAGS LDFLAGS A
DATABASE_URL DEBUG RUST_LOG RUST_BACKTRACE PYTHONDONTWRITEBYTECODE GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL
GIT_TERMINAL_PROMPT CONDA_PREFIX JAVA_HOME NVM_DIR PKG_CONFIG_PATH
"""


@pytest.mark.parametrize("name", STARTING.split())
def test_what_makes_programs_run_something_else_never_carries_over(name: str) -> None:
    assert can_start_programs(name, "x")
    assert select_unknown_variables(Shell(exports={name: "x"})) == {}


@pytest.mark.parametrize("name", CARRIED.split())
def test_what_projects_need_carries_over(name: str) -> None:
    assert not can_start_programs(name, "x")


def test_a_prompt_carries_over_unless_it_runs_something() -> None:
    assert not can_start_programs("PS1", "(.venv) $ ")
    for value in ("$(id)", "`id`", "${x:=$(id)}", "$[a[0]]"):
        assert can_start_programs("PS1", value)
        assert can_start_programs("PS4", value)


def test_all_but_locale_and_terminal_make_words_unknown() -> None:
    shell = Shell(
        exports={"LANG": "C", "LC_ALL": "C", "TERM": "xterm", "PS1": "$", "PATH": "/x", "A": "1"}, unset=("B",)
    )
    assert select_unknown_variables(shell) == {"A": "1", "B": None, "PATH": "/x"}
