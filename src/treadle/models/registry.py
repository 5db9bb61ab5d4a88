"""Finds models by `provider:name` and owns what they share: the environment, the keys and one HTTP session. Adapters
are imported when their provider is first asked for."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.errors import ConfigError
from treadle.models.catalog import look_up
from treadle.models.keys import find_key
from treadle.ports.model import Model

if TYPE_CHECKING:
    from treadle.models.wire.http import Http

Factory = Callable[[str], Model]
"""Makes a model from what stands after the colon."""


class ModelRegistry:
    """The models of one process. `register` adds a provider (`"acme"`) or one model (`"scripted:demo"`), which is
    looked for first. `home` is where models that were fetched lie."""

    def __init__(self, env: Mapping[str, str], *, home: Path | None = None) -> None:
        self._env = env
        self._home = home
        self._http: Http | None = None
        self._factories: dict[str, Factory] = {
            "local": self._local,
            "openai": self._openai,
            "recorded": self._recorded,
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
        if self._http is not None:
            await self._http.close()
            self._http = None

    def _local(self, name: str) -> Model:
        from treadle.models.local.model import LocalModel
        from treadle.models.local.weights import find_library, find_weights

        library = find_library(f"local:{name}")
        info, weights = find_weights(name, self._home)
        threads = self._env.get("TREADLE_LOCAL_THREADS", "").strip() or "1"
        if not threads.isdecimal() or int(threads) < 1:
            raise ConfigError(f"TREADLE_LOCAL_THREADS is {threads!r}; it must be a whole number from 1 on")
        return LocalModel(info, weights, library, threads=int(threads))

    def _openai(self, name: str) -> Model:
        from treadle.models.openai_chat import BASE_URL, OpenAIChat
        from treadle.models.wire.http import Http

        url = self._env.get("OPENAI_BASE_URL", "").strip()
        if url and not url.startswith(("http://", "https://")):
            raise ConfigError(f"OPENAI_BASE_URL is {url!r}; it must begin with http:// or https://")
        # The key store is asked for OpenAI only: its key must not go to another host.
        key = find_key(self._env, "OPENAI_API_KEY", keyring=not url)
        if not key and not url:
            raise ConfigError(
                f"openai:{name} needs a key: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server that needs none"
            )
        self._http = self._http or Http()
        return OpenAIChat(look_up("openai", name), base_url=url or BASE_URL, api_key=key, http=self._http)

    def _recorded(self, name: str) -> Model:
        from treadle.models.recorded import RecordedModel

        return RecordedModel(name)

    def _scripted(self, name: str) -> Model:
        from treadle.models.scripted import ScriptedModel

        return ScriptedModel.from_file(name)
