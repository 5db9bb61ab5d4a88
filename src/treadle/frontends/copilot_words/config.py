"""The configuration of a session, translated to chat options and the system text. Unsupported fields are refused if the
program relies on them, and otherwise reported."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from treadle.adapters.models.client_models import Provider, ProviderModel
from treadle.base.inert import make_inert_line
from treadle.base.jsonrpc import INVALID_PARAMS, RpcError
from treadle.frontends.copilot_words.names import OURS, list_server_patterns, matches_filters
from treadle.library.prompt import SECTIONS
from treadle.protocol.options import ChatOptions, ReasoningEffort, Skill
from treadle.protocol.tools import ANY_OBJECT, DynamicTool

Transform = Callable[[dict[str, str]], Awaitable[Mapping[str, Any]]]
"""Asks the program for other texts of these sections, by their names."""


class Section(msgspec.Struct):
    action: str = "replace"
    content: str | None = ""


class SystemMessage(msgspec.Struct):
    mode: str | None = "append"
    content: str | None = ""
    sections: dict[str, Section] | None = None


def build_prompt(message: SystemMessage | None) -> str:
    """The text without any transformation; empty: Treadle's own."""
    if message is None or not (message.content or message.sections):
        return ""
    if message.mode == "replace":
        return message.content or ""
    sections = _customize_sections(message, dict(SECTIONS)) if message.mode == "customize" else dict(SECTIONS)
    return _join_sections(sections, message.content or "")


async def transform_prompt(message: SystemMessage, ask: Transform) -> str:
    """The same, with the sections changed that the program wants to change itself."""
    sections = _customize_sections(message, dict(SECTIONS))
    section_names = [name for name, section in (message.sections or {}).items() if section.action == "transform"]
    answer = await ask({name: sections.get(name, "") for name in section_names})
    for name in section_names:
        new_section = answer.get(name)
        if isinstance(new_section, Mapping) and isinstance(new_section.get("content"), str):
            sections[name] = new_section["content"]
    return _join_sections(sections, message.content or "")


def needs_transform(message: SystemMessage | None) -> bool:
    sections = message.sections if message is not None and message.mode == "customize" else None
    return any(section.action == "transform" for section in (sections or {}).values())


def _customize_sections(message: SystemMessage, sections: dict[str, str]) -> dict[str, str]:
    """Sections that Treadle's text does not have are empty there, and come behind the others."""
    for name, section in (message.sections or {}).items():
        content, there = section.content or "", sections.get(name, "")
        match section.action:
            case "replace":
                sections[name] = content
            case "remove":
                sections.pop(name, None)
            case "append":
                sections[name] = f"{there}\n{content}" if there else content
            case "prepend":
                sections[name] = f"{content}\n{there}" if there else content
    return sections


def _join_sections(sections: Mapping[str, str], suffix: str) -> str:
    return "\n".join(text if text.endswith("\n") else f"{text}\n" for text in (*sections.values(), suffix) if text)


LABEL = "copilot-sdk"  # The label of chats that were made by a program of the SDKs.
ASKS = "copilot-sdk-asks"  # The label of those whose program wants to be asked before anything is run.
HOOKS = "copilot-sdk-hooks"
"""The label of those of which a program has checked calls. It stays: no later process runs their calls unchecked."""
CLIENT = "client:"  # Begins the label that names the program.
MAX_TURNS = 200  # Turns a run: the SDKs have no cap, and an endless loop must end.

_REFUSED: Mapping[str, str] = {
    "cloud": "sessions in GitHub's cloud",
    "hasSkillProvider": "skills that a program makes up",
    "pluginDirectories": "plugins",
    "hookDirectories": "folders of hooks",
    "canvases": "canvases",
    "additionalDirectories": "folders beside the working directory",
    "managedSettings": "managed settings",
    "enableManagedSettings": "managed settings",
    "sessionLimits": "limits in AI credits, only budgets in dollars (its setting chat_budget)",
}  # Unsupported features on which a program would rely, by the name of the field.
WITHOUT_EFFECT = ("largeOutput", "toolSearch")  # Fields that are accepted and do nothing.


