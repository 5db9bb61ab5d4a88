"""A client of Treadle's HTTP API: chats, their events, and tools that run in your own process (A-09).

    client = Client("http://127.0.0.1:8420", token)

    @client.tool
    def stock(item: str) -> int:
        "How many of an item there are."

    chat = await client.chats.create("How many apples are there?")
    print((await client.run(chat)).text)

Knows the words of the protocol and nothing of what a server is made of. Without `async`: `treadle.client.sync`."""

from treadle.client.chats import Chats, ClientChat, ClientFiles, Restoration
from treadle.client.client import Client, ClientRace, ClientTool, ClientWorlds, Reply, ToolCall, WorldCommit
from treadle.protocol.http_answers import Accepted, ChangedFile, ChatLine
from treadle.protocol.http_answers import ChatView as ChatInfo

__all__ = [
    "Accepted", "ChangedFile", "ChatInfo", "ChatLine", "Chats", "Client", "ClientChat", "ClientFiles", "ClientRace",
    "ClientTool", "ClientWorlds", "Reply", "Restoration", "ToolCall", "WorldCommit",
]  # fmt: skip
