"""Routes for chats: begin, list, look at and change them; their log, their conversation and what they cost."""

import base64
from contextlib import suppress

import msgspec
from starlette.responses import Response, StreamingResponse

from treadle.adapters.models.base import check_effort
from treadle.base.types import ChatId, make_id
from treadle.chat.fold import change_options
from treadle.chat.state import compute_status
from treadle.errors import JobElsewhere, TreadleError
from treadle.frontends.server.replies import (
    NOTHING,
    ApiReply,
    Problem,
    build_chat_line,
    build_chat_view,
    build_message_view,
    encode_reply,
)
from treadle.frontends.server.routing import ApiRequest, Route
from treadle.frontends.server.tokens import LOCAL, get_owner
from treadle.library import commands
from treadle.library.message_expansion import expand_message
from treadle.library.searching import search_chats as search_chats
from treadle.library.transfer import export_chat
from treadle.ports.store import ChatFilter, Cursor
from treadle.protocol import commands as c
from treadle.protocol import wire
from treadle.protocol.content import Image
from treadle.protocol.http_answers import ChatList, ChatView, EventPage, FoundChat, FoundList, MessageList, UsageView
from treadle.protocol.http_queries import ChatQuery, MessagePage, Page, SearchQuery
from treadle.protocol.http_requests import CreateChat, Nothing, PatchChat, SendMessage
from treadle.protocol.options import ChatOptions
from treadle.protocol.views import get_shown_status

NDJSON = "application/x-ndjson"


async def prepare_message(
    call: ApiRequest, body: SendMessage | CreateChat, options: ChatOptions
) -> tuple[str, list[Image]]:
    """A message to a chat with these options, and its images, kept by their hash."""
    agent = call.service.agent
    images = [Image(each.media_type, await agent.deps.store.put_blob(each.decode_data())) for each in body.images]
    if not body.expand:
        return body.content, images
    text, attached = await expand_message(agent, options, body.content, include_own=call.user == LOCAL)
    return text, [*images, *attached]


async def create(call: ApiRequest) -> ApiReply:
    body = call.get_body(CreateChat)
    options = await call.service.begin(call.user, body.to_changes())
    call.deps.models.get(options.model)
    if "reasoning_effort" in body.to_changes() and not options.agent:
        check_effort(call.deps.models, options.model, options.reasoning_effort)
    call.service.remember_model(call.user, options.model)

    async def make_commands(options: ChatOptions) -> list[c.Command]:
        commands: list[c.Command] = [c.Rename(body.title)] if body.title else []
        if body.content or body.images:
            text, images = await prepare_message(call, body, options)
            commands.append(c.Send(text, images=tuple(images), queue_id=make_id("q"), traceparent=call.traceparent))
        return commands

    return await call.service.create(call.user, options, make_commands, call.key)


async def listing(call: ApiRequest) -> ApiReply:
    query = call.get_query(ChatQuery)
    chat_filter = ChatFilter(get_owner(call.user), query.archived, query.status, query.label or None, query.query)
    listed_chats = await call.deps.store.list(chat_filter, limit=query.limit + 1, cursor=_parse_cursor(query.cursor))
    page = listed_chats[: query.limit]
    next_cursor = ""
    if len(listed_chats) > len(page):
        last = page[-1].summary
        next_cursor = base64.urlsafe_b64encode(f"{last.updated_ms}:{last.chat}".encode()).decode().rstrip("=")
    return encode_reply(ChatList(chats=tuple(map(build_chat_line, page)), next=next_cursor))


async def search(call: ApiRequest) -> ApiReply:
    """Chats of the caller alone (S-13)."""
    query = call.get_query(SearchQuery)
    chat_filter = ChatFilter(owner=get_owner(call.user), archived=query.archived)
    matches: list[FoundChat] = []
    async for hit in search_chats(call.deps.store, chat_filter, query.text):
        matches.append(FoundChat(**msgspec.structs.asdict(build_chat_line(hit.listed)), found=hit.text))
        if len(matches) == query.limit:
            break
    return encode_reply(FoundList(chats=tuple(matches)))


def _parse_cursor(cursor: str) -> Cursor | None:
    if not cursor:
        return None
    with suppress(ValueError):
        moment, _, chat = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode().partition(":")
        if chat and abs(int(moment)) <= 1 << 53:
            return int(moment), ChatId(chat)
    raise Problem("bad_request", "This cursor does not come from this server.")


async def show(call: ApiRequest) -> ApiReply:
    state = await call.load_state()
    is_driven = compute_status(state) != "running" or (await call.deps.store.get(state.chat)).leased
    return encode_reply(build_chat_view(state, get_shown_status(compute_status(state), is_driven)))


