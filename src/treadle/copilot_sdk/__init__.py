"""A runtime for the Copilot SDKs (issue 15): the JSON-RPC protocol that they speak to their command line, answered by
the library. A session there is a chat here. Decides nothing about chats; docs/reference/copilot-sdk.md says method by
method what is there.

- `serve`: where programs come from; `server`: the runtime as a whole, and the table of its methods
- `config`: what a program says of a session, and the options of a chat that this makes; `system_message` is a part
- `events`, `names`, `permissions`: what happened, in the words of the SDKs
- `session`: one chat and the programs that are attached to it; `requests` what it asks of them, `hooks` theirs,
  `methods` what they may call, `attachments` what they may send along
"""
