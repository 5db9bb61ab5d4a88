"""Which models can be used with the keys at hand, and what is missing for the rest (M-12). Nothing is asked of any
network."""

import os
from collections.abc import Mapping

import msgspec

from treadle.errors import ConfigError
from treadle.models.local import catalog as local
from treadle.models.registry import ModelRegistry
from treadle.ports.model import ModelInfo

NAMELESS = ("command", "recorded", "scripted")
"""Their models are files and programs."""

HINTS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "vertex": (
        (
            "GOOGLE_CLOUD_PROJECT",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_ACCESS_TOKEN",
            "GOOGLE_ACCESS_TOKEN_COMMAND",
        ),
        "shows no sign of Google Cloud: set GOOGLE_CLOUD_PROJECT",
    )
}
"""Providers that know only when they are called whether they may be used: signs in the environment, and what to say
when there is none of them."""


class Offer(msgspec.Struct):
    """One provider: its models, and why it cannot be used, if it cannot."""

    provider: str
    models: list[ModelInfo]
    why: str = ""
    failure: str = ""
    """What its server said when it was asked."""
    asked: bool = False


def usable_providers(registry: ModelRegistry) -> list[str]:
    """The providers of which at least one model can be used now, as far as is known without asking them."""
    return [
        each.provider for each in all_offers(registry) if any(not usable(registry, each, info) for info in each.models)
    ]


def all_offers(registry: ModelRegistry) -> list[Offer]:
    return [_offer(registry, provider) for provider in registry.providers if provider not in NAMELESS]


def _offer(registry: ModelRegistry, provider: str) -> Offer:
    catalogue = registry.catalogue
    infos = [catalogue.look_up(provider, name) for name in catalogue.names(provider)]
    if provider == local.PROVIDER:  # each is here or not, which `usable` tells
        infos = [info for info in infos if info.name not in local.KNOWN]
        return Offer(provider, [catalogue.adjust(weights.info) for weights in local.KNOWN.values()] + infos)
    return Offer(provider, infos, _why_not(registry, f"{provider}:{infos[0].name if infos else 'NAME'}"))


def _why_not(registry: ModelRegistry, ref: str) -> str:
    """What is missing before a model can be used, in the words of its adapter; empty when nothing is."""
    provider = ref.partition(":")[0]
    signs, hint = HINTS.get(provider, ((), ""))
    try:
        registry.get(ref)
    except ConfigError as error:
        return str(error).removeprefix(f"{ref} ").removeprefix(f"{provider} ")
    return "" if not signs or any(os.environ.get(sign, "").strip() for sign in signs) else hint


def usable(registry: ModelRegistry, offer: Offer, info: ModelInfo) -> str:
    """Why this one model cannot be used. Models on this machine are there one by one."""
    return offer.why or (_why_not(registry, info.ref) if offer.provider == local.PROVIDER else "")
