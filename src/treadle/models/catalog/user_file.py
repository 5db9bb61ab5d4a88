"""The user's own file of models: tables named `provider:name`, each with what is to be said otherwise (M-12). Reads and
checks; what it means is the catalogue's business."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from treadle.errors import ConfigError

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
    "vision": ("vision", bool),
}
"""By key of the file: the field of `ModelInfo`, and what fits."""


def read_catalog(file: Path) -> tuple[dict[str, dict[str, object]], tuple[str, ...]]:
    """By `provider:name`, the fields that the file sets; and warnings about keys that nobody knows."""
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
    return models, tuple(warnings)


def _checked(value: object, kind: Any, where: str) -> object:
    if value is False and kind is KEYS["temperature"][1]:
        return None
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where} = {value!r} does not fit: {error}") from error


def _load(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is no valid TOML: {error}") from error
