"""Routes for models, for the files of a project and what else can be named in a message, and for who is asking."""

import asyncio
from contextlib import suppress

from msgspec.structs import replace
from starlette.responses import Response

from treadle.adapters.models.registry import ModelRegistry
from treadle.adapters.workspace.file_names import choose_best_names, list_file_names, read_branch
from treadle.errors import InvalidInput, ToolError
from treadle.frontends.server.guard import get_token
from treadle.frontends.server.replies import ApiReply, Problem, encode_reply
from treadle.frontends.server.routing import ApiRequest, Route
from treadle.frontends.server.tokens import LOCAL, TICKET_S
from treadle.library import message_expansion
from treadle.library.model_choice import OfferedModel, make_model_view
from treadle.ports.workspace import Workspace, escape_name
from treadle.protocol import http_answers as answers
from treadle.protocol.http_queries import FileQuery, FindQuery, PathQuery, RootQuery
from treadle.protocol.http_requests import Nothing
from treadle.protocol.options import ChatOptions

BYTES = "application/octet-stream"
MOST_FOUND = 12


async def models(call: ApiRequest) -> ApiReply:
    """The list of every front end: models with a key here, and those of servers on this machine. Asks no provider."""
    default, registry = await call.service.choose_default_model(call.user), call.deps.models
    if not isinstance(registry, ModelRegistry):
        view = make_model_view(OfferedModel(registry.get(default).info))
        return encode_reply(answers.ModelList(models=(view,), default=default))
    views: list[answers.ModelView] = []
    for each in await call.service.agent.list_models():
        with suppress(InvalidInput):  # not open to the user
            call.service.admission.check_model(call.user, each.info.ref)
            views.append(make_model_view(each))
    return encode_reply(answers.ModelList(models=tuple(views), default=default))


async def files(call: ApiRequest) -> ApiReply:
    state = await call.load_state()
    path, workspace = call.get_query(PathQuery).path, await call.service.open_workspace(state)
    listed = await asyncio.to_thread(workspace.listdir, path)
    children = sorted(listed, key=lambda child: (child.kind != "directory", child.name))
    entries: list[answers.FileEntry] = []
    for child in children:
        target = escape_name(child.target) if child.target else ""
        entries.append(answers.FileEntry(name=escape_name(child.name), kind=child.kind, target=target))
    relative_path = await asyncio.to_thread(workspace.to_relative, path)
    return encode_reply(answers.FileList(path=escape_name(relative_path), entries=tuple(entries)))


async def content(call: ApiRequest) -> Response:
    state = await call.load_state()
    most = call.service.limits.file
    workspace = await call.service.open_workspace(state)
    data = await asyncio.to_thread(_read_bytes, workspace, call.get_query(FileQuery).path, most)
    return Response(data, media_type=BYTES, headers={"content-disposition": "attachment"})


def _read_bytes(workspace: Workspace, path: str, most: int) -> bytes:
    if (file_stat := workspace.stat(path)) is None:
        raise ToolError(f"{escape_name(path)} does not exist.")
    if file_stat.kind == "file" and file_stat.size > most:
        raise Problem("too_large", f"{escape_name(path)} is larger than {most >> 20} MiB.")
    return workspace.read_bytes(path, most)


async def commands(call: ApiRequest) -> ApiReply:
    if "chat" in call.request.path_params:
        options = await _load_usable_options(call)
    else:
        options = await _make_options(call, call.get_query(RootQuery).root)
    include_own = call.user == LOCAL
    commands_by_name = await message_expansion.list_commands(call.service.agent, options, include_own=include_own)
    views = (
        answers.CommandView(name=each.name, description=each.description, hint=each.hint)
        for each in commands_by_name.values()
    )
    return encode_reply(answers.CommandList(commands=tuple(views)))


async def _make_options(call: ApiRequest, root: str) -> ChatOptions:
    """The options of a chat that has not begun, in this project or in that of the server."""
    admission = call.service.admission
    base_options = admission.options if call.user == LOCAL else replace(admission.options, root="")
    checked = await asyncio.to_thread(admission.resolve_changes, call.user, {"root": root}) if root else {}
    return replace(base_options, **checked)


