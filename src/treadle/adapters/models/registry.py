"""Finds models by `provider:name`. A provider is one module with a function `connect(name, context) -> Model`, and
`list_models(context)` if its server can be asked; it is imported when its first model is asked for. Also tells which
models can be used with the keys at hand, and what is missing for the rest, without any network (M-12)."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Literal, cast

import msgspec

from treadle.adapters.models.capability_ladder import Ladder
from treadle.adapters.models.catalog.lookup import Catalogue
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.providers import SERVERS
from treadle.errors import ConfigError
from treadle.ports.model import Model, ModelInfo, Models

Factory = Callable[[str], Model]  # makes a model from what stands after the colon

PROVIDERS: Mapping[str, str] = {
    "anthropic": "treadle.adapters.models.anthropic",
    "command": "treadle.adapters.models.command_line",
    "copilot": "treadle.adapters.models.copilot",
    "gemini": "treadle.adapters.models.gemini.adapter",
    "gh": "treadle.adapters.models.command_line:connect_gh",
    "local": "treadle.adapters.models.local.model",
    "ollama": "treadle.adapters.models.ollama",
    "openai": "treadle.adapters.models.openai_chat.adapter",
    "openai-responses": "treadle.adapters.models.openai_responses",
    "recorded": "treadle.adapters.models.recorded",
    "scripted": "treadle.adapters.models.scripted",
    "vertex": "treadle.adapters.models.gemini.vertex",
}


class OneModel:
    def __init__(self, model: Model) -> None:
        self._model = model if isinstance(model, Ladder) else Ladder(model)  # one on another would retell twice

    def get(self, ref: str) -> Model:
        return self._model

    async def close(self) -> None:
        await self._model.close()


class ModelRegistry:
    """The models of one process, each on its ladder (M-07). `register` adds a provider (`"acme"`) or one model
    (`"scripted:demo"`), which is looked for first."""

    def __init__(self, env: Mapping[str, str], *, home: Path | None = None) -> None:
        self._context = ProviderContext(env, home)
        self._factories: dict[str, Factory] = {}
        self._models: dict[str, Model] = {}

    def __repr__(self) -> str:
        return f"ModelRegistry({', '.join(self.providers)})"

    @property
    def providers(self) -> list[str]:
        return sorted({*PROVIDERS, *SERVERS, *(key for key in self._factories if ":" not in key)})

    @property
    def catalogue(self) -> Catalogue:
        return self._context.catalogue

    def register(self, provider: str, factory: Factory) -> None:
        self._factories[provider] = factory

    def get(self, ref: str) -> Model:
        """The model of this name, the same object each time. ConfigError says what to set when there is none."""
        if ref not in self._models:
            self._models[ref] = Ladder(self._make(ref))
        return self._models[ref]

    def _make(self, ref: str) -> Model:
        provider, colon, name = ref.partition(":")
        if not colon or not name:
            raise ConfigError(f"{ref!r} names no model; write provider:name, for instance openai:gpt-4.1")
        factory = self._factories.get(ref) or self._factories.get(provider)
        if factory is not None:
            return factory(name)
        if provider in SERVERS:
            from treadle.adapters.models.openai_chat.adapter import connect_to

            return connect_to(provider, name, self._context)
        if provider not in PROVIDERS:
            raise ConfigError(f"no provider {provider!r} in {ref!r}; known are {', '.join(self.providers)}")
        module, _, function = PROVIDERS[provider].partition(":")
        return cast(Model, getattr(import_module(module), function or "connect")(name, self._context))

    def has_key(self, variable: str) -> bool:
        return bool(self._context.find_key(variable))

    def has_variable(self, name: str) -> bool:
        return bool(self._context.env.get(name, "").strip())

    def list_used_models(self, provider: str) -> list[ModelInfo]:
        """The models of a provider that were used lately and of which its server told something."""
        if provider not in SERVERS:
            return []
        from treadle.adapters.models.openai_chat.adapter import list_used_models_of

        return list_used_models_of(provider, self._context)

    async def ask(self, provider: str) -> list[ModelInfo] | None:
        """The models that a provider's server says it has; None when it cannot be asked. Fails as a call would."""
        if provider in SERVERS:
            from treadle.adapters.models.openai_chat.adapter import list_models_of

            return await list_models_of(provider, self._context)
        module = PROVIDERS.get(provider, "").partition(":")[0]
        ask = getattr(import_module(module), "list_models", None) if module else None
        return None if ask is None else cast("list[ModelInfo]", await ask(self._context))

    async def close(self) -> None:
        for model in self._models.values():
            await model.close()
        self._models.clear()
        await self._context.close()