class Tool(msgspec.Struct, rename="camel"):
    name: str
    description: str | None = ""
    parameters: Any = None
    overrides_built_in_tool: bool | None = False
    skip_permission: bool | None = False


class Command(msgspec.Struct, rename="camel"):
    name: str
    description: str | None = ""


class McpServer(msgspec.Struct, rename="camel"):
    type: str | None = None
    command: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] | None = None
    tools: list[str] | None = None
    timeout: float | None = None

    def build_declaration(self, *, disabled: bool) -> dict[str, Any]:
        """As Treadle's own files would declare it."""
        fields = {name: value for name, value in msgspec.structs.asdict(self).items() if value}
        fields["type"] = "" if fields.get("type") == "local" else fields.get("type", "")
        if self.tools is not None:
            fields["tools"] = self.tools
        if (timeout := fields.pop("timeout", 0)) > 0:
            fields["timeout_s"] = timeout / 1000
        return {**fields, "disabled": disabled}


class CustomAgent(msgspec.Struct, rename="camel"):
    """Another way to work, by its name: a text for the model, and which tools, servers, skills and model it has."""

    name: str
    prompt: str | None = ""
    display_name: str | None = None
    description: str | None = None
    tools: list[str] | None = None
    model: str | None = None
    reasoning_effort: ReasoningEffort | None = None
    mcp_servers: dict[str, McpServer] | None = None
    skills: list[str] | None = None


class DefaultAgent(msgspec.Struct, rename="camel"):
    excluded_tools: list[str] = []


class InfiniteSessions(msgspec.Struct, rename="camel"):
    enabled: bool = True


class Config(msgspec.Struct, rename="camel"):
    """As of `session.create` and `session.resume`. Fields that are not here have no meaning for Treadle."""

    session_id: str = ""
    model: str | None = None
    reasoning_effort: ReasoningEffort | None = None
    name: str | None = None
    tools: list[Tool] | None = None
    system_message: SystemMessage | None = None
    available_tools: list[str] | None = None
    excluded_tools: list[str] | None = None
    client_name: str | None = None
    instruction_directories: list[str] | None = None
    request_permission: bool | None = None
    request_user_input: bool | None = None
    request_elicitation: bool | None = None
    commands: list[Command] | None = None
    hooks: bool | None = None
    working_directory: str | None = None
    streaming: bool | None = None
    provider: Provider | None = None
    providers: list[Provider] | None = None
    models: list[ProviderModel] | None = None
    custom_agents: list[CustomAgent] | None = None
    default_agent: DefaultAgent | None = None
    agent: str | None = None
    mcp_servers: dict[str, McpServer] | None = None
    disabled_mcp_servers: list[str] | None = None
    skill_directories: list[str] | None = None
    disabled_skills: list[str] | None = None
    enable_config_discovery: bool | None = None
    infinite_sessions: InfiniteSessions | None = None
    continue_pending_work: bool | None = None
    disable_resume: bool | None = None

    @property
    def custom_agent(self) -> CustomAgent | None:
        return next((each for each in self.custom_agents or () if each.name == self.agent), None)

    @property
    def effort(self) -> ReasoningEffort | None:
        """That of its agent before that of the session; None: not said."""
        agent = self.custom_agent
        return (agent.reasoning_effort if agent is not None else None) or self.reasoning_effort

    @property
    def servers(self) -> dict[str, McpServer]:
        agent = self.custom_agent
        return {**(self.mcp_servers or {}), **((agent.mcp_servers if agent is not None else None) or {})}

    @property
    def tool_filters(self) -> list[list[str]]:
        """Filters, all of which must let a tool through."""
        agent = self.custom_agent
        both = (self.available_tools, agent.tools if agent is not None else None)
        return [each for each in both if each is not None]

    @property
    def excluded(self) -> list[str]:
        """Tools that are excluded, even if another filter allows them."""
        default = self.default_agent if self.custom_agent is None else None
        return [*(self.excluded_tools or ()), *(default.excluded_tools if default is not None else ())]


