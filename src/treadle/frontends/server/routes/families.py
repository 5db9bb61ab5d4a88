"""Routes for chats that begin others (L-22, L-23): races, and the chats below one. They are all of one owner."""

from treadle.errors import InvalidInput
from treadle.frontends.server.replies import ApiReply, encode_reply
from treadle.frontends.server.routing import ApiRequest, Route
from treadle.library.subagents.children import list_descendants
from treadle.protocol import commands as c
from treadle.protocol.http_answers import ChatView, ChildList
from treadle.protocol.http_requests import StartRace


async def race(call: ApiRequest) -> ApiReply:
    from treadle.library.subagents.race import make_race_order

    body = call.get_body(StartRace)
    admission, models = call.service.admission, call.deps.models
    options = await call.service.begin(call.user, body.to_changes())
    if not options.root:
        raise InvalidInput("A race is about a project: name its root.")
    model_refs = body.models or (options.model,)
    for model in filter(None, (*model_refs, body.judge)):
        admission.check_model(call.user, model)
        models.get(model)
    race_order = make_race_order(body.task, body.attempts, model_refs, body.check, body.judge, body.all)
    return await call.service.create(call.user, options, (c.Apply(race=race_order),), call.key)


async def children(call: ApiRequest) -> ApiReply:
    return encode_reply(ChildList(children=tuple(await list_descendants(call.deps, await call.find_chat()))))


TAG = "chats"
ROUTES = (
    Route("POST", "/api/races", race, "Begin a race: several attempts at one task, of which the best is committed.",
          201, ChatView, body=StartRace, codes=("invalid_input", "config", "empty")),
    Route("GET", "/api/chats/{chat}/children", children, "List the chats that its calls began: sub-agents, attempts.",
          reply=ChildList),
)  # fmt: skip
