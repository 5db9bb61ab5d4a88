"""The Messages API of Anthropic, and of every server that speaks its language (M-02). Makes one call at a time, as the
port says; retries and records are the engine's business."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack

from treadle.adapters.models.anthropic.request import AnthropicEncoder
from treadle.adapters.models.anthropic.stream import AnthropicReader
from treadle.adapters.models.listing import list_from
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.wire.failures import is_refusal, refuses
from treadle.adapters.models.wire.http_model import Access, ConnectionOptions, HttpModel
from treadle.errors import ModelError
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.deltas import NoticeDelta
from treadle.protocol.options import ReasoningEffort

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
FALLBACK_OUTPUT = 4_096
LEAST_BUDGET = 1_024
"""The smallest budget for thinking that the API takes."""

_BUDGETS: Mapping[ReasoningEffort, int] = {
    "minimal": LEAST_BUDGET,
    "low": 4_096,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 24_576,
    "max": 32_000,
}
"""Tokens of thinking for models that take a budget instead of a level."""
_BUDGETED = re.compile(r"claude-(?:3-7|(?:opus|sonnet|haiku)-4(?:-[0-5])?(?:-20\d{6})?$)")
"""Models that know budgets of thinking alone; all later ones are asked by the name of a level."""

_TOO_MANY = re.compile(r"max_tokens: \d+ > (\d{1,9})")
_DEMANDS_BLOCKS = re.compile(r"thinking\b.{0,60}must be passed back", re.I)
"""DeepSeek, for answers that another model gave."""
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
    effort_words: ClassVar = (("output_config", r"output_config[\w.]*|effort"),)

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
        calm = self._encoder.talk(request).calm
        effort = "" if calm else request.effort
        thinking = None if calm else self._thinking_asked(limit, effort)
        level = None
        if effort not in ("", "none") and not _BUDGETED.match(self._info.name):
            level = {"effort": "low" if effort == "minimal" else effort}
        temperature = self._temperature(request)
        if thinking is not None and thinking["type"] != "disabled" and request.temperature is None:
            temperature = None  # the API takes none beside thinking
        optional_params = self._select_parameters(
            {"temperature": temperature, "thinking": thinking, "output_config": level}
        )
        return {"model": self._info.name, "max_tokens": limit, "stream": True, **optional_params}

    def _reader(self, host: str) -> AnthropicReader:
        return AnthropicReader(host, self._info)

    def _thinking_asked(self, limit: int, effort: ReasoningEffort | Literal[""]) -> dict[str, Any] | None:
        name = self._info.name
        # Models of others that speak this protocol think unless they are told not to, and know no "adaptive".
        is_foreign = not name.startswith("claude")
        if effort == "none":
            return {"type": "disabled"} if self._thinking or is_foreign else None
        budget = self._thinking if isinstance(self._thinking, int) else 0
        if effort and (is_foreign or _BUDGETED.match(name)):
            budget = _BUDGETS[effort]
        elif effort or self._thinking == "adaptive":
            # Without this word newer models keep to themselves what they think, and what they say between calls.
            return {"type": "adaptive", "display": "summarized"}
        budget = min(budget, limit - 1)
        return {"type": "enabled", "budget_tokens": budget} if budget >= LEAST_BUDGET else None

    def _mend(self, error: ModelError, sent_params: Mapping[str, Any], request: ModelRequest) -> NoticeDelta | None:
        """If the server refused a part of the request by name, go without it and say so (M-01, M-10). Each refusal
        leaves less to refuse, so this ends."""
        if not is_refusal(error):
            return None
        error_text = str(error)
        if (most := _TOO_MANY.search(error_text)) and 0 < int(most[1]) < sent_params["max_tokens"]:
            self._output_limit = int(most[1])
            return self._notice("parameter_lowered", f"takes at most {most[1]} tokens of output; max_tokens is lowered")
        if refuses(error, "cache_control", r"[\w.]*cache_control[\w.]*", inside=True) and self._encoder.drop_marks():
            return self._notice("parameter_dropped", "refuses cache_control; it is no longer sent")
        if "temperature" in sent_params and refuses(error, "temperature"):
            return self._drop("temperature")
        if "thinking" not in error_text and "signature" not in error_text:
            return None
        if _DEMANDS_BLOCKS.search(error_text):
            if not self._encoder.want_thinking():
                return None
            return self._notice("thinking_returned", "wants thinking with every answer; from now on it gets it")
        if _ABOUT_BLOCKS.search(error_text):
            if self._encoder.drop_thinking(request):
                return self._notice("thinking_dropped", "refuses earlier thinking; it goes on without it")
            if "thinking" in sent_params:
                self._encoder.talk(request).calm = True
                return self._notice("thinking_dropped", "misses earlier thinking; it goes on without thinking")
        elif "thinking" in sent_params and refuses(error, "thinking", r"thinking[\w.]*"):
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
