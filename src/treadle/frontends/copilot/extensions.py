"""Extensions of a session beside its tools: MCP servers and skills that programs bring for it alone, and the prompt of
its custom agent."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from treadle.frontends.copilot_words.config import Config, Extras, McpServer
from treadle.library.agent import Agent
from treadle.library.mcp_hub.search import CALL, FIND
from treadle.library.skills.places import in_folder
from treadle.library.skills.reading import skills, split
from treadle.protocol.options import ChatOptions, Project, Skill


def builtin_names(agent: Agent, options: ChatOptions, session_skills: tuple[Skill, ...]) -> list[str]:
    """The tools that Treadle has for such a chat itself."""
    base = msgspec.structs.replace(options, tools=None, dynamic_tools=(), interactive=True, skills=session_skills)
    return [spec.name for spec in agent.deps.tools.specs(base) if not spec.server and spec.name not in (FIND, CALL)]


def bring(agent: Agent, session: str, configs: Iterable[Config], stopped: Iterable[str]) -> dict[str, McpServer]:
    """Declare the servers of all programs for this session; InvalidInput if one cannot be."""
    programs, disabled, servers = list(configs), {*stopped}, dict[str, McpServer]()
    for config in programs:
        servers = config.servers | servers
        disabled |= {*(config.disabled_mcp_servers or ())}
    if servers:
        declared = {name: server.declared(disabled=name in disabled) for name, server in servers.items()}
        agent.mcp.bring(session, declared, alone=not any(each.enable_config_discovery for each in programs))
    return servers


def found_skills(agent: Agent, config: Config, project: Project) -> dict[str, tuple[Skill, str]]:
    """Return all skills of a session by name, with their sources: the folders that the program names and, if it asks
    for them, those that a chat here would have without it. Disabled skills are included."""
    folders = [Path(each).expanduser() for each in config.skill_directories or ()]
    named = skills([each for folder in folders for each in in_folder("skills", folder)])
    sourced_skills = [("custom", skill) for skill in named]
    if config.enable_config_discovery:
        for skill in skills(agent.documents.all("skills", project)):
            sourced_skills.append(("personal-agents" if Path(skill.path).is_absolute() else "project", skill))
    return {skill.name: (skill, source) for source, skill in reversed(sourced_skills)}


def extras_of(agent: Agent, config: Config, project: Project, servers: Iterable[str]) -> Extras:
    """Reads files. An agent has the skills that it names, whole and from the beginning, and no others."""
    enabled_skills = found_skills(agent, config, project)
    for name in config.disabled_skills or ():
        enabled_skills.pop(name, None)
    custom = config.custom_agent
    if custom is None:
        return Extras(tuple(servers), tuple(skill for skill, _ in enabled_skills.values()))
    parts = [custom.prompt or ""]
    for name in custom.skills or ():
        if name in enabled_skills:
            text = Path(project[0], enabled_skills[name][0].path).read_text(errors="replace")
            parts.append(f"<skill name={name!r}>\n{split(text)[1]}\n</skill>")
    return Extras(tuple(servers), (), "\n\n".join(parts).strip())
