"""Finds models by `provider:name`. A provider is one module with a function `connect(name, context) -> Model`, and
`list_models(context)` if its server can be asked; it is imported when its first model is asked for. Servers that
differ in little but their address are rows of `treadle.adapters.models.providers` instead."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import cast

from treadle.adapters.models.capability_ladder import Ladder
from treadle.adapters.models.catalog.lookup import Catalogue
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.providers import SERVERS
from treadle.errors import ConfigError
from treadle.ports.model import Model, ModelInfo

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
    """A registry with exactly one model, for any name."""

    def __init__(self, model: Model) -> None:
        self._model = model if isinstance(model, Ladder) else Ladder(model)  # one on another would retell twice

    def get(self, ref: str) -> Model:
        return self._model

    async def close(self) -> None:
        await self._model.close()


class ModelRegistry:
    """The models of one process, each on its ladder (M-07). `register` adds a provider (`"acme"`) or one model
    (`"scripted:demo"`), which is looked for first. `home` is where fetched models and the user's own catalogue lie."""

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
        """The catalogue of known models."""
        return self._context.catalogue

    def register(self, provider: str, factory: Factory) -> None:
        self._factories[provider] = factory

    def get(self, ref: str) -> Model:
        """The model of this name, the same object each time. ConfigError says what to set when there is none."""
        model = self._models.get(ref)
        if model is None:
            model = self._models[ref] = Ladder(self._make(ref))
        return model

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
        """True if a key of this name is in the environment or stored."""
        return bool(self._context.find_key(variable))

    def list_used_models(self, provider: str) -> list[ModelInfo]:
        """The models of a provider that were used lately and of which its server told something."""
        if provider not in SERVERS:
            return []
        from treadle.adapters.models.openai_chat.adapter import used_models_of

        return used_models_of(provider, self._context)

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
