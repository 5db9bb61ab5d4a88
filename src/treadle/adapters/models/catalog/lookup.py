"""Facts about models by name: window, output limit, prices, traits (M-12). Looked up in a table, with the user's own
file on top, which has tables named `provider:name`. A model in neither works with the safe defaults of `ModelInfo`, and
with the facts that its server tells. These are kept in Treadle's home, so that the next process knows them at once."""

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from treadle.base.file_system import replace_file
from treadle.errors import ConfigError
from treadle.ports.model import ModelInfo
from treadle.protocol.options import EFFORTS, MAX_USD, ReasoningEffort

OWN_SERVERS = frozenset({"llamacpp", "lmstudio", "local", "ollama", "vllm"})  # on machines of the user
COST_TELLERS = frozenset({"openrouter"})  # providers that tell with each answer what it cost
RESELLERS = frozenset({"openrouter"})  # they take every level of effort for every model that thinks
FILE_NAME = "models.toml"  # the user's own file, in Treadle's home
FACTS_FILE_NAME = "model-facts.json"
OUTPUT_CAP = 32_768
"""The most output tokens of a turn, even if the model offers more: the cost of a call is reserved by this limit (L-11),
and the output shares the window (L-19)."""
COPILOT_WINDOW = 128_000
COPILOT_OUTPUT = 16_384  # the limits that GitHub Copilot sets for nearly every model, regardless of the model's own

_DATED = re.compile(r"(?:-(?:20\d\d-\d\d-\d\d|20\d{6}|\d{4}|latest|preview)|@[\w-]+|:[\w-]+)$")
"""The end of a name that gives the edition of a model."""
_FIRST_WORD = re.compile(r"[a-z]+\d?", re.I)
_T = TypeVar("_T")


def find(table: Mapping[str, _T], name: str) -> _T | None:
    """The entry of this very name; else of its edition; else of the longest beginning that the table has with `*`."""
    if name in table:
        return table[name]
    stem = _DATED.sub("", name)
    for listed in (stem, f"{stem}-latest"):
        if listed in table:
            return table[listed]
    begins = [key for key in table if key.endswith("*") and name.startswith(key[:-1])]
    return table[max(begins, key=len)] if begins else None


def look_up(provider: str, name: str) -> ModelInfo:
    if provider == "copilot":
        return _make_copilot_info(name)
    known_info = _lookup_model(provider, name)
    if known_info is None and provider == "openrouter":
        known_info = _find_by_maker(name)
    info = known_info or _make_unknown_info(provider, name)
    if provider in OWN_SERVERS:
        return replace(info, free=True)
    return replace(info, tells_cost=True) if provider in COST_TELLERS else info


def _make_unknown_info(provider: str, name: str) -> ModelInfo:
    efforts = find_levels(provider, name, thinking=False, certain=False)
    # Nothing is sent to it that the user did not ask for, such as a temperature.
    return ModelInfo(provider, name, temperature=None, efforts=efforts, limit_assumed=True)


def find_levels(provider: str, name: str, *, thinking: bool, certain: bool) -> tuple[ReasoningEffort, ...] | None:
    """The reasoning efforts that a model takes; None: not known. `certain`: the table has this very model (M-16)."""
    from treadle.adapters.models.catalog.table import LEVELS

    if provider in RESELLERS and thinking:
        return EFFORTS
    base_name = name.rpartition("/")[2].lower()
    # Anthropic's names have hyphens where resellers write dots.
    listed = find(LEVELS, base_name.replace(".", "-") if base_name.startswith("claude") else base_name)
    return listed if listed is not None or thinking or not certain else ()


def list_known_names(provider: str) -> list[str]:
    from treadle.adapters.models.catalog.table import LISTED, TABLES

    return [name for name in LISTED.get(provider, TABLES.get(provider, ())) if not name.endswith("*")]


