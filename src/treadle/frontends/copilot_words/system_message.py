"""The system text of a session by the SDK's modes: `append` (the default) puts the program's text behind Treadle's own,
`replace` puts it in its place, `customize` changes sections of it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from treadle.library.prompt import SECTIONS

Transform = Callable[[dict[str, str]], Awaitable[Mapping[str, Any]]]
"""Asks the program for other texts of these sections, by their names."""


class Section(msgspec.Struct):
    action: str = "replace"
    content: str | None = ""


class SystemMessage(msgspec.Struct):
    mode: str | None = "append"
    content: str | None = ""
    sections: dict[str, Section] | None = None


def prompt_of(message: SystemMessage | None) -> str:
    """The text without any transformation; empty: Treadle's own."""
    if message is None or not (message.content or message.sections):
        return ""
    if message.mode == "replace":
        return message.content or ""
    sections = _customized(message, dict(SECTIONS)) if message.mode == "customize" else dict(SECTIONS)
    return _joined(sections, message.content or "")


async def transformed_prompt(message: SystemMessage, ask: Transform) -> str:
    """The same, with the sections changed that the program wants to change itself."""
    sections = _customized(message, dict(SECTIONS))
    section_names = [name for name, section in (message.sections or {}).items() if section.action == "transform"]
    answer = await ask({name: sections.get(name, "") for name in section_names})
    for name in section_names:
        new_section = answer.get(name)
        if isinstance(new_section, Mapping) and isinstance(new_section.get("content"), str):
            sections[name] = new_section["content"]
    return _joined(sections, message.content or "")


def transforms(message: SystemMessage | None) -> bool:
    sections = message.sections if message is not None and message.mode == "customize" else None
    return any(section.action == "transform" for section in (sections or {}).values())


def _customized(message: SystemMessage, sections: dict[str, str]) -> dict[str, str]:
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
            case _:
                pass
    return sections


def _joined(sections: Mapping[str, str], suffix: str) -> str:
    return "\n".join(text if text.endswith("\n") else f"{text}\n" for text in (*sections.values(), suffix) if text)
