"""The Responses API of OpenAI, and of every server that speaks its language (M-05). Nothing is kept by the provider:
each request carries the whole conversation, with the reasoning in encrypted form. Makes one call at a time, as the port
says; retries and records are the engine's business."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from treadle.adapters.models.listing import list_from
from treadle.adapters.models.openai_responses.request import ResponsesEncoder
from treadle.adapters.models.openai_responses.stream import ResponsesReader
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.wire.failures import refuses
from treadle.adapters.models.wire.http_model import Access, ConnectionOptions, HttpModel
from treadle.adapters.models.wire.output_schema import json_schema_format
from treadle.errors import ModelError
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.deltas import NoticeDelta

BASE_URL = "https://api.openai.com/v1"
LEAST_OUTPUT = 16
"""The smallest output limit that the API takes."""

_ABOUT_ITEMS = re.compile(r"encrypted[_ ]content|'reasoning'|reasoning item|\brs_\w", re.I)
_DROPPABLE = ("include", "reasoning", "temperature", "max_output_tokens", "store", "text")


class OpenAIResponses(HttpModel):
    """One model behind one base URL, or behind an endpoint that finds address and key for each call.

    `thinking` says whether it is a reasoning model, by default the catalogue does; `effort` is how much it thinks, in
    the provider's words, and empty leaves that to the model.
    """

    base_url = BASE_URL
    path = "/responses"
    effort_words: ClassVar = (("reasoning", r"reasoning[._]effort|effort"),)

    def __init__(
        self,
        info: ModelInfo,
        *,
        thinking: bool | None = None,
        effort: str = "",
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        super().__init__(info, connection)
        self._thinking = info.thinking if thinking is None else thinking
        # A model of which nothing is known is asked for its reasoning, too: it refuses once, if it has none.
        self._include = self._thinking or info.is_unknown
        self._effort = effort
        self._encoder = ResponsesEncoder(info.ref)

    def _parameters(self, request: ModelRequest) -> dict[str, Any]:
        limit = request.max_tokens or self._info.output_limit
        shape = json_schema_format(request)
        level = request.effort or self._effort
        effort = {"effort": level} if level else {}
        params = {
            "stream": True,
            "store": False,
            # Without these words, what a model thought is lost with its answer, and must be thought again.
            "include": ["reasoning.encrypted_content"] if self._include else None,
            "reasoning": {**effort, "summary": "auto"} if self._thinking or effort else None,
            "temperature": self._temperature(request),
            "text": {"format": {"type": "json_schema", **shape}} if shape is not None else None,
            "max_output_tokens": max(limit, LEAST_OUTPUT) if limit else None,
        }
        return {"model": self._info.name, **self._select_parameters(params)}

    def _reader(self, host: str) -> ResponsesReader:
        return ResponsesReader(host, self._info)

    def _mend(self, error: ModelError, sent_params: Mapping[str, Any], request: ModelRequest) -> NoticeDelta | None:
        """If the server refused a parameter by name, go without it for good; if it refused earlier reasoning, go
        without that in this conversation (M-01, M-10)."""
        name = next((name for name in _DROPPABLE if name in sent_params and refuses(error, name)), None)
        about_items = error.status in (400, 404, 422) and _ABOUT_ITEMS.search(str(error))
        if about_items and name != "include" and self._encoder.drop_thinking(request):
            return self._notice("thinking_dropped", "refuses earlier reasoning; it goes on without it")
        return None if name is None else self._drop(name)


def connect(name: str, context: ProviderContext) -> OpenAIResponses:
    key, url = context.access(f"openai-responses:{name}", "OPENAI_API_KEY", "OPENAI_BASE_URL")
    return OpenAIResponses(
        context.catalogue.look_up("openai-responses", name), base_url=url or BASE_URL, api_key=key, http=context.http
    )


async def list_models(context: ProviderContext, provider: str = "openai-responses") -> list[ModelInfo]:
    """List the models that the server offers; both of its protocols share one list."""
    key, url = context.access(provider, "OPENAI_API_KEY", "OPENAI_BASE_URL")
    base_url = (url or BASE_URL).rstrip("/").removesuffix("/chat/completions").removesuffix("/responses")
    return await list_from(context, provider, Access(base_url, key), "/models")
