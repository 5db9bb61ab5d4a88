"""Facts that servers tell about their models (M-12): window, output limit, prices, abilities. The facts about the
models that were used are kept in Treadle's home, by address and name, so that the next process knows them at once. A
cache: a file that cannot be read or written counts as empty."""

import time
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from treadle.adapters.models.catalog.efforts import RESELLERS
from treadle.adapters.models.catalog.lookup import OUTPUT_CAP
from treadle.base.file_system import replace_file
from treadle.ports.model import ModelInfo
from treadle.protocol.options import EFFORTS

FILE_NAME = "model-facts.json"
VALID_S = 7 * 24 * 3600.0
"""After that they are forgotten: prices change."""
MOST = 200
"""How many models are kept."""


class ModelFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """0, None: the server does not tell."""

    window: int = 0
    max_output: int = 0
    price_input: float = 0.0
    """USD for a million tokens, as the next two."""
    price_cached: float = 0.0
    price_output: float = 0.0
    tools: bool | None = None
    vision: bool | None = None
    reasoning: bool | None = None

    def inform(self, info: ModelInfo) -> ModelInfo:
        """The model with these facts where the catalogue has none, or only those of the model's family."""
        if info.limit_assumed or info.is_unknown or not info.has_price:
            info = self._describe(info)
        if self.price_input and self.price_output and not info.usd_per_million_input:
            info = replace(
                info,
                usd_per_million_input=self.price_input,
                usd_per_million_cached=self.price_cached or self.price_input,
                usd_per_million_output=self.price_output,
            )
        return info

    def _describe(self, info: ModelInfo) -> ModelInfo:
        if self.window:
            info = replace(info, window=self.window, max_output=min(info.max_output, self.window // 2))
        if self.max_output:
            limit = min(self.max_output, OUTPUT_CAP, info.window)
            info = replace(info, max_output=limit, limit_assumed=False)
        if self.tools is not None:
            info = replace(info, native_tools=self.tools)
        if self.vision is not None:
            info = replace(info, vision=self.vision)
        if self.reasoning is False:
            info = replace(info, efforts=())
        elif self.reasoning and info.provider in RESELLERS:
            info = replace(info, efforts=EFFORTS)
        return info


class _StoredFacts(msgspec.Struct, frozen=True):
    facts: ModelFacts
    time_s: float


class ServerFacts:
    """`home` None keeps them in memory alone."""

    def __init__(self, home: Path | None) -> None:
        self._file = home / FILE_NAME if home is not None else None
        self._stored: dict[str, _StoredFacts] | None = None

    def find(self, address: str, name: str) -> ModelFacts | None:
        stored = self._read().get(_key(address, name))
        return stored.facts if stored is not None and time.time() - stored.time_s < VALID_S else None

    def names(self, address: str) -> list[str]:
        """The models of a server that were used lately."""
        start = _key(address, "")
        return sorted(key.removeprefix(start) for key in self._read() if key.startswith(start))

    def keep(self, address: str, name: str, facts: ModelFacts) -> None:
        self._stored = None  # another process may have written
        stored = {**self._read(), _key(address, name): _StoredFacts(facts, time.time())}
        newest = sorted(stored.items(), key=lambda item: item[1].time_s)[-MOST:]
        self._stored = dict(newest)
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


def _key(address: str, name: str) -> str:
    return f"{address.rstrip('/')} {name}"
