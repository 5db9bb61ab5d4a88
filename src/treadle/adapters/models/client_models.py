"""Models that a program names or brings for a chat. One that it brings has an address and a key. The key is held only
in memory (M-13): the program must send it again to resume the chat. Each call looks both up again, so a new key is used
at once."""

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Literal

import msgspec

from treadle.adapters.models.anthropic import AnthropicMessages
from treadle.adapters.models.keys import Secret
from treadle.adapters.models.openai_chat.adapter import OpenAIChat
from treadle.adapters.models.openai_responses import OpenAIResponses
from treadle.adapters.models.registry import NAMELESS, ModelRegistry, explain_unusable, list_offers
from treadle.adapters.models.wire.http import Access, Endpoint
from treadle.errors import ConfigError, InvalidInput, ModelError
from treadle.ports.model import Model, ModelInfo, ModelRequest

PREFIX = "byok-"
TokenOf = Callable[[str], Awaitable[str]]  # asks the program for a bearer token, for the provider of this name


class Azure(msgspec.Struct, rename="camel"):
    api_version: str | None = None


class Provider(msgspec.Struct, rename="camel"):
    base_url: str
    type: Literal["openai", "azure", "anthropic"] | None = "openai"
    name: str = ""
    api_key: str | None = None
    bearer_token: str | None = None
    has_bearer_token_provider: bool | None = False
    wire_api: Literal["completions", "responses"] | None = "completions"
    headers: dict[str, str] | None = None
    azure: Azure | None = None
    wire_model: str | None = None
    max_output_tokens: int | None = None

    def __repr__(self) -> str:
        return f"Provider({self.type}, {self.base_url})"


class ProviderModel(msgspec.Struct, rename="camel"):
    id: str
    provider: str = ""
    wire_model: str | None = None
    max_context_window_tokens: int | None = None
    max_output_tokens: int | None = None


class ClientModels:
    """The providers of all sessions. Their names are made of the session's, so that no session gets another's key."""

    def __init__(self, models: ModelRegistry) -> None:
        self._models = models
        self._providers: dict[str, tuple[Provider, TokenOf]] = {}

    def bring(self, session: str, provider: Provider, model: str, token_of: TokenOf) -> str:
        """The name of the model among Treadle's. InvalidInput if none was named."""
        if not model:
            raise InvalidInput("A session with its own provider must name a model.")
        if not provider.base_url.startswith(("http://", "https://")):
            raise InvalidInput(f"The baseUrl {provider.base_url!r} must begin with http:// or https://.")
        session_hash = hashlib.sha256(f"{session}/{provider.name}".encode()).hexdigest()[:12]
        wire = f"{provider.type or 'openai'}-{provider.wire_api or 'completions'}"
        name = f"{PREFIX}{wire}-{session_hash}"
        self._providers[name] = provider, token_of
        self._models.register(name, lambda model_name: self._make(name, model_name))
        return f"{name}:{model}"

    def bring_named(
        self,
        session: str,
        providers: Iterable[Provider],
        models: Iterable[ProviderModel],
        model_id: str | None,
        token_of: TokenOf,
    ) -> str:
        """The same for one of several models, by its id, with or without its provider's name; empty: none is meant."""
        chosen_model = next((each for each in models if model_id in (each.id, f"{each.provider}/{each.id}")), None)
        if chosen_model is None:
            return ""
        provider = next((each for each in providers if each.name == chosen_model.provider), None)
        if provider is None:
            raise InvalidInput(f"The model {chosen_model.id!r} has a provider that is not among the providers.")
        return self.bring(session, provider, chosen_model.wire_model or chosen_model.id, token_of)

    def is_missing(self, ref: str) -> bool:
        """True if a program brought this model to another process, and it has not been brought to this one."""
        name = ref.partition(":")[0]
        return name.startswith(PREFIX) and name not in self._providers

    def _make(self, name: str, model: str) -> Model:
        provider, _ = self._providers[name]
        info = self._models.catalogue.look_up(provider.type or "openai", model)
        info = msgspec.structs.replace(info, provider=name, name=provider.wire_model or model)
        if provider.max_output_tokens:
            info = msgspec.structs.replace(info, max_output=provider.max_output_tokens, limit_assumed=False)
        return _make_model(provider, info, _Endpoint(self._providers, name))


