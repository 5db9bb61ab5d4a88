"""The options of a session that a person can choose: the mode, the model, its reasoning effort, and the custom agent
that it works as."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from acp import schema as a

from treadle.errors import InvalidInput
from treadle.frontends.presentation.slash import NO_AGENT, agent_changes
from treadle.frontends.presentation.styled import MODE_WORDS
from treadle.library.agent import Agent
from treadle.protocol.options import EFFORTS, MODES, ChatOptions, ReasoningEffort

if TYPE_CHECKING:
    from treadle.library.skills.reading import CustomAgent

ConfigOption = a.SessionConfigOptionSelect | a.SessionConfigOptionBoolean
MODE, MODEL, AGENT, EFFORT = "mode", "model", "agent", "reasoning_effort"
_CATEGORIES = {MODE: "mode", MODEL: "model", EFFORT: "thought_level"}
DEFAULT_EFFORT = "default"
"""The choice that leaves the effort to the server of the model."""


async def require_model(agent: Agent, ref: str) -> str:
    """The model of a new session: `ref`, or one that can be used here. ConfigError if there is none, before anything is
    written."""
    model = ref or (await agent.require_model("treadle acp --model")).model
    agent.deps.models.get(model)
    return model


def modes(options: ChatOptions) -> a.SessionModeState:
    available = [a.SessionMode(id=mode, name=MODE_WORDS[mode][0], description=MODE_WORDS[mode][1]) for mode in MODES]
    return a.SessionModeState(current_mode_id=options.mode, available_modes=available)


def config_options(
    options: ChatOptions,
    models: Sequence[str],
    agents: "Mapping[str, CustomAgent]",
    efforts: Sequence[ReasoningEffort] = (),
) -> list[ConfigOption]:
    """Custom agents and reasoning efforts are there to be chosen only where there are any."""
    choices = [
        _select(MODE, "Mode", options.mode, [(mode, *MODE_WORDS[mode]) for mode in MODES]),
        _select(MODEL, "Model", options.model, [(ref, ref, "") for ref in models]),
    ]
    if efforts or options.reasoning_effort:
        levels = [
            (DEFAULT_EFFORT, "Default", "As much as the model's server decides."),
            *((each, each.capitalize(), "") for each in EFFORTS if each in (*efforts, options.reasoning_effort)),
        ]
        choices.append(_select(EFFORT, "Reasoning effort", options.reasoning_effort or DEFAULT_EFFORT, levels))
    if agents:
        now = options.agent if options.agent in agents else NO_AGENT
        ways = [(each.name, each.name, each.description) for each in agents.values()]
        choices.append(_select(AGENT, "Works as", now, [(NO_AGENT, "Treadle itself", ""), *ways]))
    return choices


def _select(id: str, name: str, now: str, choices: Sequence[tuple[str, str, str]]) -> ConfigOption:
    """Each choice with its name and what is said about it."""
    listed = [a.SessionConfigSelectOption(value=v, name=n, description=about or None) for v, n, about in choices]
    kind: Any = _CATEGORIES.get(id)
    return a.SessionConfigOptionSelect(
        type="select", id=id, name=name, category=kind, current_value=now, options=listed
    )


def change_of(
    config_id: str, value: str | bool, agents: "Mapping[str, CustomAgent] | None" = None
) -> dict[str, object]:
    """The options of the chat that a choice changes. InvalidInput if there is no such choice."""
    if config_id == MODE and value in MODES:
        return {"mode": value}
    if config_id == MODEL and isinstance(value, str) and value:
        return {"model": value}
    if config_id == EFFORT and (value == DEFAULT_EFFORT or value in EFFORTS):
        return {"reasoning_effort": "" if value == DEFAULT_EFFORT else value}
    if config_id == AGENT and isinstance(value, str) and agents:
        return agent_changes(agents, value)
    raise InvalidInput(f"there is no choice {config_id!r} with the value {value!r}")
