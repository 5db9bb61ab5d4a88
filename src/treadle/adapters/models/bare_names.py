"""Models by the names that a program uses: `provider:name` as everywhere, or a bare name, which belongs to the provider
of the model that counts without one."""

from treadle.adapters.models.client_models import PREFIX
from treadle.adapters.models.offering import NAMELESS, all_offers, usable
from treadle.adapters.models.registry import ModelRegistry
from treadle.errors import ConfigError
from treadle.ports.model import ModelInfo


class BareNames:
    """`default`: the model of those who name none."""

    def __init__(self, models: ModelRegistry, default: str) -> None:
        self._models = models
        self.default = default

    def ref_of(self, name: str | None) -> str:
        """The model that is meant. ConfigError if there is no telling."""
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

    def why_not(self) -> str:
        """Why the default cannot be used; empty: nothing is known against it."""
        try:
            self._models.get(self.ref_of(None))
        except ConfigError as error:
            return str(error)
        return ""

    def usable(self) -> dict[str, ModelInfo]:
        """The models that can be used with what is at hand, by their names here, the default first."""
        models_by_ref: dict[str, ModelInfo] = {}
        if self.default and not self.why_not():
            models_by_ref[self.default] = self._models.get(self.default).info
        for offer in all_offers(self._models):
            if not offer.unusable_reason:
                models_by_ref |= {info.ref: info for info in offer.models if not usable(self._models, offer, info)}
        return {self.shorten_ref(ref): info for ref, info in models_by_ref.items()}