async def patch(call: ApiRequest) -> ApiReply:
    body = call.get_body(PatchChat)
    chat = await call.find_chat()
    changes = call.service.admission.alter(call.user, body.to_changes())
    commands: list[c.Command] = []
    warnings: tuple[str, ...] = ()
    if changes:
        if "model" in changes:
            call.deps.models.get(changes["model"])
            call.service.remember_model(call.user, changes["model"])
        if "dynamic_tools" in changes:
            options = change_options((await call.deps.log.load(chat)).options, changes)
            warnings = call.service.agent.tool_warnings(options)
        commands.append(c.ChangeOptions(changes))
    if isinstance(body.title, str):
        commands.append(c.Rename(body.title))

    make_reply = lambda state: encode_reply(build_chat_view(state, compute_status(state), warnings))  # noqa: E731
    return await call.service.execute(chat, commands, call.key, make_reply)


async def delete(call: ApiRequest) -> ApiReply:
    """Deleting again answers the same, with and without a key."""
    await call.service.delete(call.user, call.get_path_parameter("chat"))
    return NOTHING


async def end_jobs(call: ApiRequest, answer: ApiReply) -> ApiReply:
    """The jobs of a chat end when it is archived; also when that failed for the first answer under the same key."""
    await commands.end_jobs(call.service.agent.chat_home, await call.load_state())
    return answer


async def messages(call: ApiRequest) -> ApiReply:
    """A page of the conversation as it stands: messages that an edit cut off are only in the log."""
    query = call.get_query(MessagePage)
    history = (await call.load_state()).history
    total = len(history)
    last = min(total, query.before - 1) if query.before else total
    first = query.after or max(0, last - query.limit)
    entries = history.slice(first)[: max(0, min(last - first, query.limit))]
    views = tuple(build_message_view(place, entry) for place, entry in enumerate(entries, first + 1))
    return encode_reply(MessageList(messages=views, total=total))


async def log(call: ApiRequest) -> ApiReply:
    query = call.get_query(Page)
    chat = await call.find_chat()
    records = await call.deps.store.read(chat, query.after, query.limit)
    events = tuple(wire.to_dict(wire.decode(chat, record)) for record in records)
    return encode_reply(EventPage(events=events, head=await call.deps.store.read_head(chat)))


async def export(call: ApiRequest) -> Response:
    chat = await call.find_chat()
    lines = export_chat(call.deps.store, chat)
    headers = {"content-disposition": f'attachment; filename="{chat}.jsonl"'}
    return StreamingResponse(lines, headers=headers, media_type=NDJSON)


async def usage(call: ApiRequest) -> ApiReply:
    state = await call.load_state()
    try:
        info = call.deps.models.get(state.options.model).info
    except TreadleError:  # this server does not have the model
        info = None
    window = state.options.context_window or (info.window if info is not None else 0)
    counts = {name: getattr(state.totals, name) for name in ("usage", "turns", "tool_calls", "wall_ms")}
    is_priced = info is None or info.has_price
    view = UsageView(**counts, context_tokens=state.context_tokens, context_window=window, priced=is_priced)
    return encode_reply(view)


async def usage_of_all(call: ApiRequest) -> ApiReply:
    total = await call.service.chat_counts.compute_total(get_owner(call.user))
    return encode_reply(UsageView(usage=total.usage, turns=total.turns, chats=total.chats))


TAG = "chats"
ROUTES = (
    Route("POST", "/api/chats", create, "Begin a chat, and with `content` its first run.", 201, ChatView,
          body=CreateChat, codes=("invalid_input", "config", "empty", "tool"), large=False),
    Route("GET", "/api/chats", listing, "List chats, newest change first.", reply=ChatList, query=ChatQuery),
    Route("GET", "/api/search", search, "Find chats by words in their messages.", reply=FoundList, query=SearchQuery),
    Route("GET", "/api/chats/{chat}", show, "Look at a chat.", reply=ChatView),
    Route("PATCH", "/api/chats/{chat}", patch, "Change title, labels, options; archive.", reply=ChatView,
          body=PatchChat, codes=("invalid_input", "config", "empty", "busy", "awaiting_action"), finish=end_jobs),
    Route("DELETE", "/api/chats/{chat}", delete, "Delete a chat and its sub-agents for good.", 204, body=Nothing,
          codes=("busy", JobElsewhere.code)),
    Route("GET", "/api/chats/{chat}/messages", messages, "Read the conversation.", reply=MessageList,
          query=MessagePage),
    Route("GET", "/api/chats/{chat}/log", log, "Read recorded events.", reply=EventPage, query=Page),
    Route("GET", "/api/chats/{chat}/export", export, "Get the whole log as JSON lines.", media_type=NDJSON),
    Route("GET", "/api/chats/{chat}/usage", usage, "See what a chat has cost.", reply=UsageView),
    Route("GET", "/api/usage", usage_of_all, "See what all chats have cost.", reply=UsageView),
)  # fmt: skip
