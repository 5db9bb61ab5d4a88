"""What a person can choose for a session: the mode, the model and the custom agent that it works as."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from acp import schema as a

from treadle.errors import ConfigError, InvalidInput
from treadle.models.offering import all_offers, usable
from treadle.models.registry import ModelRegistry
from treadle.presentation.modes import MODE_WORDS
from treadle.presentation.slash import NO_AGENT, agent_changes
from treadle.protocol.options import MODES, ChatOptions
from treadle.runtime import Agent

if TYPE_CHECKING:
    from treadle.skills.reading import CustomAgent

ConfigOption = a.SessionConfigOptionSelect | a.SessionConfigOptionBoolean
MODE, MODEL, AGENT = "mode", "model", "agent"
NO_MODEL = (
    "no model is set: name one with `treadle acp --model openai:gpt-4.1`, with TREADLE_MODEL in the environment of the "
    "editor, or as `model` in config.toml; its key belongs in the environment, too, such as OPENAI_API_KEY"
)


async def usable_models(agent: Agent) -> list[str]:
    """The models that can be used with the keys at hand; no provider is asked."""
    registry = agent.deps.models
    if not isinstance(registry, ModelRegistry):
        return []
    offers = await asyncio.to_thread(all_offers, registry)
    return [info.ref for each in offers for info in each.models if not usable(registry, each, info)]


def require_model(agent: Agent, ref: str) -> None:
    """ConfigError if it cannot be used, before anything is written."""
    if not ref:
        raise ConfigError(NO_MODEL)
    agent.deps.models.get(ref)


def modes(options: ChatOptions) -> a.SessionModeState:
    available = [a.SessionMode(id=mode, name=MODE_WORDS[mode][0], description=MODE_WORDS[mode][1]) for mode in MODES]
    return a.SessionModeState(current_mode_id=options.mode, available_modes=available)


def config_options(
    options: ChatOptions, models: Sequence[str], agents: "Mapping[str, CustomAgent]"
) -> list[ConfigOption]:
    """The custom agents are there to be chosen only where there are any."""
    kinds = [a.SessionConfigSelectOption(value=m, name=MODE_WORDS[m][0], description=MODE_WORDS[m][1]) for m in MODES]
    refs = [a.SessionConfigSelectOption(value=ref, name=ref) for ref in models]
    ways = [a.SessionConfigSelectOption(value=NO_AGENT, name="Treadle itself")] + [
        a.SessionConfigSelectOption(value=each.name, name=each.name, description=each.description or None)
        for each in agents.values()
    ]
    found: list[ConfigOption] = [
        a.SessionConfigOptionSelect(
            type="select", id=MODE, name="Mode", category="mode", current_value=options.mode, options=kinds
        ),
        a.SessionConfigOptionSelect(
            type="select", id=MODEL, name="Model", category="model", current_value=options.model, options=refs
        ),
    ]
    if agents:
        now = options.agent if options.agent in agents else NO_AGENT
        found.append(
            a.SessionConfigOptionSelect(type="select", id=AGENT, name="Works as", current_value=now, options=ways)
        )
    return found


def change_of(
    config_id: str, value: str | bool, agents: "Mapping[str, CustomAgent] | None" = None
) -> dict[str, object]:
    """The options of the chat that a choice changes. InvalidInput if there is no such choice."""
    if config_id == MODE and value in MODES:
        return {"mode": value}
    if config_id == MODEL and isinstance(value, str) and value:
        return {"model": value}
    if config_id == AGENT and isinstance(value, str) and agents:
        return agent_changes(agents, value)
    raise InvalidInput(f"there is no choice {config_id!r} with the value {value!r}")
