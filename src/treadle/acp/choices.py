"""What a person can choose for a session: the mode and the model, as modes and as configuration options."""

import asyncio
import os
from collections.abc import Mapping, Sequence

from acp import schema as a

from treadle.errors import ConfigError, InvalidInput
from treadle.models.offering import all_offers, usable
from treadle.models.registry import ModelRegistry
from treadle.protocol.options import MODES, ChatOptions, Mode
from treadle.runtime import Agent

MODE, MODEL, COMMANDS = "mode", "model", "auto_approve_commands"
WORDS: Mapping[Mode, tuple[str, str]] = {
    "read-only": ("Read only", "Reads and searches; changes and runs nothing."),
    "confirm": ("Confirm", "Asks before anything is changed or run."),
    "review": ("Review", "Shows what a command would change before it is committed."),
    "ask": ("Ask", "Asks for commands and for changes of sensitive files."),
    "auto-edit": ("Auto-edit", "Edits files by itself; asks for what is risky."),
    "autopilot": ("Autopilot", "Works until the task is done; asks only for what is critical."),
}
NO_MODEL = (
    "no model is set: name one with `treadle acp --model openai:gpt-4.1`, with TREADLE_MODEL in the environment of the "
    "editor, or as `model` in config.toml; its key belongs in the environment, too, such as OPENAI_API_KEY"
)


async def usable_models(agent: Agent, also: Sequence[str] = ()) -> list[str]:
    """The models that can be used with the keys at hand, and those that are in use; no provider is asked."""
    registry = agent.deps.models
    found: list[str] = []
    if isinstance(registry, ModelRegistry):
        offers = await asyncio.to_thread(all_offers, registry)
        found = [info.ref for each in offers for info in each.models if not usable(registry, each, info)]
    return list(dict.fromkeys([*filter(None, also), *found]))


def require_model(agent: Agent, ref: str) -> None:
    """ConfigError if it cannot be used, before anything is written."""
    if not ref:
        raise ConfigError(NO_MODEL)
    agent.deps.models.get(ref)


def modes(options: ChatOptions) -> a.SessionModeState:
    available = [a.SessionMode(id=mode, name=WORDS[mode][0], description=WORDS[mode][1]) for mode in MODES]
    return a.SessionModeState(current_mode_id=options.mode, available_modes=available)


def config_options(
    options: ChatOptions, models: Sequence[str], *, booleans: bool
) -> list[a.SessionConfigOptionSelect | a.SessionConfigOptionBoolean]:
    found: list[a.SessionConfigOptionSelect | a.SessionConfigOptionBoolean] = [
        a.SessionConfigOptionSelect(
            type="select",
            id=MODE,
            name="Mode",
            category="mode",
            current_value=options.mode,
            options=[a.SessionConfigSelectOption(value=m, name=WORDS[m][0], description=WORDS[m][1]) for m in MODES],
        ),
        a.SessionConfigOptionSelect(
            type="select",
            id=MODEL,
            name="Model",
            category="model",
            current_value=options.model,
            options=[a.SessionConfigSelectOption(value=ref, name=ref) for ref in models],
        ),
    ]
    if booleans:
        found.append(
            a.SessionConfigOptionBoolean(
                type="boolean",
                id=COMMANDS,
                name="Let commands pass",
                description="Commands pass without a question, except critical ones.",
                current_value=options.auto_approve_commands,
            )
        )
    return found


def change_of(config_id: str, value: str | bool) -> dict[str, str | bool]:
    """The option of the chat that a choice changes. InvalidInput if there is no such choice."""
    if config_id == MODE and value in MODES:
        return {"mode": value}
    if config_id == MODEL and isinstance(value, str) and value:
        return {"model": value}
    if config_id == COMMANDS and isinstance(value, bool):
        return {COMMANDS: value}
    raise InvalidInput(f"there is no choice {config_id!r} with the value {value!r}")


def disclosed(agent: Agent, model: str) -> str:
    """What is to be told about who gets to see the project with this model, once for each recipient (S-10)."""
    from treadle.models.disclosure import recipient
    from treadle.policy.consent import disclosure

    whom = recipient(model, os.environ)
    if not whom or agent.consent.given(whom, model.partition(":")[0]):
        return ""
    agent.consent.give(whom)
    return disclosure(whom)