class _Endpoint(Endpoint):
    """Looks the provider up for each call, so that a new key is used at once."""

    def __init__(self, providers: Mapping[str, tuple[Provider, TokenOf]], name: str) -> None:
        self._providers, self._name = providers, name

    def __repr__(self) -> str:
        return repr(self._name)

    async def prepare_access(self, request: ModelRequest) -> Access:
        if self._name not in self._providers:
            message = "The provider of this chat was brought by a program; resume the session with its provider."
            raise ConfigError(message)
        provider, token_of = self._providers[self._name]
        key = provider.bearer_token or provider.api_key or ""
        if provider.has_bearer_token_provider:
            try:
                key = await token_of(provider.name)
            except Exception as error:
                raise ModelError("auth", f"the program gave no token for its provider: {error}") from error
        key_header = {"azure": "api-key", "anthropic": "x-api-key"}.get(provider.type or "", "")
        key_header = "" if provider.bearer_token or provider.has_bearer_token_provider else key_header
        headers = {"anthropic-version": "2023-06-01"} if provider.type == "anthropic" else {}
        return Access(_normalize_base_url(provider), Secret(key), {**headers, **(provider.headers or {})}, key_header)


def _make_model(provider: Provider, info: ModelInfo, endpoint: _Endpoint) -> Model:
    if provider.type == "anthropic":
        return AnthropicMessages(info, endpoint=endpoint)
    model = (OpenAIResponses if provider.wire_api == "responses" else OpenAIChat)(info, endpoint=endpoint)
    version = provider.azure.api_version if provider.azure is not None else None
    if provider.type == "azure" and version:
        model.path = f"/openai/deployments/{info.name}{model.path}?api-version={version}"
    elif provider.type == "azure" and not _normalize_base_url(provider).endswith("/openai/v1"):
        model.path = f"/openai/v1{model.path}"
    return model


def _normalize_base_url(provider: Provider) -> str:
    url = provider.base_url.rstrip("/")
    for path in ("/chat/completions", "/responses", "/messages"):
        url = url.removesuffix(path)
    return url.removesuffix("/v1") if provider.type == "anthropic" else url


class BareNames:
    """Models by `provider:name`, or by a bare name, which belongs to the provider of the `default` model."""

    def __init__(self, models: ModelRegistry, default: str) -> None:
        self._models, self.default = models, default

    def resolve_ref(self, name: str | None) -> str:
        provider, colon, _ = (name or "").partition(":")
        if not name or name == "auto":
            if not self.default:
                raise ConfigError("No model was named; say which with --model PROVIDER:NAME.")
            return self.default
        if colon and provider in self._models.providers:
            return name
        own_provider = self.default.partition(":")[0]
        if not own_provider:
            raise ConfigError(f"{name!r} names no provider; write provider:name, or say --model PROVIDER:NAME.")
        return self.default if own_provider in NAMELESS else f"{own_provider}:{name}"

    @property
    def default_name(self) -> str:
        return self.default.partition(":")[2]

    def shorten_ref(self, ref: str) -> str:
        provider, _, name = ref.partition(":")
        return name if provider.startswith(PREFIX) or provider == self.default.partition(":")[0] else ref

    def explain_unusable_default(self) -> str:
        """Why the default cannot be used; empty: nothing is known against it."""
        try:
            self._models.get(self.resolve_ref(None))
        except ConfigError as error:
            return str(error)
        return ""

    def list_usable(self) -> dict[str, ModelInfo]:
        """The models that can be used with what is at hand, by their names here, the default first."""
        has_default = self.default and not self.explain_unusable_default()
        models = {self.default: self._models.get(self.default).info} if has_default else {}
        for offer in list_offers(self._models):
            models |= {info.ref: info for info in offer.models if not explain_unusable(self._models, offer, info)}
        return {self.shorten_ref(ref): info for ref, info in models.items()}
