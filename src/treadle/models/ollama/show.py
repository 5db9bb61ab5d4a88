"""What Ollama tells of a model at `/api/show`: what it can do, how much it can read, what its maker has set. Pure, and
content with any shape: what cannot be understood is unknown."""

from typing import Any

import msgspec
from msgspec.structs import replace

from treadle.ports.model import ModelInfo


class ServedModel(msgspec.Struct, frozen=True):
    capabilities: frozenset[str] | None = None
    """completion, tools, thinking, vision, …; None from a server that is too old to tell."""
    window: int = 0
    """What the model was made for, in tokens; 0 when unknown."""
    num_ctx: int = 0
    """The window that its Modelfile sets, if it does."""
    own_temperature: bool = False
    """Whether its Modelfile sets a temperature."""

    def can(self, capability: str) -> bool | None:
        """None when the server does not tell."""
        return None if self.capabilities is None else capability in self.capabilities

    def inform(self, info: ModelInfo) -> ModelInfo:
        """What is known of the model now. A window takes memory that grows with it, so that of `info` is the most
        that is taken of a model's own; the one in a Modelfile was chosen for this machine and stands."""
        efforts = info.efforts
        if self.can("thinking") is False:
            efforts = ()
        elif efforts is None and self.can("thinking"):
            efforts = ("none", "high")  # most models know only whether they think
        window = self.num_ctx or min(self.window or info.window, info.window)
        return replace(
            info,
            window=window,
            max_output=min(info.max_output, window // 2),
            temperature=None if self.own_temperature else info.temperature,
            native_tools=self.can("tools") is not False,
            thinking=self.can("thinking") is True,
            efforts=efforts,
            vision=info.vision if self.capabilities is None else "vision" in self.capabilities,
        )


def read_shown(body: bytes) -> ServedModel:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ServedModel()
    if not isinstance(found, dict):
        return ServedModel()
    listed = found.get("capabilities")
    set_in_file = _parameters(found.get("parameters"))
    return ServedModel(
        frozenset(map(str, listed)) if isinstance(listed, list) else None,
        _window(found.get("model_info")),
        _count(set_in_file.get("num_ctx", "")),
        "temperature" in set_in_file,
    )


def _window(model_info: Any) -> int:
    if not isinstance(model_info, dict):
        return 0
    lengths = {key: value for key, value in model_info.items() if key.endswith(".context_length")}
    own = lengths.get(f"{model_info.get('general.architecture')}.context_length")
    value = own if own is not None else next(iter(lengths.values()), 0)
    return value if isinstance(value, int) and value > 0 else 0


def _parameters(text: Any) -> dict[str, str]:
    """The parameters of a Modelfile: a name and a value on each line."""
    pairs = (line.split(maxsplit=1) for line in text.splitlines()) if isinstance(text, str) else ()
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def _count(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else 0
