"""Finds models by `provider:name` and owns what they share: the environment, the keys and one HTTP session. Adapters
are imported when their provider is first asked for."""

from collections.abc import Callable, Mapping

from treadle.errors import ConfigError
from treadle.ports.model import Model

Factory = Callable[[str], Model]
"""Makes a model from what stands after the colon."""


class ModelRegistry:
    """The models of one process. `register` adds a provider (`"acme"`) or one model (`"scripted:demo"`), which is
    looked for first."""

    def __init__(self, env: Mapping[str, str], *, silence_s: float = 300.0) -> None:
        self._env = env
        self._silence_s = silence_s
        self._factories: dict[str, Factory] = {
            "scripted": self._scripted,
        }
        self._models: dict[str, Model] = {}

    def __repr__(self) -> str:
        return f"ModelRegistry({', '.join(self.providers)})"

    @property
    def providers(self) -> list[str]:
        return sorted(key for key in self._factories if ":" not in key)

    def register(self, provider: str, factory: Factory) -> None:
        self._factories[provider] = factory

    def get(self, ref: str) -> Model:
        """The model of this name, the same object each time. ConfigError says what to set when there is none."""
        model = self._models.get(ref)
        if model is None:
            model = self._models[ref] = self._make(ref)
        return model

    def _make(self, ref: str) -> Model:
        provider, colon, name = ref.partition(":")
        if not colon or not name:
            raise ConfigError(f"{ref!r} names no model; write provider:name, for instance openai:gpt-4.1")
        factory = self._factories.get(ref) or self._factories.get(provider)
        if factory is None:
            raise ConfigError(f"no provider {provider!r} in {ref!r}; known are {', '.join(self.providers)}")
        return factory(name)

    async def close(self) -> None:
        for model in self._models.values():
            await model.close()
        self._models.clear()

    def _scripted(self, name: str) -> Model:
        from treadle.models.scripted import ScriptedModel

        return ScriptedModel.from_file(name)
