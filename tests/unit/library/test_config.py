"""Settings and where they come from (E-06)."""

from pathlib import Path

import msgspec
import pytest

from treadle.base.http.connection import CLIENT_CERT, CLIENT_KEY
from treadle.errors import ConfigError
from treadle.library.config import OF_CHATS, Settings, get_home, load
from treadle.protocol.options import Budget, ChatOptions


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"TREADLE_HOME": str(tmp_path)}


def write(env: dict[str, str], text: str) -> None:
    Path(env["TREADLE_HOME"], "config.toml").write_text(text, encoding="utf-8")


def test_flags_over_environment_over_file_over_defaults(env: dict[str, str]) -> None:
    write(env, 'model = "file:m"\nmode = "ask"\nmax_turns = 5\n')
    env |= {"TREADLE_MODEL": "env:m", "TREADLE_MODE": "read-only", "TREADLE_BUDGET_USD": "0.5"}
    config = load(env, {"model": "flag:m", "max_turns": None})
    settings = config.settings
    assert (settings.model, settings.mode, settings.max_turns) == ("flag:m", "read-only", 5)
    assert (settings.budget_usd, settings.silence_s) == (0.5, 300.0)
    assert config.sources["model"] == "flag --model"
    assert config.sources["mode"] == "environment TREADLE_MODE"
    assert config.sources["max_turns"] == f"file {config.home / 'config.toml'}"
    assert config.sources["silence_s"] == "default"
    assert config.store == config.database == config.home / "treadle.db"
    assert load(env | {"TREADLE_STORE": "postgresql://there/chats"}).store == "postgresql://there/chats"


def test_an_unknown_key_is_a_warning(env: dict[str, str]) -> None:
    write(env, 'modle = "x"\n')
    (warning,) = load(env).warnings
    assert "config.toml" in warning
    assert "'modle'" in warning


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('max_turns = "5"\n', "config.toml: max_turns = '5'"),
        ("max_turns = 0\n", "config.toml: max_turns = 0"),
        ('mode = "yolo"\n', "config.toml: mode = 'yolo'"),
        ("summarize = 1\n", "config.toml: summarize = 1"),
        ("max_turns = \n", "is no valid TOML"),
    ],
)
def test_a_wrong_value_is_named_with_its_file(env: dict[str, str], text: str, message: str) -> None:
    write(env, text)
    with pytest.raises(ConfigError) as raised:
        load(env)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("max_turns", "7", 7), ("silence_s", "1.5", 1.5), ("summarize", "false", False), ("temperature", "0", 0.0)],
)
def test_the_environment_is_text_and_is_read_as_what_it_means(
    env: dict[str, str], name: str, text: str, value: object
) -> None:
    env[f"TREADLE_{name.upper()}"] = text
    assert getattr(load(env).settings, name) == value


@pytest.mark.parametrize(("name", "text"), [("MAX_TURNS", "many"), ("BUDGET_USD", "-1"), ("SUMMARIZE", "perhaps")])
def test_a_wrong_variable_is_named(env: dict[str, str], name: str, text: str) -> None:
    env[f"TREADLE_{name}"] = text
    with pytest.raises(ConfigError, match=f"TREADLE_{name} = '{text}'"):
        load(env)


def test_every_setting_of_a_chat_reaches_it() -> None:
    settings = Settings(
        model="a:b",
        mode="ask",
        max_turns=3,
        on_limit="error",
        budget_usd=0.5,
        budget_tokens=100,
        temperature=0.7,
        max_tokens=200,
        context_window=300,
        summarize=False,
        completion="marker",
    )
    options = settings.make_chat_options("/root")
    assert (options.model, options.mode, options.max_turns, options.on_limit) == ("a:b", "ask", 3, "error")
    assert (options.run_budget.usd, options.run_budget.tokens, options.temperature) == (0.5, 100, 0.7)
    assert (options.max_tokens, options.context_window, options.summarize) == (200, 300, False)
    assert (options.root, options.completion) == ("/root", "marker")


