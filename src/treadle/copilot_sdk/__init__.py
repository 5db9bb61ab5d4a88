"""A runtime for the Copilot SDKs (issue 15): the JSON-RPC protocol that they speak to their command line, answered by
the library. A session there is a chat here. Decides nothing about chats; docs/reference/copilot-sdk.md says method by
method what is there. What is said and what it means is in `copilot_words/`.

- `server`: the runtime as a whole, and where programs and sessions come together
- `session`: one chat and the programs that are attached to it; `requests` what it asks of them, `hooks` theirs,
  `methods` and `extension_methods` what they may call, `attachments` what they may send along
- `extensions`: MCP servers and skills that programs bring for a session
"""
