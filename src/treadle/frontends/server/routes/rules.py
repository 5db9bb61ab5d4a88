"""Routes for rules, the standing answers to approvals (S-07). Those beyond a chat belong to who runs the server."""

import asyncio

import msgspec

from treadle.chat.state import ChatState
from treadle.errors import ConfigError, NotFound
from treadle.frontends.server.replies import NOTHING, ApiReply, encode_reply
from treadle.frontends.server.routing import ApiRequest, Route
from treadle.frontends.server.tokens import LOCAL
from treadle.protocol import commands as c
from treadle.protocol.http_answers import RuleList, RuleView
from treadle.protocol.http_queries import RuleQuery
from treadle.protocol.http_requests import Nothing


async def listing(call: ApiRequest) -> ApiReply:
    state = await _load_chat(call)
    book = call.service.agent.rules
    user_rules, damage = await asyncio.to_thread(book.list_readable) if call.user == LOCAL else ([], "")
    rules = [(rule, "") for rule in user_rules]
    if state is not None:
        rules += [(rule, state.chat) for rule in state.options.rules]
    views = [RuleView(rule=rule, chat=chat, used_ms=book.read_last_use_ms(rule.id)) for rule, chat in rules]
    return encode_reply(RuleList(rules=tuple(views), damage=damage))


async def revoke(call: ApiRequest) -> ApiReply:
    id, state = call.get_path_parameter("rule"), await _load_chat(call)
    book = call.service.agent.rules
    if state is not None and any(rule.id == id for rule in state.options.rules):
        remaining_rules = [rule for rule in state.options.rules if rule.id != id]
        change = c.ChangeOptions({"rules": msgspec.to_builtins(remaining_rules)})
        response = await call.service.execute(state.chat, (change,), call.key, lambda _state: NOTHING)
        book.forget_use(id)
        return response
    if call.user != LOCAL:
        raise NotFound(f"there is no rule {id[:80]!r} of yours")
    if any(rule.id == id for rule in await asyncio.to_thread(book.list_rules)):
        await call.remember_step("revoke", NOTHING)
    try:
        await asyncio.to_thread(book.revoke, id)
    except NotFound:  # unless the same request has revoked it
        if await call.recall_step("revoke") is None:
            raise
    await call.remember(NOTHING)
    return NOTHING


async def _load_chat(call: ApiRequest) -> ChatState | None:
    chat = call.get_query(RuleQuery).chat
    return await call.service.load_state(call.user, chat) if chat else None


TAG = "actions"
ROUTES = (
    Route("GET", "/api/rules", listing, "List the rules of projects and of the user, and with `chat` those of a chat.",
          reply=RuleList, query=RuleQuery, codes=("not_found",)),
    Route("DELETE", "/api/rules/{rule}", revoke, "Revoke a rule.", 204, body=Nothing, query=RuleQuery,
          codes=("not_found", ConfigError.code)),
)  # fmt: skip