class Catalogue:
    """The known models, with the user's file on top. The file is read when it is first needed."""

    def __init__(self, home: Path | None = None) -> None:
        self._file = home / FILE_NAME if home is not None else None
        self._own: dict[str, dict[str, object]] | None = None
        self._warnings: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of the user's file. ConfigError if it cannot be used."""
        self._read()
        return self._warnings

    def look_up(self, provider: str, name: str) -> ModelInfo:
        return self.adjust(look_up(provider, name))

    def adjust(self, info: ModelInfo) -> ModelInfo:
        user_settings = find(self._read(), info.ref)
        if not user_settings:
            return info
        return replace(info, **user_settings, limit_assumed=info.limit_assumed and "max_output" not in user_settings)

    def list_names(self, provider: str) -> list[str]:
        """The models of a provider that are known by name, the user's own first."""
        refs = (ref.partition(":") for ref in self._read() if not ref.endswith("*"))
        user_names = [name for owner, _, name in refs if owner == provider]
        return list(dict.fromkeys([*user_names, *list_known_names(provider)]))

    def _read(self) -> dict[str, dict[str, object]]:
        if self._own is None:
            self._own, self._warnings = read_catalog(self._file) if self._file and self._file.exists() else ({}, ())
        return self._own


def _lookup_model(provider: str, name: str) -> ModelInfo | None:
    from treadle.adapters.models.catalog.table import TABLES

    row = find(TABLES.get(provider, {}), name)
    if row is None:
        return None
    window, limit, fresh, cached, output, traits = row
    return ModelInfo(
        provider,
        name,
        window=window,
        max_output=min(limit, OUTPUT_CAP),
        usd_per_million_input=fresh,
        usd_per_million_cached=cached,
        usd_per_million_output=output,
        temperature=None if "no-temperature" in traits else 0.1,
        native_tools="no-tools" not in traits,
        thinking="thinking" in traits,
        efforts=find_levels(provider, name, thinking="thinking" in traits, certain=bool(fresh or output)),
        vision="vision" in traits,
    )


def _find_by_maker(name: str) -> ModelInfo | None:
    """A model under the name of a reseller, `anthropic/claude-opus-5.5`, by what its maker calls it."""
    from treadle.adapters.models.catalog.table import MAKERS

    base_name = name.rpartition("/")[2]
    word = _FIRST_WORD.match(base_name)
    maker = MAKERS.get(word[0].lower(), "") if word else ""
    # Anthropic's names have hyphens where resellers write dots.
    maker_info = _lookup_model(maker, base_name.replace(".", "-") if maker == "anthropic" else base_name)
    if maker_info is None:
        return None
    efforts = find_levels("openrouter", name, thinking=maker_info.thinking, certain=maker_info.has_price)
    return replace(maker_info, provider="openrouter", name=name, efforts=efforts)


def _make_copilot_info(name: str) -> ModelInfo:
    """Paid for by subscription: there are no prices."""
    habits = _find_by_maker(name) or _make_unknown_info("copilot", name)
    limit = 4_096 if name.startswith(("gpt-3.5", "gpt-4o")) or name == "gpt-4" else COPILOT_OUTPUT
    return ModelInfo(
        "copilot",
        name,
        window=COPILOT_WINDOW,
        max_output=limit,
        temperature=habits.temperature,
        thinking=habits.thinking,
        efforts=find_levels("copilot", name, thinking=habits.thinking, certain=habits.has_price),
        vision=habits.vision,
        free=True,
    )


_Tokens = Annotated[int, Meta(ge=1)]
_Price = Annotated[float, Meta(ge=0, le=MAX_USD)]

KEYS: dict[str, tuple[str, Any]] = {  # by key of the file: the field of `ModelInfo`, and what fits
    "window": ("window", _Tokens),
    "max_output": ("max_output", _Tokens),
    "price_input": ("usd_per_million_input", _Price),
    "price_cached": ("usd_per_million_cached", _Price),
    "price_output": ("usd_per_million_output", _Price),
    "temperature": ("temperature", Annotated[float, Meta(ge=0, le=2)] | Literal[False]),
    "native_tools": ("native_tools", bool),
    "thinking": ("thinking", bool),
    "efforts": ("efforts", tuple[ReasoningEffort, ...]),
    "vision": ("vision", bool),
}


