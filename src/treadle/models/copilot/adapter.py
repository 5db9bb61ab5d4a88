"""GitHub Copilot (M-01): Chat Completions behind an endpoint of its own, and the Responses API for those of its models
that speak nothing else. Knows what is special about the service; how the protocols go is the business of their
adapters."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from weakref import WeakKeyDictionary

import msgspec

from treadle.errors import ModelError
from treadle.models.base import ModelBase
from treadle.models.copilot.token import HEADERS, make_endpoint
from treadle.models.openai_chat.adapter import OpenAIChat
from treadle.models.openai_responses.adapter import OpenAIResponses
from treadle.models.provider_context import ProviderContext
from treadle.models.wire.http import Http
from treadle.models.wire.http_model import Endpoint
from treadle.ports.model import Memo, ModelInfo, ModelRequest
from treadle.protocol.deltas import Delta


class Copilot(ModelBase):
    def __init__(self, info: ModelInfo, *, endpoint: Endpoint, http: Http) -> None:
        super().__init__(info)
        self._chat = OpenAIChat(info, endpoint=endpoint, http=http)
        self._responses = OpenAIResponses(info, thinking=True, endpoint=endpoint, http=http)
        self._only_responses = False
        """Known once the service refused the other protocol for this model."""
        self._memos: WeakKeyDictionary[Memo, Memo] = WeakKeyDictionary()
        """The conversations on the second wire: a memo holds the bytes of one."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        if not self._only_responses:
            try:
                async with aclosing(self._chat.stream(request)) as stream:  # type: ignore[type-var]
                    async for deltas in stream:
                        yield deltas
                return
            except ModelError as error:
                if error.kind != "bad_request" or "/chat/completions" not in str(error):
                    raise
                self._only_responses = True
        memo = self._memos.setdefault(request.memo, Memo())
        other = msgspec.structs.replace(request, memo=memo)
        async with aclosing(self._responses.stream(other)) as stream:  # type: ignore[type-var]
            async for deltas in stream:
                yield deltas


def connect(name: str, context: ProviderContext) -> Copilot:
    info = context.catalogue.look_up("copilot", name)
    return Copilot(info, endpoint=context.shared(make_endpoint), http=context.http)


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
    """What the account may use, with the limits that the service tells."""
    access = await context.shared(make_endpoint).access(ModelRequest("", ()))
    document = await context.http.get(f"{access.base_url}/models", HEADERS, access.key)
    try:
        found = msgspec.json.decode(document, type=_List, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError("bad_request", f"{access.base_url} gave no list of models") from error
    return [_info(listed, context) for listed in found.data if listed.capabilities.type == "chat"]


def _info(listed: _Listed, context: ProviderContext) -> ModelInfo:
    known, limits = context.catalogue.look_up("copilot", listed.id), listed.capabilities.limits
    window = limits.max_context_window_tokens or limits.max_prompt_tokens or known.window
    return msgspec.structs.replace(known, window=window, max_output=limits.max_output_tokens or known.max_output)
