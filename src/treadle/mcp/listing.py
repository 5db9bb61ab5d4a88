"""What is known of a server's tools, in our own words: so that it can be kept in Treadle's home, and a chat need not
wait for a server to start before its model is asked. No SDK."""

from typing import Any, Literal

import msgspec

Sampling = Literal["refuse", "ask", "allow"]
"""What becomes of a server's wish to ask the chat's model."""


class ListedTool(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tool as its server describes it. The hints are what the server says of itself."""

    name: str
    description: str = ""
    schema: dict[str, Any] = {}
    read_only: bool = False
    idempotent: bool = False
    destructive: bool = True


class ListedPrompt(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


class Listing(msgspec.Struct, frozen=True, omit_defaults=True):
    tools: tuple[ListedTool, ...] = ()
    title: str = ""
    """What the server calls itself, and its version."""
    instructions: str = ""
    resources: bool = False
    commands: tuple[ListedPrompt, ...] = ()
    """Its prompts."""
