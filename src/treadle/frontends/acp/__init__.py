"""Editors that speak the Agent Client Protocol (E-02): each session of an editor is a chat, under the same id. A thin
adapter over the library, which decides nothing about chats."""
