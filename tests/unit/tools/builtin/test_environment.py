"""What commands get of the user's environment (M-13, T-05)."""

import pytest

from treadle.tools.builtin.environment import without_secrets


@pytest.mark.parametrize(
    "name", ["aws_secret_access_key", "GITHUB_TOKEN", "DB_PASSWORD", "PGPASSFILE", "NPM_AUTH", "X_PAT"]
)
def test_names_of_secrets(name: str) -> None:
    assert name not in without_secrets({name: "x"})


@pytest.mark.parametrize("name", ["PATH", "HOME", "LANG", "PWD", "OLDPWD", "SSH_AUTH_SOCK", "VIRTUAL_ENV", "XPATH"])
def test_names_that_are_kept(name: str) -> None:
    assert without_secrets({name: "x"})[name] == "x"


@pytest.mark.parametrize("value", ["ghp_0123456789abcdef", "sk-abcdefghijk", "https://me:word@host/path"])
def test_values_that_are_secrets_whatever_they_are_called(value: str) -> None:
    assert "HARMLESS" not in without_secrets({"HARMLESS": value})


def test_the_value_of_a_known_key_under_another_name() -> None:
    env = {
        "API_KEY": "correct-horse-battery",
        "CURL_OPTS": "-H 'X: correct-horse-battery'",
        "SHORT_KEY": "on",
        "A": "on",
    }
    kept = without_secrets(env)
    assert "CURL_OPTS" not in kept
    assert kept["A"] == "on", "a short value is any word"
