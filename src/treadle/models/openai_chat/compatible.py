"""Servers that speak Chat Completions and differ in little but their address (M-01): one row each in
`treadle.models.providers`."""

import re

from treadle.errors import ModelError
from treadle.models.keys import Secret, find_key
from treadle.models.listing import list_from
from treadle.models.openai_chat.adapter import OpenAIChat
from treadle.models.provider_context import ProviderContext
from treadle.models.providers import SERVERS, address_variable, key_variable
from treadle.ports.model import ModelInfo


def connect_to(server: str, name: str, around: ProviderContext) -> OpenAIChat:
    key, url = _access(server, f"{server}:{name}", around)
    row = SERVERS[server]
    return OpenAIChat(
        around.look_up(server, name),
        base_url=url,
        api_key=key,
        thinking_field=row.thinking_field,
        ids=re.compile(row.ids) if row.ids else None,
        http=around.http,
    )


async def list_models_of(server: str, around: ProviderContext) -> list[ModelInfo]:
    """What the server says it has, if it takes the key."""
    key, url = _access(server, server, around)
    base_url = url.rstrip("/")
    if path := SERVERS[server].key_path:
        try:
            await around.http.get(base_url + path, {}, key)
        except ModelError as error:
            if error.status != 404:  # a relay in its place need not know this path
                raise
    return await list_from(around, server, f"{base_url}/models", key)


def _access(server: str, ref: str, around: ProviderContext) -> tuple[Secret, str]:
    row = SERVERS[server]
    if row.needs_key:
        key, url = around.access(ref, key_variable(server), address_variable(server))
    else:
        # One on this machine asks for a key only if its owner told it to; the key store has nothing for it.
        key = find_key(around.env, key_variable(server), keyring=False)
        url = around.address(address_variable(server))
    return key, url or row.base_url
