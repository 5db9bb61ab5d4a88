"""The Gemini API of Google, and of every server that speaks its language (M-03). Makes one call at a time, as the port
says; retries and records are the engine's business."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from treadle.adapters.models.gemini.request import GeminiEncoder
from treadle.adapters.models.gemini.schema import reduced
from treadle.adapters.models.gemini.stream import GeminiReader
from treadle.adapters.models.keys import Secret
from treadle.adapters.models.listing import list_from
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.wire.failures import is_refusal, refuses
from treadle.adapters.models.wire.http_model import Access, ConnectionOptions, HttpModel
from treadle.adapters.models.wire.output_schema import without_tools
from treadle.errors import ModelError
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.deltas import NoticeDelta
from treadle.protocol.options import ReasoningEffort

BASE_URL = "https://generativelanguage.googleapis.com"
VERSION = "/v1beta"
KEY_HEADER = "x-goog-api-key"

_BUDGETS: Mapping[ReasoningEffort, int] = {
    "none": 0,
    "minimal": 512,
    "low": 2_048,
    "medium": 8_192,
    "high": 24_576,
    "xhigh": 24_576,
    "max": 24_576,
}
"""Tokens of thinking, for models that take no level."""
_GENERATION = re.compile(r"gemini-(\d{1,3})")
_HAS_VERSION = re.compile(r"/v\d\w*$")
_SIGNATURE = re.compile(r"thought[_ ]?signature", re.I)
_SCHEMA = re.compile(r"json_?schema|function_?declarations|\bschema\b", re.I)
_REFUSED = {
    "thinkingConfig": r"[\w.]*thinking[\w.]*|[\w.]*include_?thoughts",
    "temperature": r"[\w.]*temperature",
    "maxOutputTokens": r"[\w.]*max_?output_?tokens",
    "responseSchema": r"[\w.]*response_?schema",
    "responseMimeType": r"[\w.]*response_?mime_?type",
}
"""Patterns for the names of the parameters in error messages."""


class Gemini(HttpModel):
    """One model behind one base URL, or behind an endpoint that looks up address and key for each call.

    `thinking`: True to request the model's thoughts; by default the catalogue decides. `level`: the amount of thinking
    in the provider's terms (`low`, `medium`, `high`); empty leaves it to the model.
    """

    base_url = BASE_URL
    key_header = KEY_HEADER
    effort_words: ClassVar = (("thinkingConfig", r"[\w.]*thinking_?(?:level|budget)|thinking (?:level|budget)"),)

    def __init__(
        self, info: ModelInfo, *, thinking: bool | None = None, level: str = "", **connection: Unpack[ConnectionOptions]
    ) -> None:
        super().__init__(info, connection)
        self.path = f"/{self._resource(info.name)}:streamGenerateContent?alt=sse"
        # A model of which nothing is known is asked for its thoughts, too: it refuses once, if it has none.
        unknown = info.is_unknown and "gemini" in info.name
        self._thinking = (info.thinking or unknown) if thinking is None else thinking
        self._level = level
        # From the third generation on, calls without a signature are refused.
        generation = _GENERATION.search(info.name)
        stand_in = generation is not None and int(generation[1]) >= 3
        self._takes_levels = generation is None or stand_in
        self._encoder: GeminiEncoder = GeminiEncoder(info.ref, stand_in=stand_in)
        self._switched: set[str] = set()

    @classmethod
    def _base(cls, url: str) -> str:
        url = url.rstrip("/")
        return url if _HAS_VERSION.search(url) else url + VERSION

    def _resource(self, name: str) -> str:
        return name if name.startswith(("models/", "tunedModels/")) else f"models/{name}"

    def _parameters(self, request: ModelRequest) -> dict[str, Any]:
        how_much = self._how_much(request)
        params: dict[str, Any] = {
            "temperature": self._temperature(request),
            "maxOutputTokens": request.max_tokens or self._info.output_limit or None,
            "thinkingConfig": {"includeThoughts": True, **how_much} if self._thinking or how_much else None,
        }
        if (schema := without_tools(request)) is not None:
            params |= {"responseMimeType": "application/json", "responseSchema": reduced(schema)}
        return self._select_parameters(params)

    def _how_much(self, request: ModelRequest) -> dict[str, Any]:
        """The reasoning effort: a level, and a budget of tokens before the third generation."""
        effort = request.effort
        if not effort:
            return {"thinkingLevel": self._level} if self._level else {}
        if self._takes_levels:
            level = {"none": "minimal", "xhigh": "high", "max": "high"}.get(effort, effort)
            return {"thinkingLevel": level}
        return {"thinkingBudget": _BUDGETS[effort]}

    def _reader(self, host: str) -> GeminiReader:
        return GeminiReader(host, self._info.ref)

    def _mend(self, error: ModelError, sent_params: Mapping[str, Any], request: ModelRequest) -> NoticeDelta | None:
        """If the server refused a part of the request by name, go without it and say so (M-01, M-10). Each refusal
        leaves less to refuse, so this ends."""
        if not is_refusal(error):
            return None
        error_text = str(error)
        if _SIGNATURE.search(error_text):
            return self._mend_signatures("missing" in error_text or "misses" in error_text, request)
        for name, words in _REFUSED.items():
            if name in sent_params and refuses(error, name, words):
                return self._drop(name)
        if request.tools and not self._encoder.reduced and _SCHEMA.search(error_text):
            self._encoder.reduce()
            return self._notice(
                "schema_reduced", "does not take the schemas of the tools as they are; they are cut down"
            )
        return None

    def _mend_signatures(self, missing: bool, request: ModelRequest) -> NoticeDelta | None:
        """Drop refused signatures from the conversation, and use the stand-in where a signature is required. The
        stand-in is switched on at most once and off at most once per model."""
        if not missing and self._encoder.drop_thinking(request):
            return self._notice("thinking_dropped", "refuses earlier thought signatures; it goes on without them")
        switch = "on" if missing else "off"
        if self._encoder.stand_in == missing or switch in self._switched:
            return None
        self._switched.add(switch)
        self._encoder.switch_stand_in()
        problem = "misses thought signatures" if missing else "refuses what stands in for thought signatures"
        return self._notice("thinking_dropped", f"{problem}; it goes on without the thinking of earlier calls")


def _access(ref: str, context: ProviderContext) -> tuple[Secret, str]:
    variable = "GOOGLE_API_KEY" if context.env.get("GOOGLE_API_KEY") and not context.env.get("GEMINI_API_KEY") else ""
    key, url = context.access(ref, variable or "GEMINI_API_KEY", "GEMINI_BASE_URL")
    return key, url or BASE_URL


def connect(name: str, context: ProviderContext) -> Gemini:
    key, url = _access(f"gemini:{name}", context)
    return Gemini(context.catalogue.look_up("gemini", name), base_url=url, api_key=key, http=context.http)


async def list_models(context: ProviderContext) -> list[ModelInfo]:
    key, url = _access("gemini", context)
    access = Access(Gemini._base(url), key, key_header=KEY_HEADER)
    return await list_from(context, "gemini", access, "/models?pageSize=1000")