def read_catalog(file: Path) -> tuple[dict[str, dict[str, object]], tuple[str, ...]]:
    """Return the fields that the file sets, by `provider:name`, and warnings about unknown keys."""
    import tomllib

    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is no valid TOML: {error}") from error
    models: dict[str, dict[str, object]] = {}
    warnings: list[str] = []
    for ref, table in tables.items():
        provider, _, name = ref.partition(":")
        if not provider or not name or not isinstance(table, dict):
            raise ConfigError(f'{file}: {ref} names no model; write a table ["provider:name"]')
        fields = models[ref] = {}
        for key, value in table.items():
            if key not in KEYS:
                warnings.append(f'{file}: ["{ref}"] has the unknown key {key!r}; it is ignored')
                continue
            field, kind = KEYS[key]
            try:
                fields[field] = None if key == "temperature" and value is False else msgspec.convert(value, kind)
            except msgspec.ValidationError as error:
                raise ConfigError(f'{file}: ["{ref}"] {key} = {value!r} does not fit: {error}') from error
        if "usd_per_million_input" in fields:  # nothing is cheaper than it was said to be
            fields.setdefault("usd_per_million_cached", fields["usd_per_million_input"])
            fields["free"] = not fields["usd_per_million_input"] and not fields.get("usd_per_million_output")
    return models, tuple(warnings)


VALID_S = 7 * 24 * 3600.0  # after that they are forgotten: prices change
MOST = 200  # how many models are kept


class ModelFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """0, None: the server does not tell."""

    window: int = 0
    max_output: int = 0
    price_input: float = 0.0  # USD for a million tokens, as the next two
    price_cached: float = 0.0
    price_output: float = 0.0
    tools: bool | None = None
    vision: bool | None = None
    reasoning: bool | None = None

    def inform(self, info: ModelInfo) -> ModelInfo:
        """The model with these facts where the catalogue has none, or only those of the model's family."""
        if info.limit_assumed or info.is_unknown or not info.has_price:
            if self.window:
                info = replace(info, window=self.window, max_output=min(info.max_output, self.window // 2))
            if self.max_output:
                max_output = min(self.max_output, OUTPUT_CAP, info.window)
                info = replace(info, max_output=max_output, limit_assumed=False)
            tools = info.native_tools if self.tools is None else self.tools
            vision = info.vision if self.vision is None else self.vision
            efforts = () if self.reasoning is False else info.efforts
            if self.reasoning and info.provider in RESELLERS:
                efforts = EFFORTS
            info = replace(info, native_tools=tools, vision=vision, efforts=efforts)
        if self.price_input > 0 and self.price_output > 0 and not info.usd_per_million_input:
            info = replace(
                info,
                usd_per_million_input=self.price_input,
                usd_per_million_cached=self.price_cached or self.price_input,
                usd_per_million_output=self.price_output,
            )
        return info


class _StoredFacts(msgspec.Struct, frozen=True):
    facts: ModelFacts
    time_s: float


class ServerFacts:
    """The facts about the models that were used, by address and name. A cache: a file that cannot be read or written
    counts as empty. `home` None keeps them in memory alone."""

    def __init__(self, home: Path | None) -> None:
        self._file = home / FACTS_FILE_NAME if home is not None else None
        self._stored: dict[str, _StoredFacts] | None = None

    def find(self, address: str, name: str) -> ModelFacts | None:
        stored = self._read().get(_make_key(address, name))
        return stored.facts if stored is not None and time.time() - stored.time_s < VALID_S else None

    def list_names(self, address: str) -> list[str]:
        start = _make_key(address, "")
        return sorted(key.removeprefix(start) for key in self._read() if key.startswith(start))

    def keep(self, address: str, name: str, facts: ModelFacts) -> None:
        self._stored = None  # another process may have written
        stored = {**self._read(), _make_key(address, name): _StoredFacts(facts, time.time())}
        self._stored = dict(sorted(stored.items(), key=lambda item: item[1].time_s)[-MOST:])
        if self._file is not None:
            with suppress(OSError):
                replace_file(str(self._file), msgspec.json.encode(self._stored))

    def _read(self) -> dict[str, _StoredFacts]:
        if self._stored is None:
            self._stored = {}
            if self._file is not None:
                with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
                    self._stored = msgspec.json.decode(self._file.read_bytes(), type=dict[str, _StoredFacts])
        return self._stored


def _make_key(address: str, name: str) -> str:
    return f"{address.rstrip('/')} {name}"
