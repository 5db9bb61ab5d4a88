"""A server's tools as plain data, without the SDK. Stored in Treadle's home, so that a chat can call its model before
the server has started."""

from typing import Any, Literal

import msgspec

Sampling = Literal["refuse", "ask", "allow"]  # The handling of a server's request to call the chat's model


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
    title: str = ""  # The name and version that the server reports
    instructions: str = ""
    resources: bool = False
    commands: tuple[ListedPrompt, ...] = ()  # Its prompts
