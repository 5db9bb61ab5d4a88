"""Who is measured, on what, with which parameters. Data only."""

from collections.abc import Mapping
from typing import Literal

import msgspec

Parameters = Mapping[str, int]


class Contestant(msgspec.Struct, frozen=True):
    name: str
    title: str
    file: str
    kind: Literal["floor", "treadle", "peer"]
    imports: str = ""
    """What a program that uses it imports."""
    stores: bool = False
    """Its chats are stored in everyday use, so they are in every scenario."""
    journals: bool = True
    """It can record each step as it happens; otherwise it has no cost of durability to measure."""


CONTESTANTS = (
    Contestant("floor_asyncio", "floor: asyncio", "floor_asyncio.py", "floor", "import asyncio, msgspec"),
    Contestant("floor_aiohttp", "floor: aiohttp", "floor_aiohttp.py", "floor", "import aiohttp, msgspec"),
    Contestant("treadle", "Treadle", "treadle_loop.py", "treadle", "from treadle import Agent, tool", stores=True),
    Contestant("openai", "openai SDK", "openai_loop.py", "peer", "from openai import AsyncOpenAI", journals=False),
    Contestant(
        "pydantic_ai",
        "pydantic-ai",
        "pydantic_ai_loop.py",
        "peer",
        "from pydantic_ai import Agent; from pydantic_ai.models.openai import OpenAIChatModel",
        journals=False,
    ),
    Contestant(
        "langgraph",
        "LangGraph",
        "langgraph_loop.py",
        "peer",
        "from langgraph.graph import StateGraph; from langchain_openai import ChatOpenAI",
        stores=True,
    ),
)


class Scenario(msgspec.Struct, frozen=True):
    name: str
    full: Parameters
    quick: Parameters
    processes: int = 3
    """How often it is run anew; a peer runs once, because it is slow."""
    only_treadle: bool = False


SCENARIOS = (
    Scenario("stream", {"small": 10, "big": 2000, "repeats": 9}, {"small": 10, "big": 1000, "repeats": 5}),
    Scenario(
        "paced",
        {"chats": 300, "chunks": 150, "every_ms": 20},
        {"chats": 50, "chunks": 50, "every_ms": 20},
    ),
    Scenario("turns", {"chunks": 10, "count": 200, "repeats": 3}, {"chunks": 10, "count": 200, "repeats": 1}),
    Scenario("rounds", {"few": 2, "many": 18, "repeats": 9}, {"few": 2, "many": 18, "repeats": 3}),
    Scenario("resume", {"length": 500}, {"length": 500}),
    Scenario("memory", {"chats": 1000}, {"chats": 100}),
    Scenario("start", {"repeats": 15}, {"repeats": 3}, processes=1),
    Scenario("commands", {"repeats": 15}, {"repeats": 3}, processes=1, only_treadle=True),
    Scenario("headless", {"repeats": 7}, {"repeats": 2}, processes=1, only_treadle=True),
)
