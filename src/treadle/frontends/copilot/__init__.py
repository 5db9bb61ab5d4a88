"""A runtime for the Copilot SDKs (issue 15): the JSON-RPC protocol between an SDK and its command line, answered by the
library. A session there is a chat here. Decides nothing about chats; docs/reference/copilot-sdk.md lists the supported
methods. `copilot_words/` translates the messages.

- `server`: the runtime as a whole, which connects programs and sessions
- `session`: one chat, the programs that are attached to it, and the MCP servers and skills that they bring; `requests`:
  its requests to them, and their hooks; `methods`: the methods that they may call"""
