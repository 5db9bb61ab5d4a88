"""Routes for worlds (W-11 to W-13). A commit begins a chat, whose log tells its outcome; its undo takes it back."""

import asyncio

import msgspec

from treadle.frontends.server.replies import ApiReply, Problem, encode_reply
from treadle.frontends.server.routing import ApiRequest, Route
from treadle.frontends.server.tokens import get_owner
from treadle.library.worlds.record import World
from treadle.protocol import commands as c
from treadle.protocol.http_answers import ChatView, Rebased, WorldChanges, WorldList, WorldView
from treadle.protocol.http_requests import Nothing


async def listing(call: ApiRequest) -> ApiReply:
    own_worlds = (each for each in await call.service.agent.worlds.list() if each.owner == get_owner(call.user))
    return encode_reply(WorldList(worlds=tuple(map(_build_view, own_worlds))))


async def show(call: ApiRequest) -> ApiReply:
    world, worlds = await _load_world(call), call.service.agent.worlds
    effect, diff = await worlds.effect(world.id), await worlds.diff(world.id)
    view = _build_view(world)
    return encode_reply(WorldChanges(world=view, files=effect.files, conflicts=effect.conflicts, diff=diff))


async def commit(call: ApiRequest) -> ApiReply:
    world = await _load_world(call)
    options = call.service.agent.worlds.make_commit_options(world)
    first = (c.Rename(f"commit {world.label or world.id}"), c.Apply(world=world.id))
    return await call.service.create(call.user, options, first, call.key)


async def rebase(call: ApiRequest) -> ApiReply:
    world = await _load_world(call)
    answer = encode_reply(Rebased(merged=await call.service.agent.worlds.rebase(world.id)))
    await call.remember(answer)
    return answer


async def drop(call: ApiRequest) -> ApiReply:
    """The answer is written down before the world is dropped: a repetition finds no world, and still has its answer."""
    try:
        world = await _load_world(call)
    except Problem as missing:
        first_reply = await call.recall_step("drop")
        if first_reply is None or missing.code != "not_found":
            raise
        return first_reply
    answer = encode_reply(_build_view(world))
    await call.remember_step("drop", answer)
    await call.service.agent.worlds.drop(world.id)
    await call.remember(answer)
    return answer


async def _load_world(call: ApiRequest) -> World:
    """The world of the request. Another user's is not found (S-13); one whose project is no longer open is refused."""
    id = call.get_path_parameter("world")
    world = next((each for each in await call.service.agent.worlds.list() if each.id == id), None)
    if world is None or world.owner != get_owner(call.user):
        raise Problem("not_found", f"There is no world {id[:80]!r}.")
    options = msgspec.structs.replace(call.service.admission.options, root=world.root, root_id=world.root_id)
    await asyncio.to_thread(call.service.admission.use, call.user, options)
    return world


def _build_view(world: World) -> WorldView:
    return msgspec.convert(world, WorldView, from_attributes=True)


TAG = "worlds"
_ONE = "/api/worlds/{world}"
_CODES = ("invalid_input", "root_changed", "tool")
ROUTES = (
    Route("GET", "/api/worlds", listing, "List your worlds, the oldest first.", reply=WorldList),
    Route("GET", _ONE, show, "See what a commit of a world would change now.", reply=WorldChanges, codes=_CODES),
    Route("POST", f"{_ONE}/commit", commit, "Commit a world, in a new chat that tells what became of it.", 201,
          ChatView, body=Nothing, codes=(*_CODES, "config")),
    Route("POST", f"{_ONE}/rebase", rebase, "Rebase a world onto the project.", reply=Rebased, body=Nothing,
          codes=(*_CODES, "conflict")),
    Route("POST", f"{_ONE}/drop", drop, "Remove a world with all its changes.", reply=WorldView, body=Nothing,
          codes=(*_CODES, "world_busy")),
)  # fmt: skip
