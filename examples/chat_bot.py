"""A chat bot of a shop, with two tools that run here: `python examples/chat_bot.py`, then type.

It needs a server (`treadle serve`) and its address and token in TREADLE_URL and TREADLE_TOKEN.
"""

import asyncio
import os
import sys

from treadle.client import Client, ToolCall
from treadle.errors import ToolError

STOCK = {"apple": 12, "pear": 3}
ORDERS: dict[tuple[str, str], str] = {}

client = Client(os.environ["TREADLE_URL"], os.environ["TREADLE_TOKEN"])


@client.tool
def stock(item: str) -> int:
    """How many of an item there are."""
    if item not in STOCK:
        raise ToolError(f"There is no {item} in this shop. It has: {', '.join(STOCK)}.")
    return STOCK[item]


@client.tool
def order(item: str, count: int, call: ToolCall) -> str:
    """Order something.

    Args:
        item: What to order.
        count: How many of it.
    """
    key = (call.chat, call.id)  # the same call may come again after a crash, but is ordered once
    if key not in ORDERS:
        STOCK[item] -= count
        ORDERS[key] = f"order {len(ORDERS) + 1}: {count} {item}"
    return ORDERS[key]


async def main() -> None:
    async with client:
        chat = await client.chats.create(system_prompt="You sell fruit.", tools=["stock", "order"])
        for line in sys.stdin:
            reply = await client.run(chat, line)
            print(reply.text or reply.error, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
