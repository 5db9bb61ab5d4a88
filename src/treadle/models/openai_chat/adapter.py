"""Chat Completions: OpenAI and every server that speaks its language (M-01). Makes one call at a time, as the port
says; retries and records are the engine's business."""

import re
from collections.abc import Mapping
from typing import Any

from treadle.errors import ModelError
from treadle.models.keys import Secret
from treadle.models.openai_chat.request import Encoder
from treadle.models.openai_chat.stream import StreamReader
from treadle.models.provider_context import ProviderContext
from treadle.models.wire.endpoint import Door, FixedDoor
from treadle.models.wire.http import Http, host_of
from treadle.models.wire.http_model import HttpModel
from treadle.models.wire.refusals import refuses
from treadle.ports.model import Model, ModelInfo, ModelRequest
from treadle.protocol.deltas import NoticeDelta

BASE_URL = "https://api.openai.com/v1"

_ABOUT_THINKING = re.compile(r"reasoning|thinking|thought|signature", re.I)
_WANTS_THINKING = re.compile(r"(reasoning_content)\W.{0,80}(?:passed back|missing|required)", re.I)
_OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


class OpenAIChat(HttpModel):
    """One model behind one base URL, or behind a door that finds address and key for each call.

    `thinking_field`: where the server wants its model's thinking back, by default nowhere until it complains.
    `ids`: what the server takes as the id of a call, by default anything.
    """

    path = "/chat/completions"

    def __init__(
        self,
        info: ModelInfo,
        *,
        base_url: str = BASE_URL,
        api_key: str | Secret = "",
        headers: Mapping[str, str] | None = None,
        thinking_field: str = "",
        ids: re.Pattern[str] | None = None,
        door: Door | None = None,
        http: Http | None = None,
    ) -> None:
        base_url = base_url.rstrip("/").removesuffix(self.path)
        key = api_key if isinstance(api_key, Secret) else Secret(api_key)
        super().__init__(info, door or FixedDoor(base_url, key, dict(headers or {})), http)
        self._encoder = Encoder(info.ref, thinking_field=thinking_field, ids=ids)
        # The newer name is the only one that all of OpenAI's own models take; elsewhere it is often unknown.
        own = door is None and host_of(base_url) == "api.openai.com"
        self._limit_name = "max_completion_tokens" if own else "max_tokens"

    def _parameters(self, request: ModelRequest) -> dict[str, Any]:
        temperature = self._info.temperature if request.temperature is None else request.temperature
        wanted = {
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": temperature,
            self._limit_name: request.max_tokens or self._info.max_output or None,
        }
        kept = {name: value for name, value in wanted.items() if value is not None and name not in self._refused}
        return {"model": self._info.name, **kept}

    def _body(self, parameters: dict[str, Any], request: ModelRequest) -> bytes:
        return self._encoder.body(parameters, request)

    def _reader(self, where: str) -> StreamReader:
        return StreamReader(where, self._encoder.thinking_field)

    def _mend(self, error: ModelError, sent: Mapping[str, Any], request: ModelRequest) -> NoticeDelta | None:
        """If the server refused a parameter by name, go without it for good and say so (M-01). A refused name of
        the output limit is first tried by its other name. Sealed thinking that is refused is left out (M-10)."""
        wanted = _WANTS_THINKING.search(str(error)) if error.kind == "bad_request" else None
        if wanted and not self._encoder.thinking_field:
            self._encoder.want_thinking(wanted[1])
            return self._notice("thinking_returned", f"wants its thinking back as {wanted[1]}; from now on it gets it")
        name = next((name for name in sent if name not in ("model", "stream") and refuses(error, name)), None)
        if name is None:
            about_thinking = error.kind == "bad_request" and _ABOUT_THINKING.search(str(error))
            if about_thinking and self._encoder.drop_thinking(request):
                return self._notice("thinking_dropped", "refuses earlier thinking; it goes on without it")
            return None
        dropped = self._drop(name)
        other = _OTHER_NAME.get(name, "")
        if other and other not in self._refused:
            self._limit_name = other
            return self._notice("parameter_renamed", f"takes {other} instead of {name}")
        return dropped


def connect(name: str, around: ProviderContext) -> Model:
    key, url = around.access(f"openai:{name}", "OPENAI_API_KEY", "OPENAI_BASE_URL")
    info = around.look_up("openai", name)
    if info.thinking and not url:
        # OpenAI's own models that think are refused tools on this wire.
        from treadle.models.openai_responses.adapter import OpenAIResponses

        return OpenAIResponses(info, api_key=key, http=around.http)
    return OpenAIChat(info, base_url=url or BASE_URL, api_key=key, http=around.http)


async def list_models(around: ProviderContext) -> list[ModelInfo]:
    from treadle.models.openai_responses import adapter as openai_responses

    return await openai_responses.list_models(around, "openai")
