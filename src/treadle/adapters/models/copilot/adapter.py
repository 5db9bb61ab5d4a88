"""GitHub Copilot (M-01): Chat Completions behind an endpoint of its own, and the Responses API for those of its models
that speak nothing else. Knows what is special about the service; how the protocols go is the business of their
adapters."""

import msgspec

from treadle.adapters.models.copilot.token import HEADERS, make_endpoint
from treadle.adapters.models.openai_chat.adapter import OpenAIChat
from treadle.adapters.models.openai_chat.switching import ChatOrResponses
from treadle.adapters.models.openai_responses.adapter import OpenAIResponses
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.wire.http import Http
from treadle.adapters.models.wire.http_model import Endpoint
from treadle.errors import ModelError
from treadle.ports.model import ModelInfo, ModelRequest


def connect(name: str, context: ProviderContext) -> ChatOrResponses:
    return make_model(context.catalogue.look_up("copilot", name), context.shared(make_endpoint), context.http)


def make_model(info: ModelInfo, endpoint: Endpoint, http: Http) -> ChatOrResponses:
    return ChatOrResponses(
        OpenAIChat(info, endpoint=endpoint, http=http),
        lambda: OpenAIResponses(info, thinking=True, endpoint=endpoint, http=http),
    )


class _Limits(msgspec.Struct):
    max_context_window_tokens: int = 0
    max_prompt_tokens: int = 0
    max_output_tokens: int = 0


class _Capabilities(msgspec.Struct):
    type: str = "chat"
    limits: _Limits = msgspec.field(default_factory=_Limits)


class _Listed(msgspec.Struct):
    id: str
    capabilities: _Capabilities = msgspec.field(default_factory=_Capabilities)


class _List(msgspec.Struct):
    data: list[_Listed]


async def list_models(context: ProviderContext) -> list[ModelInfo]:
    """Return the models that the account may use, with the limits that the service reports."""
    access = await context.shared(make_endpoint).access(ModelRequest("", ()))
    document = await context.http.get(f"{access.base_url}/models", HEADERS, access.key)
    try:
        listing = msgspec.json.decode(document, type=_List, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError("bad_request", f"{access.base_url} gave no list of models") from error
    return [_info(listed, context) for listed in listing.data if listed.capabilities.type == "chat"]


def _info(listed: _Listed, context: ProviderContext) -> ModelInfo:
    known_info, limits = context.catalogue.look_up("copilot", listed.id), listed.capabilities.limits
    window = limits.max_context_window_tokens or limits.max_prompt_tokens or known_info.window
    return msgspec.structs.replace(
        known_info, window=window, max_output=limits.max_output_tokens or known_info.max_output
    )
