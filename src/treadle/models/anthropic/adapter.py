"""The Messages API of Anthropic, and of every server that speaks its language (M-02). Makes one call at a time, as the
port says; retries and records are the engine's business."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack

from treadle.errors import ModelError
from treadle.models.anthropic.request import AnthropicEncoder
from treadle.models.anthropic.stream import AnthropicReader
from treadle.models.listing import list_from
from treadle.models.provider_context import ProviderContext
from treadle.models.wire.failures import is_refusal, refuses
from treadle.models.wire.http_model import Access, ConnectionOptions, HttpModel
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.deltas import NoticeDelta

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
FALLBACK_OUTPUT = 4_096
LEAST_BUDGET = 1_024
"""The smallest budget for thinking that the API takes."""

_TOO_MANY = re.compile(r"max_tokens: \d+ > (\d{1,9})")
_ABOUT_BLOCKS = re.compile(r"messages\.\d|signature|block", re.I)


class AnthropicMessages(HttpModel):
    """One model behind one base URL.

    `thinking`: "adaptive" lets the model decide, a number is a budget of tokens for models that need one, "" asks for
    none; by default the catalogue decides.
    """

    base_url = BASE_URL
    path = "/v1/messages"
    key_header = "x-api-key"
    headers: ClassVar = {"anthropic-version": VERSION}

    def __init__(
        self,
        info: ModelInfo,
        *,
        thinking: Literal["adaptive", ""] | int | None = None,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        super().__init__(info, connection)
        self._thinking = thinking if thinking is not None else ("adaptive" if info.thinking else "")
        self._encoder: AnthropicEncoder = AnthropicEncoder(info.ref)
        self._output_limit = 0
        """The most that the server said it takes for an answer, once it did."""

    @classmethod
    def _base(cls, url: str) -> str:
        return url.rstrip("/").removesuffix("/messages").removesuffix("/v1")

    def _parameters(self, request: ModelRequest) -> dict[str, Any]:
        limit = request.max_tokens or self._info.max_output or FALLBACK_OUTPUT
        limit = min(limit, self._output_limit or limit)
        thinking = None if self._encoder.talk(request).calm else self._thinking_asked(limit)
        temperature = self._temperature(request)
        if thinking is not None and request.temperature is None:
            temperature = None  # the API takes none beside thinking
        kept = self._kept({"temperature": temperature, "thinking": thinking})
        return {"model": self._info.name, "max_tokens": limit, "stream": True, **kept}

    def _reader(self, where: str) -> AnthropicReader:
        return AnthropicReader(where, self._info)

    def _thinking_asked(self, limit: int) -> dict[str, Any] | None:
        if self._thinking == "adaptive":
            # Without this word newer models keep to themselves what they think, and what they say between calls.
            return {"type": "adaptive", "display": "summarized"}
        if isinstance(self._thinking, int) and (budget := min(self._thinking, limit - 1)) >= LEAST_BUDGET:
            return {"type": "enabled", "budget_tokens": budget}
        return None

    def _mend(self, error: ModelError, sent: Mapping[str, Any], request: ModelRequest) -> NoticeDelta | None:
        """If the server refused a part of the request by name, go without it and say so (M-01, M-10). Each refusal
        leaves less to refuse, so this ends."""
        if not is_refusal(error):
            return None
        said = str(error)
        if (most := _TOO_MANY.search(said)) and 0 < int(most[1]) < sent["max_tokens"]:
            self._output_limit = int(most[1])
            return self._notice("parameter_lowered", f"takes at most {most[1]} tokens of output; max_tokens is lowered")
        if refuses(error, "cache_control", r"[\w.]*cache_control[\w.]*", inside=True) and self._encoder.drop_marks():
            return self._notice("parameter_dropped", "refuses cache_control; it is no longer sent")
        if "temperature" in sent and refuses(error, "temperature"):
            return self._drop("temperature")
        if "thinking" not in said and "signature" not in said:
            return None
        if _ABOUT_BLOCKS.search(said):
            if self._encoder.drop_thinking(request):
                return self._notice("thinking_dropped", "refuses earlier thinking; it goes on without it")
            if "thinking" in sent:
                self._encoder.talk(request).calm = True
                return self._notice("thinking_dropped", "misses earlier thinking; it goes on without thinking")
        elif "thinking" in sent and refuses(error, "thinking", r"thinking[\w.]*"):
            return self._drop("thinking")
        return None


def connect(name: str, context: ProviderContext) -> AnthropicMessages:
    key, url = context.access(f"anthropic:{name}", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
    return AnthropicMessages(
        context.catalogue.look_up("anthropic", name), base_url=url or BASE_URL, api_key=key, http=context.http
    )


async def list_models(context: ProviderContext) -> list[ModelInfo]:
    key, url = context.access("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
    access = Access(AnthropicMessages._base(url or BASE_URL), key, AnthropicMessages.headers, "x-api-key")
    return await list_from(context, "anthropic", access, "/v1/models?limit=1000")