class Extras(msgspec.Struct, frozen=True):
    """The parts of a session beside tools: MCP servers by name, skills, and the prompt of its agent."""

    servers: tuple[str, ...] = ()
    skills: tuple[Skill, ...] = ()
    agent_prompt: str = ""


def read_config(params: Mapping[str, Any]) -> Config:
    """RpcError for what does not fit, and for what Treadle does not have."""
    for field, feature in _REFUSED.items():
        if params.get(field):
            raise RpcError(INVALID_PARAMS, f"Treadle does not support {feature} ({field}); leave it out.")
    try:
        config = msgspec.convert(params, Config, strict=False)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_PARAMS, f"The configuration of the session does not fit: {error}.") from error
    if config.agent and config.custom_agent is None:
        raise RpcError(INVALID_PARAMS, f"There is no custom agent {config.agent!r}; customAgents must define it.")
    return config


def make_options(
    base: ChatOptions,
    config: Config,
    tools: Sequence[Tool],
    builtin: Collection[str],
    extras: Extras,
    prompt: str | None = None,
) -> ChatOptions:
    """The user's settings, in the mode that asks before changes, with all programs' `tools`. `prompt`: system text."""
    agent = config.custom_agent
    text = prompt if prompt is not None else build_prompt(config.system_message)
    enabled_tools = (tool for tool in tools if _is_tool_enabled(config, tool.name, builtin=False))
    dynamic_tools = tuple(
        DynamicTool(tool.name, tool.description or "", tool.parameters or dict(ANY_OBJECT)) for tool in enabled_tools
    )
    # Built-in tools: `ask_user` only if the program handles questions; none that a program replaces.
    replaced = {OURS.get(tool.name, tool.name) for tool in tools if tool.overrides_built_in_tool}
    replaced |= set() if config.request_user_input else {"ask_user"}
    own_tools = [name for name in builtin if name not in replaced and _is_tool_enabled(config, name, builtin=True)]
    client = f"{CLIENT}{make_inert_line(config.client_name, 60)}" if config.client_name else ""
    labels = [each for each in base.labels if each not in (LABEL, ASKS) and not (client and each.startswith(CLIENT))]
    new_labels = (LABEL, ASKS if config.request_permission else "", HOOKS if config.hooks else "", client)
    return msgspec.structs.replace(
        base, mode=base.mode if LABEL in base.labels else "confirm", interactive=True,
        max_turns=max(base.max_turns, MAX_TURNS), on_limit="answer", on_guard="stop", summarize=False, verify=False,
        action_deadline_s=0.0, system_prompt=text or base.system_prompt,
        reasoning_effort=config.effort or base.reasoning_effort, agent=agent.name if agent is not None else "",
        agent_prompt=extras.agent_prompt, skills=extras.skills,
        own_servers=config.session_id if extras.servers else "",
        tools=(*own_tools, *_yield_server_tools(config, extras.servers)),
        dynamic_tools=dynamic_tools, labels=tuple(dict.fromkeys([*labels, *filter(None, new_labels)])),
    )  # fmt: skip


def _is_tool_enabled(config: Config, name: str, *, builtin: bool) -> bool:
    """True if the filters allow a tool. An excluded tool is never allowed."""
    return not matches_filters(config.excluded, name, builtin=builtin) and all(
        matches_filters(each, name, builtin=builtin) for each in config.tool_filters
    )


def _yield_server_tools(config: Config, servers: Iterable[str]) -> Iterator[str]:
    """The tools of servers, as patterns."""
    for server in servers:
        patterns = [f"{server}__*"]
        for each in config.tool_filters:
            filter_patterns = list_server_patterns(each, server)
            if f"{server}__*" in patterns:
                patterns = filter_patterns
            elif f"{server}__*" not in filter_patterns:
                patterns = [*{*filter_patterns} & {*patterns}]
        yield from patterns
        yield from (f"!{pattern}" for pattern in list_server_patterns(config.excluded, server))
