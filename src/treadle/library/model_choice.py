"""The model of a new chat that names none (U-10): used last, else of the only key, else of a server here."""

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from treadle.adapters.models.catalog.table import PREFERRED
from treadle.adapters.models.keys import CUSTOM_ADDRESS, CUSTOM_KEY
from treadle.adapters.models.providers import KEYLESS_SERVERS, VARIABLES
from treadle.adapters.models.registry import ModelRegistry
from treadle.base.home_file import HomeFile
from treadle.errors import ConfigError, InvalidInput, ModelError, TreadleError
from treadle.ports.model import ModelInfo

if TYPE_CHECKING:
    from treadle.protocol.http_answers import ModelView

FILE_NAME = "last-model.json"
PROBE_S = 0.3  # How long a server at its usual port on this machine may take to list its models.
ASK_S = 3.0  # How long a server may take that the user named by its address.
CUSTOM = "custom"
FORGOTTEN = ("recorded", "scripted")  # Providers for tests and demonstrations, which no later chat begins with.
SERVER_NAMES = {"llamacpp": "llama.cpp", "lmstudio": "LM Studio", "ollama": "Ollama", "vllm": "vLLM"}


class ModelChoice(NamedTuple):
    model: str
    reason: str


class LocalServer(NamedTuple):
    provider: str
    models: Sequence[ModelInfo]

    @property
    def name(self) -> str:
        return SERVER_NAMES[self.provider]


class _LastModel(msgspec.Struct, frozen=True):
    model: str = ""
    version: int = 1


class LastModel:
    def __init__(self, home: Path) -> None:
        self._file = HomeFile(home / FILE_NAME, _LastModel)

    def read(self) -> str:
        """Empty: none is known. A damaged file counts as none: it costs only a choice."""
        with suppress(ConfigError):
            return self._file.read().model
        return ""

    def remember(self, model: str) -> None:
        """A home that cannot be written must not stop a run."""
        if not model or model.partition(":")[0] in FORGOTTEN or model == self.read():
            return
        with suppress(ConfigError):
            self._file.change(lambda _: _LastModel(model))


async def choose_model(registry: ModelRegistry, env: Mapping[str, str], home: Path) -> ModelChoice | None:
    """The model for a chat that names none. None: only a person can choose."""
    if (last := LastModel(home).read()) and _is_usable(registry, last):
        return ModelChoice(last, "used last")
    providers = find_providers_with_key(registry)
    if len(providers) == 1:
        provider, variable = next(iter(providers.items()))
        if model := await _choose_best(registry, provider, env):
            return ModelChoice(model, f"{variable} is the only key that is set")
    servers = await find_local_servers(registry, env)
    return ModelChoice(servers[0].models[0].ref, f"{servers[0].name} runs on this machine") if servers else None


def describe_missing_model(providers: Collection[str], flag: str = "--model") -> str:
    if providers:
        models = " or ".join(f"{flag} {provider}:{PREFERRED[provider]}" for provider in providers)
        return f"no model is chosen, and there are keys for several providers. Choose one with {models}"
    return (
        "no model is set, no key was found and no model server answers on this machine. Choose one of these:\n"
        "  a key in the environment:  export OPENAI_API_KEY=…   (or ANTHROPIC_API_KEY, GEMINI_API_KEY …)\n"
        "  a server on this machine:  start Ollama, LM Studio, llama.cpp or vLLM\n"
        f"  a model by its name:       {flag} provider:name     (treadle models lists them)\n"
        "  a dialog:                  treadle                  (asks for a key or an address)\n"
        "  no model at all:           treadle demo"
    )


def find_providers_with_key(registry: ModelRegistry) -> dict[str, str]:
    """By provider: the variable of its key. A general GitHub token is no sign of Copilot; a provider counts once."""
    key_variables = {}
    for provider in PREFERRED:
        variables = VARIABLES[provider].keys[: 1 if provider == "copilot" else None]
        if variable := next((name for name in variables if registry.has_key(name)), ""):
            key_variables[provider] = variable
    return key_variables


def _is_usable(registry: ModelRegistry, ref: str) -> bool:
    try:
        registry.get(ref)
    except ConfigError:
        return False
    return True