def test_every_budget_is_a_setting(env: dict[str, str]) -> None:  # L-11
    variables = {f"TREADLE_BUDGET_{kind.upper()}": "7" for kind in Budget.__struct_fields__}
    budget = load(env | variables).settings.make_chat_options("/root").run_budget
    assert set(msgspec.to_builtins(budget).values()) == {7}


def test_a_preset_stands_where_it_was_named(env: dict[str, str]) -> None:  # S-15, L-03
    assert load(env).settings.max_turns == ChatOptions().max_turns == 100
    write(env, 'max_turns = 50\nmode = "autopilot"\n')
    config = load(env, {"preset": "strict", "mode": "review"})
    assert (config.settings.mode, config.settings.max_turns, config.settings.strict_paths) == ("review", 20, True)
    assert config.sources["max_turns"] == "flag --preset (strict)"
    write(env, 'preset = "strict"\nmax_turns = 50\n')
    weak = load(env | {"TREADLE_MODE": "autopilot"}).settings
    assert (weak.mode, weak.max_turns, weak.strict_paths) == ("autopilot", 50, True)
    with pytest.raises(ConfigError, match="TREADLE_PRESET = 'lax'"):
        load(env | {"TREADLE_PRESET": "lax"})


@pytest.mark.parametrize("source", ["profile", "flag"])
def test_a_profile_wins_over_its_own_preset(env: dict[str, str], source: str) -> None:  # E-06
    profile_line = 'profile = "mine"\n' if source == "profile" else ""
    write(env, profile_line + 'mode = "review"\n[profiles.mine]\npreset = "strict"\nmax_turns = 77\n')
    settings = load(env, {} if profile_line else {"profile": "mine"}).settings
    assert (settings.max_turns, settings.strict_paths) == (77, True)
    assert load(env, {"profile": "mine", "preset": "strict", "max_turns": 5}).settings.max_turns == 5


def test_an_unknown_variable_is_a_warning(env: dict[str, str]) -> None:  # E-06
    known = {"TREADLE_COMMAND_MINE": "cat", "TREADLE_DEBUG": "1", CLIENT_CERT: "a.crt", CLIENT_KEY: "a.key"}
    variables = env | {"TREADLE_MAX_TURN": "3", "TREADLE_XYZZY": "1", **known}
    assert load(variables).warnings == (
        "there is no variable TREADLE_MAX_TURN; did you mean 'TREADLE_MAX_TURNS'? it is ignored",
        "there is no variable TREADLE_XYZZY; it is ignored",
    )


def test_the_home_is_a_folder_of_the_user() -> None:
    assert get_home({"TREADLE_HOME": "~/x"}) == Path.home() / "x"
    assert get_home({}).is_absolute()
    assert get_home({}).name == "treadle"


def test_settings_of_chats_have_the_defaults_of_options() -> None:
    settings, options = Settings(), ChatOptions(mode="ask")  # logs without a mode mean the one of ChatOptions
    assert {name: getattr(settings, name) for name in OF_CHATS} == {name: getattr(options, name) for name in OF_CHATS}
    assert settings.make_chat_options("") == options


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("all", True),
        ("none", False),
        ("true", True),
        ("registries, GitHub.com", ("registries", "github.com")),
        ("*.x.org:8443", ("*.x.org:8443",)),
    ],
)
def test_what_commands_may_reach(env: dict[str, str], text: str, network: bool | tuple[str, ...]) -> None:  # S-03
    assert load({**env, "TREADLE_NETWORK": text}).settings.network == network
    assert load(env, {"network": text}).settings.network == network


def test_what_commands_may_reach_in_the_file(env: dict[str, str]) -> None:  # S-03
    write(env, 'network = ["Registries", "x.org"]\nserve_network = ["pypi"]\n')
    settings = load(env).settings
    assert (settings.network, settings.serve_network) == (("registries", "x.org"), ("pypi",))
    assert settings.make_chat_options("/x").network == ("registries", "x.org")
    write(env, "network = true\n")
    assert load(env).settings.network is True
    write(env, 'network = ["10.0.0.1"]\n')
    with pytest.raises(ConfigError, match="private network"):
        load(env)
