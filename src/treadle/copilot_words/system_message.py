"""The system text of a session by the SDK's modes: `append` (the default) puts the program's text behind Treadle's own,
`replace` puts it in its place, `customize` changes sections of it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from treadle.prompt import SECTIONS

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
    wanted = [name for name, section in (message.sections or {}).items() if section.action == "transform"]
    answer = await ask({name: sections.get(name, "") for name in wanted})
    for name in wanted:
        given = answer.get(name)
        if isinstance(given, Mapping) and isinstance(given.get("content"), str):
            sections[name] = given["content"]
    return _joined(sections, message.content or "")


def transforms(message: SystemMessage | None) -> bool:
    sections = message.sections if message is not None and message.mode == "customize" else None
    return any(section.action == "transform" for section in (sections or {}).values())


def _customized(message: SystemMessage, sections: dict[str, str]) -> dict[str, str]:
    """Sections that Treadle's text does not have are empty there, and come behind the others."""
    for name, section in (message.sections or {}).items():
        given, there = section.content or "", sections.get(name, "")
        match section.action:
            case "replace":
                sections[name] = given
            case "remove":
                sections.pop(name, None)
            case "append":
                sections[name] = f"{there}\n{given}" if there else given
            case "prepend":
                sections[name] = f"{given}\n{there}" if there else given
            case _:
                pass
    return sections


def _joined(sections: Mapping[str, str], behind: str) -> str:
    return "\n".join(text if text.endswith("\n") else f"{text}\n" for text in (*sections.values(), behind) if text)