async def _choose_best(registry: ModelRegistry, provider: str, env: Mapping[str, str]) -> str:
    """The provider's best model. A server of the user's own in the provider's place is asked what it has."""
    preferred = f"{provider}:{PREFERRED[provider]}"
    own_address = any(env.get(name, "").strip() for name in VARIABLES[provider].addresses)
    if PREFERRED[provider] and not own_address:
        return preferred if _is_usable(registry, preferred) else ""
    refs = [info.ref for info in await _ask(registry, provider, ASK_S)]
    return preferred if preferred in refs or not refs else refs[0]


async def find_local_servers(registry: ModelRegistry, env: Mapping[str, str]) -> list[LocalServer]:
    """Servers that list models, at their usual ports on this machine or where a variable says; all asked at once."""

    async def probe_server(provider: str) -> LocalServer | None:
        address = env.get(VARIABLES[provider].addresses[0], "").strip()
        models = await _ask(registry, provider, ASK_S if address else PROBE_S)
        return LocalServer(provider, models) if models else None

    return [server for server in await asyncio.gather(*map(probe_server, KEYLESS_SERVERS)) if server is not None]


class OfferedModel(NamedTuple):
    info: ModelInfo
    why: str = ""  # The thing that is missing before it can be used; empty if nothing is.
    place: str = ""  # The server on this machine that has it.


def make_model_view(offered: OfferedModel) -> "ModelView":
    from treadle.protocol.http_answers import ModelView

    info, reason, place = offered
    field_names = ("window", "max_output", "native_tools", "thinking", "vision")
    return ModelView(
        model=info.ref, efforts=info.offered_efforts, **{name: getattr(info, name) for name in field_names},
        price_input=info.usd_per_million_input, price_output=info.usd_per_million_output,
        price_cached=info.usd_per_million_cached, usable=not reason, why=reason, place=place,
    )  # fmt: skip


async def list_models(registry: ModelRegistry, env: Mapping[str, str]) -> list[OfferedModel]:
    """The models that every front end lists: of servers on this machine, of providers, of a person's address."""
    from treadle.adapters.models.registry import explain_unusable, list_offers

    work = asyncio.to_thread(list_offers, registry), find_local_servers(registry, env), _ask(registry, CUSTOM, ASK_S)
    offers, servers, custom = await asyncio.gather(*work)
    models = [
        *(OfferedModel(info, place=server.name) for server in servers for info in server.models),
        *(OfferedModel(info, explain_unusable(registry, offer, info)) for offer in offers for info in offer.models),
        *(OfferedModel(info) for info in custom),
    ]
    return list({model.info.ref: model for model in reversed(models)}.values())[::-1]


async def check_key(provider: str, variable: str, key: str) -> None:
    """ModelError if the provider refuses the key. One that cannot be reached says nothing about it."""
    registry = ModelRegistry({**os.environ, variable: key})
    try:
        async with asyncio.timeout(ASK_S):
            await registry.ask(provider)
    except ModelError as error:
        if error.kind == "auth":
            raise
    except (ConfigError, TimeoutError):
        return
    finally:
        await registry.close()


async def find_server(url: str, key: str) -> tuple[str, list[ModelInfo]]:
    """The base URL, maybe with a /v1, at which a server lists its models, and those. InvalidInput, ModelError."""
    url = url.strip().rstrip("/")
    url = url if "://" in url else f"http://{url}"
    error: TreadleError = InvalidInput(f"{url} lists no models; enter the address that ends before /models")
    for address in (url, f"{url}/v1"):
        registry = ModelRegistry({CUSTOM_ADDRESS: address, CUSTOM_KEY: key})
        try:
            async with asyncio.timeout(ASK_S):
                if models := await registry.ask(CUSTOM):
                    return address, models
        except TimeoutError:
            error = InvalidInput(f"{url} did not answer within {ASK_S:g} seconds")
        except (ConfigError, ModelError) as refusal:
            error = refusal
        finally:
            await registry.close()
    raise error


async def _ask(registry: ModelRegistry, provider: str, seconds: float) -> list[ModelInfo]:
    try:
        async with asyncio.timeout(seconds):
            return await registry.ask(provider) or []
    except (ConfigError, ModelError, TimeoutError):
        return []
