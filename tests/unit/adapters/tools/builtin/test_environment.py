"""The part of the user's environment that commands get (M-13, T-05)."""

import pytest

from treadle.adapters.tools.builtin.command.shell import build_command_environment, drop_secrets


@pytest.mark.parametrize(
    "name", ["aws_secret_access_key", "GITHUB_TOKEN", "DB_PASSWORD", "PGPASSFILE", "NPM_AUTH", "X_PAT"]
)
def test_names_of_secrets(name: str) -> None:
    assert name not in drop_secrets({name: "x"})


@pytest.mark.parametrize("name", ["PATH", "HOME", "LANG", "PWD", "OLDPWD", "SSH_AUTH_SOCK", "VIRTUAL_ENV", "XPATH"])
def test_names_that_are_kept(name: str) -> None:
    assert drop_secrets({name: "x"})[name] == "x"


@pytest.mark.parametrize("value", ["ghp_0123456789abcdef", "sk-abcdefghijk", "https://me:word@host/path"])
def test_values_that_are_secrets_whatever_they_are_called(value: str) -> None:
    assert "HARMLESS" not in drop_secrets({"HARMLESS": value})


def test_the_value_of_a_known_key_under_another_name() -> None:
    env = {
        "API_KEY": "correct-horse-battery",
        "CURL_OPTS": "-H 'X: correct-horse-battery'",
        "SHORT_KEY": "on",
        "A": "on",
    }
    clean_env = drop_secrets(env)
    assert "CURL_OPTS" not in clean_env
    assert clean_env["A"] == "on", "a short value is any word"


@pytest.mark.parametrize("name", ["PATH", "HOME", "LC_ALL", "CARGO_HOME", "GOPATH", "CFLAGS", "npm_config_cache", "CI"])
def test_what_tools_read_is_passed_on(name: str) -> None:  # T-05
    assert build_command_environment({name: "x"})[name] == "x"


@pytest.mark.parametrize(
    "name",
    [
        "SSH_AUTH_SOCK",
        "DBUS_SESSION_BUS_ADDRESS",
        "DISPLAY",
        "WAYLAND_DISPLAY",
        "XDG_RUNTIME_DIR",
        "DOCKER_HOST",
        "KUBECONFIG",
        "AWS_PROFILE",
        "GOOGLE_CLOUD_PROJECT",
        "LD_PRELOAD",
        "BASH_ENV",
        "GIT_SSH_COMMAND",
        "ANYTHING",
    ],
)
def test_all_else_is_not(name: str) -> None:  # S-11
    assert name not in build_command_environment({name: "x"})


def test_the_user_adds_names_but_no_secrets() -> None:  # M-13
    env = {"APP_MODE": "test", "APP_TOKEN": "x", "APP_URL": "https://me:word@host", "OTHER": "x"}
    assert set(build_command_environment(env, ["APP_*"])) & set(env) == {"APP_MODE"}
