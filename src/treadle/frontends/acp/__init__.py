"""Editors that speak the Agent Client Protocol (E-02): each session of an editor is a chat, under the same id. A thin
adapter over the library: requests of the editor become commands, the log becomes updates, and what the chat asks is put
to the person in the editor. Decides nothing about chats."""