_LOCAL = "local"
NAMELESS = ("command", "recorded", "scripted")  # their models are files and programs

_GOOGLE = (  # variables that indicate Google Cloud: Vertex AI finds out only during a call whether it may be used
    *("GOOGLE_CLOUD_PROJECT", "GOOGLE_APPLICATION_CREDENTIALS"),
    *("GOOGLE_ACCESS_TOKEN", "GOOGLE_ACCESS_TOKEN_COMMAND"),
)

State = Literal["ready", "not asked", "failed", "missing"]
"""`ready` was checked just now: the server accepted the key and answered, or the weights are on this machine. `not
asked` has everything that can be checked locally; the key may be wrong, or the server down."""


class ProviderModels(msgspec.Struct):
    provider: str
    models: list[ModelInfo]
    unusable_reason: str = ""
    failure: str = ""  # the error of its server when it was asked
    has_answered: bool = False  # True if its server answered just now


def list_offers(registry: ModelRegistry) -> list[ProviderModels]:
    return [_make_offer(registry, provider) for provider in registry.providers if provider not in NAMELESS]


def _make_offer(registry: ModelRegistry, provider: str) -> ProviderModels:
    catalogue = registry.catalogue
    infos = [catalogue.look_up(provider, name) for name in catalogue.list_names(provider)]
    known_names = {info.name for info in infos}
    infos += [info for info in registry.list_used_models(provider) if info.name not in known_names]
    if provider == _LOCAL:  # each is here or not, which `explain_unusable` tells
        from treadle.adapters.models.local.weights import KNOWN

        infos = [info for info in infos if info.name not in KNOWN]
        return ProviderModels(provider, [catalogue.adjust(weights.info) for weights in KNOWN.values()] + infos)
    return ProviderModels(provider, infos, _find_obstacle(registry, f"{provider}:{infos[0].name if infos else 'NAME'}"))


def _find_obstacle(registry: ModelRegistry, ref: str) -> str:
    """Return the reason why a model cannot be used, in the words of its adapter. Empty if it can be used."""
    provider = ref.partition(":")[0]
    try:
        registry.get(ref)
    except ConfigError as error:
        return str(error).removeprefix(f"{ref} ").removeprefix(f"{provider} ")
    unlikely = provider == "vertex" and not any(map(registry.has_variable, _GOOGLE))
    return "shows no sign of Google Cloud: set GOOGLE_CLOUD_PROJECT" if unlikely else ""


def explain_unusable(registry: ModelRegistry, offer: ProviderModels, info: ModelInfo) -> str:
    """Why this one model cannot be used. Models on this machine are there one by one."""
    return offer.unusable_reason or (_find_obstacle(registry, info.ref) if offer.provider == _LOCAL else "")


def list_usable_refs(models: Models) -> list[str]:
    if not isinstance(models, ModelRegistry):
        return []
    return [
        info.ref for each in list_offers(models) for info in each.models if not explain_unusable(models, each, info)
    ]


def get_model_state(registry: ModelRegistry, offer: ProviderModels, info: ModelInfo) -> State:
    if explain_unusable(registry, offer, info):
        return "missing"
    return "ready" if offer.provider == _LOCAL else get_provider_state(registry, offer)


def get_provider_state(registry: ModelRegistry, offer: ProviderModels) -> State:
    if offer.provider == _LOCAL:
        return "ready" if any(not explain_unusable(registry, offer, info) for info in offer.models) else "missing"
    if offer.unusable_reason or offer.failure:
        return "missing" if offer.unusable_reason else "failed"
    return "ready" if offer.has_answered else "not asked"
