"""Facts about models by name: window, output limit, prices, traits (M-12). Looked up in a table, with the user's own
file on top, which has tables named `provider:name`. A model in neither works with the safe defaults of `ModelInfo`."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from treadle.errors import ConfigError
from treadle.ports.model import ModelInfo
from treadle.protocol.options import EFFORTS, ReasoningEffort

OWN_SERVERS = frozenset({"llamacpp", "lmstudio", "local", "ollama", "vllm"})
"""Providers whose models run on machines of the user."""
COST_TELLERS = frozenset({"openrouter"})
"""Providers that tell with each answer what it cost."""
FILE_NAME = "models.toml"
"""The user's own file, in Treadle's home."""
OUTPUT_CAP = 32_768
"""The most output tokens of a turn, even if the model offers more: the cost of a call is reserved by this limit (L-11),
and the output shares the window (L-19)."""
COPILOT_WINDOW = 128_000
COPILOT_OUTPUT = 16_384
"""The limits that GitHub Copilot sets for nearly every model, regardless of the model's own."""

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
    """Return the built-in facts about a model."""
    if provider == "copilot":
        return _of_copilot(name)
    known_info = _lookup_model(provider, name)
    if known_info is None and provider == "openrouter":
        known_info = _of_maker(name)
    info = known_info or _unknown(provider, name)
    if provider in OWN_SERVERS:
        return replace(info, free=True)
    return replace(info, tells_cost=True) if provider in COST_TELLERS else info


def _unknown(provider: str, name: str) -> ModelInfo:
    """A model that is not in the table: nothing is sent to it that the user did not ask for."""
    efforts = levels_of(provider, name, thinking=False, certain=False)
    return ModelInfo(provider, name, temperature=None, efforts=efforts, limit_assumed=True)


def levels_of(provider: str, name: str, *, thinking: bool, certain: bool) -> tuple[ReasoningEffort, ...] | None:
    """The reasoning efforts that a model takes; None: not known. `certain`: the table has this very model (M-16)."""
    from treadle.adapters.models.catalog.efforts import LEVELS, RESELLERS

    if provider in RESELLERS and thinking:
        return EFFORTS
    base_name = name.rpartition("/")[2].lower()
    # Anthropic's names have hyphens where resellers write dots.
    listed = find(LEVELS, base_name.replace(".", "-") if base_name.startswith("claude") else base_name)
    if listed is not None or thinking or not certain:
        return listed
    return ()


def known_names(provider: str) -> list[str]:
    """The models that people are told of."""
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
        """Warnings about the user's file. ConfigError if the file cannot be used."""
        self._read()
        return self._warnings

    def look_up(self, provider: str, name: str) -> ModelInfo:
        return self.adjust(look_up(provider, name))

    def adjust(self, info: ModelInfo) -> ModelInfo:
        """Override the facts about a model with the user's settings."""
        user_settings = find(self._read(), info.ref)
        if not user_settings:
            return info
        return replace(info, **user_settings, limit_assumed=info.limit_assumed and "max_output" not in user_settings)

    def names(self, provider: str) -> list[str]:
        """The models of a provider that are known by name, the user's own first."""
        refs = (ref.partition(":") for ref in self._read() if not ref.endswith("*"))
        user_names = [name for owner, _, name in refs if owner == provider]
        return list(dict.fromkeys([*user_names, *known_names(provider)]))

    def _read(self) -> dict[str, dict[str, object]]:
        if self._own is not None:
            return self._own
        if self._file is None or not self._file.exists():
            self._own = {}
        else:
            self._own, self._warnings = read_catalog(self._file)
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
        efforts=levels_of(provider, name, thinking="thinking" in traits, certain=bool(fresh or output)),
        vision="vision" in traits,
    )


def _of_maker(name: str) -> ModelInfo | None:
    """A model under the name of a reseller, `anthropic/claude-opus-5.5`, by what its maker calls it."""
    from treadle.adapters.models.catalog.table import MAKERS

    base_name = name.rpartition("/")[2]
    word = _FIRST_WORD.match(base_name)
    maker = MAKERS.get(word[0].lower(), "") if word else ""
    maker_info = (
        _lookup_model(maker, base_name.replace(".", "-") if maker == "anthropic" else base_name) if maker else None
    )
    if maker_info is None:
        return None
    efforts = levels_of("openrouter", name, thinking=maker_info.thinking, certain=maker_info.has_price)
    return replace(maker_info, provider="openrouter", name=name, efforts=efforts)


def _of_copilot(name: str) -> ModelInfo:
    """Paid for by subscription: there are no prices."""
    habits = _of_maker(name) or _unknown("copilot", name)
    limit = 4_096 if name.startswith(("gpt-3.5", "gpt-4o")) or name == "gpt-4" else COPILOT_OUTPUT
    return ModelInfo(
        "copilot",
        name,
        window=COPILOT_WINDOW,
        max_output=limit,
        temperature=habits.temperature,
        thinking=habits.thinking,
        efforts=levels_of("copilot", name, thinking=habits.thinking, certain=habits.has_price),
        vision=habits.vision,
        free=True,
    )


_Tokens = Annotated[int, Meta(ge=1)]
_Price = Annotated[float, Meta(ge=0)]

KEYS: dict[str, tuple[str, Any]] = {
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
"""By key of the file: the field of `ModelInfo`, and what fits."""


def read_catalog(file: Path) -> tuple[dict[str, dict[str, object]], tuple[str, ...]]:
    """Return the fields that the file sets, by `provider:name`, and warnings about unknown keys."""
    models: dict[str, dict[str, object]] = {}
    warnings: list[str] = []
    for ref, table in _load(file).items():
        provider, _, name = ref.partition(":")
        if not provider or not name or not isinstance(table, dict):
            raise ConfigError(f'{file}: {ref} names no model; write a table ["provider:name"]')
        fields = models[ref] = {}
        for key, value in table.items():
            if key not in KEYS:
                warnings.append(f'{file}: ["{ref}"] has the unknown key {key!r}; it is ignored')
                continue
            field, kind = KEYS[key]
            fields[field] = _checked(value, kind, f'{file}: ["{ref}"] {key}')
        if "usd_per_million_input" in fields:  # nothing is cheaper than it was said to be
            fields.setdefault("usd_per_million_cached", fields["usd_per_million_input"])
            fields["free"] = not fields["usd_per_million_input"] and not fields.get("usd_per_million_output")
    return models, tuple(warnings)


def _checked(value: object, kind: Any, source: str) -> object:
    if value is False and kind is KEYS["temperature"][1]:
        return None
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source} = {value!r} does not fit: {error}") from error


def _load(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is no valid TOML: {error}") from error
