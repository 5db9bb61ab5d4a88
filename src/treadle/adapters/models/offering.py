"""Which models can be used with the keys at hand, what is missing for the rest, and what is known of either only when
it was looked at (M-12). Nothing is asked of any network here."""

import os
from typing import Literal

import msgspec

from treadle.adapters.models.local import weights as local
from treadle.adapters.models.registry import ModelRegistry
from treadle.errors import ConfigError
from treadle.ports.model import ModelInfo, Models

NAMELESS = ("command", "recorded", "scripted")  # their models are files and programs

_GOOGLE = (
    *("GOOGLE_CLOUD_PROJECT", "GOOGLE_APPLICATION_CREDENTIALS"),
    *("GOOGLE_ACCESS_TOKEN", "GOOGLE_ACCESS_TOKEN_COMMAND"),
)
"""Variables that indicate Google Cloud: Vertex AI finds out only during a call whether it may be used."""

State = Literal["ready", "not asked", "failed", "missing"]
"""The state of a provider or model. `ready` was checked just now: the server accepted the key and answered, or the
weights are on this machine. `not asked` has everything that can be checked locally; the key may be wrong, or the server
down."""


class Offer(msgspec.Struct):
    """One provider: its models, and why it cannot be used, if it cannot."""

    provider: str
    models: list[ModelInfo]
    unusable_reason: str = ""
    failure: str = ""  # the error of its server when it was asked
    has_answered: bool = False  # True if its server answered just now


def all_offers(registry: ModelRegistry) -> list[Offer]:
    return [_offer(registry, provider) for provider in registry.providers if provider not in NAMELESS]


def _offer(registry: ModelRegistry, provider: str) -> Offer:
    catalogue = registry.catalogue
    infos = [catalogue.look_up(provider, name) for name in catalogue.names(provider)]
    known_names = {info.name for info in infos}
    infos += [info for info in registry.list_used_models(provider) if info.name not in known_names]
    if provider == local.PROVIDER:  # each is here or not, which `usable` tells
        infos = [info for info in infos if info.name not in local.KNOWN]
        return Offer(provider, [catalogue.adjust(weights.info) for weights in local.KNOWN.values()] + infos)
    return Offer(provider, infos, _why_not(registry, f"{provider}:{infos[0].name if infos else 'NAME'}"))


def _why_not(registry: ModelRegistry, ref: str) -> str:
    """Return the reason why a model cannot be used, in the words of its adapter. Empty if it can be used."""
    provider = ref.partition(":")[0]
    try:
        registry.get(ref)
    except ConfigError as error:
        return str(error).removeprefix(f"{ref} ").removeprefix(f"{provider} ")
    unlikely = provider == "vertex" and not any(os.environ.get(sign, "").strip() for sign in _GOOGLE)
    return "shows no sign of Google Cloud: set GOOGLE_CLOUD_PROJECT" if unlikely else ""


def usable(registry: ModelRegistry, offer: Offer, info: ModelInfo) -> str:
    """Why this one model cannot be used. Models on this machine are there one by one."""
    return offer.unusable_reason or (_why_not(registry, info.ref) if offer.provider == local.PROVIDER else "")


def usable_refs(models: Models) -> list[str]:
    if not isinstance(models, ModelRegistry):
        return []
    return [info.ref for each in all_offers(models) for info in each.models if not usable(models, each, info)]


def model_state(registry: ModelRegistry, offer: Offer, info: ModelInfo) -> State:
    if usable(registry, offer, info):
        return "missing"
    return "ready" if offer.provider == local.PROVIDER else provider_state(registry, offer)


def provider_state(registry: ModelRegistry, offer: Offer) -> State:
    if offer.provider == local.PROVIDER:
        return "ready" if any(not usable(registry, offer, info) for info in offer.models) else "missing"
    if offer.unusable_reason or offer.failure:
        return "missing" if offer.unusable_reason else "failed"
    return "ready" if offer.has_answered else "not asked"
