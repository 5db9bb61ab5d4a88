"""The description of a model from Ollama's `/api/show`: capabilities, window, settings of its Modelfile. Pure; accepts
any shape, and treats fields that it cannot parse as unknown."""

from typing import Any

import msgspec
from msgspec.structs import replace

from treadle.ports.model import ModelInfo


class ServedModel(msgspec.Struct, frozen=True):
    capabilities: frozenset[str] | None = None
    """completion, tools, thinking, vision, …; None from a server that is too old to tell."""
    window: int = 0
    """The window that the model was trained for, in tokens; 0 if unknown."""
    num_ctx: int = 0
    """The window that its Modelfile sets, if it does."""
    own_temperature: bool = False
    """True if its Modelfile sets a temperature."""

    def has_capability(self, capability: str) -> bool | None:
        """None when the server does not tell."""
        return None if self.capabilities is None else capability in self.capabilities

    def inform(self, info: ModelInfo) -> ModelInfo:
        """Add the server's facts to `info`. A larger window needs more memory, so the window of `info` is an upper
        limit for the model's own; the window of a Modelfile was chosen for this machine and is used as it is."""
        efforts = info.efforts
        if self.has_capability("thinking") is False:
            efforts = ()
        elif efforts is None and self.has_capability("thinking"):
            efforts = ("none", "high")  # most models know only whether they think
        window = self.num_ctx or min(self.window or info.window, info.window)
        return replace(
            info,
            window=window,
            max_output=min(info.max_output, window // 2),
            temperature=None if self.own_temperature else info.temperature,
            native_tools=self.has_capability("tools") is not False,
            thinking=self.has_capability("thinking") is True,
            efforts=efforts,
            vision=info.vision if self.capabilities is None else "vision" in self.capabilities,
        )


def read_shown(body: bytes) -> ServedModel:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ServedModel()
    if not isinstance(document, dict):
        return ServedModel()
    listed = document.get("capabilities")
    set_in_file = _parameters(document.get("parameters"))
    return ServedModel(
        frozenset(map(str, listed)) if isinstance(listed, list) else None,
        _window(document.get("model_info")),
        _count(set_in_file.get("num_ctx", "")),
        "temperature" in set_in_file,
    )


def _window(model_info: Any) -> int:
    if not isinstance(model_info, dict):
        return 0
    lengths = {key: value for key, value in model_info.items() if key.endswith(".context_length")}
    own_length = lengths.get(f"{model_info.get('general.architecture')}.context_length")
    value = own_length if own_length is not None else next(iter(lengths.values()), 0)
    return value if isinstance(value, int) and value > 0 else 0


def _parameters(text: Any) -> dict[str, str]:
    """The parameters of a Modelfile: a name and a value on each line."""
    pairs = (line.split(maxsplit=1) for line in text.splitlines()) if isinstance(text, str) else ()
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def _count(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else 0
