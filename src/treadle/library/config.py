"""Settings in one place, each with where its value came from: defaults < config file < environment < flags (E-06).

Only the user's own file is read, in Treadle's home; nothing inside a project can set anything (S-09). Keys are no
settings: they are neither read, shown nor stored here (M-13)."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from treadle.base.types import HOME_VARIABLE, get_home
from treadle.errors import ConfigError, InvalidInput, suggest_name
from treadle.ports.commands import Allowance, Limits
from treadle.ports.sandbox import Demand
from treadle.protocol import options as o

if TYPE_CHECKING:
    from treadle.adapters.tools.hooks import Hook

PREFIX = "TREADLE_"
PROGRAM_PREFIX = "TREADLE_COMMAND_"  # Models that are programs, by names that a user chooses.
OTHER_VARIABLES = tuple(
    f"{PREFIX}{name}"
    for name in (
        *("CALL", "CLIENT_CERT", "CLIENT_KEY", "DEBUG", "FAULTS", "LOCAL_THREADS", "OLLAMA_THINK", "PLAIN"),
        *("PROGRAM_VARIABLES", "THEME", "TOKEN", "URL"),
    )
)  # Read elsewhere, and no settings.
# With one of these, or the setting `otel_endpoint`, traces and metrics are exported; else nothing is loaded for it.
OTEL_VARIABLES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_METRICS_EXPORTER", "OTEL_TRACES_EXPORTER",
)  # fmt: skip
FILE_NAME = "config.toml"
DATABASE_NAME = "treadle.db"

BUDGETS: Mapping[str, str] = {f"budget_{kind}": kind for kind in o.Budget.__struct_fields__}
"""The limit of a run that each setting sets (L-11)."""

_GB = 1 << 30
_Count = Annotated[int, Meta(ge=0, le=o.MAX_COUNT)]
_Amount = Annotated[float, Meta(ge=0, le=o.MAX_SECONDS)]


def _get_bounds(option: str) -> Meta:
    """The bounds of an option of chats hold for the setting of its name."""
    return o.NUMBER_BOUNDS[option].as_meta()


class Settings(msgspec.Struct, frozen=True):
    """Everything that can be set outside a chat. A field is the key of the config file; its variable is
    TREADLE_ and the name in capitals."""

    model: str = ""
    aliases: dict[str, str] = {}
    profile: str = ""
    preset: o.Preset | Literal[""] = ""
    mode: o.Mode = "ask"
    max_turns: Annotated[int, _get_bounds("max_turns")] = 100
    on_limit: o.OnLimit | Literal[""] = ""
    budget_usd: _Amount = 0.0
    budget_tokens: _Count = 0
    budget_wall_s: _Amount = 0.0
    budget_turns: _Count = 0
    budget_tool_calls: _Count = 0
    temperature: Annotated[float, _get_bounds("temperature")] | None = None
    max_tokens: Annotated[int, _get_bounds("max_tokens")] = 0
    context_window: Annotated[int, _get_bounds("context_window")] = 0
    reasoning_effort: o.ReasoningEffort | Literal[""] = ""
    compaction_effort: o.ReasoningEffort | Literal[""] = ""
    summarize: bool = True
    titles: o.TitleChoice = "auto"
    completion: o.CompletionStyle | Literal[""] = ""
    rung: o.Rung | Literal[""] = ""
    auto_approve_commands: bool = False
    auto_approve_sensitive_edits: bool = False
    sensitive: dict[str, bool] = {}
    consent: tuple[str, ...] = ()
    retry_base_s: _Amount = 2.0
    retry_limit_s: _Amount = 20.0
    silence_s: Annotated[float, Meta(gt=0, le=o.MAX_SECONDS)] = 300.0
    answer_s: Annotated[float, Meta(gt=0, le=o.MAX_SECONDS)] = 3_600.0
    checks: tuple[str, ...] = ()
    verify: bool = True
    diagnose: bool = True
    instructions: bool = True
    skills: bool = True
    subagents: Annotated[int, _get_bounds("subagents")] = 8
    subagent_depth: Annotated[int, _get_bounds("subagent_depth")] = 2
    extensions: tuple[str, ...] = ()
    mcp: bool = True
    sandbox: Demand = "auto"
    network: o.NetworkChoice = False
    strict_paths: bool = False
    command_view: bool = True
    command_env: tuple[str, ...] = ()
    visible_paths: tuple[str, ...] = ()
    limit_processes: _Count = Limits().processes
    limit_memory_gb: _Amount = Limits().memory / _GB
    limit_disk_gb: _Amount = Limits().disk / _GB
    limit_file_gb: _Amount = Limits().file / _GB
    limit_cpu_s: _Count = Limits().cpu_s
    limit_open_files: _Count = Limits().open_files
    job_idle_s: _Amount = 28_800.0
    git_branch: bool = False
    world: Literal["", "chat"] = ""
    snapshot_days: _Amount = 30.0
    snapshot_cap_gb: _Amount = 5.0
    world_days: _Amount = 14.0
    store: str = ""
    concurrency: Annotated[int, Meta(ge=1, le=o.MAX_COUNT)] = 32
    drain_s: _Amount = 25.0
    lease_s: Annotated[float, Meta(ge=1, le=o.MAX_SECONDS)] = 30.0
    otel_endpoint: str = ""
    otel_protocol: Literal["", "http/protobuf", "grpc"] = ""
    otel_content: bool = False
    serve_host: str = "127.0.0.1"
    serve_port: Annotated[int, Meta(ge=0, le=65535)] = 8700
    serve_tokens: str = ""
    serve_hosts: tuple[str, ...] = ()
    serve_roots: tuple[str, ...] = ()
    serve_models: tuple[str, ...] = ()
    serve_network: tuple[str, ...] = ()
    serve_operators: tuple[str, ...] = ()

    def make_chat_options(self, root: str) -> o.ChatOptions:
        budget = o.Budget(**{kind: getattr(self, name) for name, kind in BUDGETS.items()})
        return o.ChatOptions(root=root, run_budget=budget, **{name: getattr(self, name) for name in OF_CHATS})

    @property
    def allowance(self) -> Allowance:
        """The environment variables, paths and limits that commands get in addition to the built-in lists."""
        in_gb = (self.limit_memory_gb, self.limit_disk_gb, self.limit_file_gb)
        memory, disk, file = (int(size * _GB) for size in in_gb)
        limits = Limits(self.limit_processes, memory, disk, file, self.limit_cpu_s, self.limit_open_files)
        return Allowance(self.command_env, self.visible_paths, limits, self.job_idle_s)


OF_CHATS = {*Settings.__struct_fields__} & {*o.ChatOptions.__struct_fields__} - {"instructions", "skills"}
"""Options of a chat under the same name. `instructions` and `skills` are texts there, and switches here."""


class Config(msgspec.Struct, frozen=True):
    """The settings in force, the source of each, and what was odd about the sources."""

    home: Path
    settings: Settings
    sources: dict[str, str]  # By setting: `default`, `file …`, `environment …` or `flag …`.
    warnings: tuple[str, ...] = ()
    hooks: "tuple[Hook, ...]" = ()  # Programs that look at every call, in the order of the file (E-03).

    def resolve_model(self, name: str) -> str:
        """The model that a name of the user's stands for; any other name is its own."""
        return self.settings.aliases.get(name, name)

    @property
    def database(self) -> Path:
        return self.home / DATABASE_NAME

    @property
    def store(self) -> str | Path:
        """The store of the chats: the setting, or an SQLite file in Treadle's home."""
        return self.settings.store or self.database