async def find_files(call: ApiRequest) -> ApiReply:
    """Files by a few letters of their paths; of a chat in a world, those of the world."""
    query = call.get_query(FindQuery)
    if "chat" in call.request.path_params:
        state = await call.load_state()
        folder = await asyncio.to_thread((await call.service.open_workspace(state)).resolve_directory, ".")
    else:
        folder = (await _make_options(call, query.root)).root
    names = await asyncio.to_thread(list_file_names, folder) if folder else []
    best_names = choose_best_names(names, query.query, MOST_FOUND)
    return encode_reply(answers.FoundFiles(paths=tuple(map(escape_name, best_names))))


async def project(call: ApiRequest) -> ApiReply:
    root = (await _make_options(call, call.get_query(RootQuery).root)).root
    branch = await asyncio.to_thread(read_branch, root) if root else ""
    return encode_reply(answers.ProjectView(root=root, branch=branch))


async def resources(call: ApiRequest) -> ApiReply:
    options, include_own = await _load_usable_options(call), call.user == LOCAL
    fields = ("name", "description", "media_type", "template")
    views = [
        answers.ResourceView(mention=each.typed, **{name: getattr(each, name) for name in fields})
        for each in await message_expansion.list_resources(call.service.agent, options, include_own=include_own)
    ]
    return encode_reply(answers.ResourceList(resources=tuple(views)))


async def _load_usable_options(call: ApiRequest) -> ChatOptions:
    """The options of the chat, whose project its owner may use now."""
    state = await call.load_state()
    await call.service.require_work(state)
    return state.options


async def me(call: ApiRequest) -> ApiReply:
    options = call.service.admission.options
    return encode_reply(answers.Me(user=call.user, root=options.root if call.user == LOCAL else "", mode=options.mode))


async def ticket(call: ApiRequest) -> ApiReply:
    new_ticket = call.service.tokens.make_ticket(get_token(call.request))
    return encode_reply(answers.Ticket(ticket=new_ticket, expires_s=TICKET_S))


TAG = "surroundings"
_CODES = ("tool", "outside_root", "root_changed", "invalid_input")
ROUTES = (
    Route("GET", "/api/models", models, "List the models that the server knows.", reply=answers.ModelList),
    Route("GET", "/api/chats/{chat}/files", files, "List a folder of the chat's project.", reply=answers.FileList,
          query=PathQuery, codes=_CODES),
    Route("GET", "/api/chats/{chat}/files/content", content, "Read a file of the chat's project.", query=FileQuery,
          media_type=BYTES, codes=(*_CODES, "too_large")),
    Route("GET", "/api/chats/{chat}/commands", commands,
          "List what can be typed behind a slash in messages with `expand`: own commands, and the prompts that the MCP "
          "servers of the chat are known to have.", reply=answers.CommandList, codes=("root_changed", "invalid_input")),
    Route("GET", "/api/chats/{chat}/resources", resources,
          "List what can be attached as `@server:uri` in messages with `expand`.", reply=answers.ResourceList,
          codes=("root_changed", "invalid_input")),
    Route("GET", "/api/commands", commands, "List the same commands for a chat that has not begun.",
          reply=answers.CommandList, query=RootQuery, codes=("root_changed", "invalid_input")),
    Route("GET", "/api/chats/{chat}/files/find", find_files, "Find files of the chat's project by a few letters.",
          reply=answers.FoundFiles, query=FindQuery, codes=_CODES),
    Route("GET", "/api/files/find", find_files, "Find files of the project of a chat that has not begun.",
          reply=answers.FoundFiles, query=FindQuery, codes=("invalid_input",)),
    Route("GET", "/api/project", project, "See in which project and on which branch a chat would begin.",
          reply=answers.ProjectView, query=RootQuery, codes=("invalid_input",)),
    Route("GET", "/api/me", me, "See whose token this is.", reply=answers.Me),
    Route("POST", "/api/tickets", ticket, "Get a ticket for one stream of a browser, good once and for a minute.",
          reply=answers.Ticket, body=Nothing),
)  # fmt: skip