def make_variable_name(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def load(environment: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None) -> Config:
    """Read all sources. Flags that are None were not given. ConfigError names the source and the key."""
    env = os.environ if environment is None else environment
    home = get_home(env)
    values: dict[str, Any] = {}
    sources = dict.fromkeys(Settings.__struct_fields__, "default")
    warnings: list[str] = []
    file = home / FILE_NAME
    file_settings = _read(file)
    hooks: tuple[Hook, ...] = ()
    if hook_table := file_settings.pop("hooks", ()):
        from treadle.adapters.tools.hooks import read_hooks  # most users have none

        hooks = read_hooks(hook_table, str(file))
    profiles = file_settings.pop("profiles", {})
    for name, value in file_settings.items():
        if name not in sources:
            suggestion = suggest_name(name, sources)
            warnings.append(f"{file}: there is no setting {name!r}{suggestion or ';'} it is ignored")
            continue
        values[name] = _convert_value(name, value, f"{file}: {name}", strict=True)
        sources[name] = f"file {file}"
    known_variables = {HOME_VARIABLE, *OTHER_VARIABLES, *map(make_variable_name, sources)}
    warnings += [  # a variable with our prefix that does not exist is probably misspelt
        f"there is no variable {name}{suggest_name(name, known_variables, PREFIX) or ';'} it is ignored"
        for name in sorted(env.keys() - known_variables)
        if name.startswith(PREFIX) and not name.startswith(PROGRAM_PREFIX)
    ]
    for name in sources:
        if raw_value := env.get(make_variable_name(name), ""):
            values[name] = _convert_value(name, raw_value, make_variable_name(name), strict=False)
            sources[name] = f"environment {make_variable_name(name)}"
    for name, value in (flags or {}).items():
        if value is not None:
            flag = f"--{name.replace('_', '-')}"
            values[name] = _convert_value(name, value, flag, strict=True)
            sources[name] = f"flag {flag}"
    _apply_profile(values, sources, profiles, file)
    if (preset := values.get("preset")) and "(profile " not in sources["preset"]:
        _put(values, sources, o.PRESETS[preset], f"{sources['preset']} ({preset})")
    if (alias := values.get("model", "")) in values.get("aliases", {}):
        values["model"] = values["aliases"][alias]
        sources["model"] += f" (alias {alias})"
    return Config(home, Settings(**values), sources, tuple(warnings), hooks)


def _apply_profile(values: dict[str, Any], sources: dict[str, str], profiles: object, file: Path) -> None:
    """Settings of the user's under one name: the table `[profiles.NAME]` of the file."""
    profile = values.get("profile")
    if not isinstance(profiles, dict) or not all(isinstance(each, dict) for each in profiles.values()):
        raise ConfigError(f'{file}: profiles are tables, as in [profiles.review] with mode = "read-only" below it')
    if not profile:
        return
    if profile not in profiles:
        profile_names, suggestion = ", ".join(sorted(profiles)) or "none", suggest_name(profile, profiles) or ";"
        raise ConfigError(f"there is no profile {profile!r} in {file}{suggestion} there is: {profile_names}")
    profile_values = {}
    for name, value in profiles[profile].items():
        if name not in sources or name in ("profile", "aliases"):
            suggestion = suggest_name(name, sources)
            raise ConfigError(f"{file}: the profile {profile!r} sets {name!r}, which is no setting{suggestion}")
        profile_values[name] = _convert_value(name, value, f"{file}: profiles.{profile}.{name}", strict=True)
    preset = o.PRESETS.get(profile_values.get("preset", ""), {})
    _put(values, sources, {**preset, **profile_values}, f"{sources['profile']} (profile {profile})")


def _put(values: dict[str, Any], sources: dict[str, str], new_values: Mapping[str, Any], source: str) -> None:
    """Put several settings where one name for them stood: they win over earlier sources, and give way to later ones."""
    ranks = ("default", "file", "environment", "flag")
    rank = ranks.index(source.partition(" ")[0])
    strong = "(profile " in source  # a profile overrides the other settings of its file
    for name, value in new_values.items():
        if ranks.index(sources[name].partition(" ")[0]) < rank + (strong and rank == 1):
            values[name] = value
            sources[name] = source


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from error
    import tomllib  # most users have no such file

    try:
        return tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is no valid TOML: {error}") from error


def _convert_value(name: str, value: object, source: str, *, strict: bool) -> Any:
    """The value in its setting's type. From the environment everything comes as text."""
    kind = get_type_hints(Settings, include_extras=True)[name]
    if name in _HOSTS and (hosts := _parse_hosts(name, value, source)) is not None:
        return hosts
    if isinstance(value, str) and get_origin(kind) is tuple:
        value = [line for line in value.splitlines() if line.strip()]  # from the environment: one a line
    elif not strict and isinstance(value, str) and get_origin(kind) is dict:
        with suppress(msgspec.DecodeError):
            value = msgspec.json.decode(value)  # a table in a variable is JSON
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source} = {value!r} does not fit: {error}") from error


_HOSTS = ("network", "serve_network")


def _parse_hosts(name: str, value: object, source: str) -> Any:
    """Host patterns in their one spelling, `True` for all hosts; None: it is neither text nor a list of texts."""
    if isinstance(value, bool) or not isinstance(value, str | list | tuple):
        return None
    from treadle.base.host_patterns import check_all, read

    try:
        if isinstance(value, str) and name == "network":
            return read(value)
        return check_all(value.replace(",", " ").split() if isinstance(value, str) else map(str, value))
    except InvalidInput as error:
        raise ConfigError(f"{source}: {error}") from error
