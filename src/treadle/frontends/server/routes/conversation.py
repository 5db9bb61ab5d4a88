"""Routes for what is said to a chat: messages, the queue, stops, and more turns. Each is one command."""

from treadle.base.types import make_id
from treadle.frontends.server.replies import ApiReply, Problem, build_accepted, encode_reply
from treadle.frontends.server.routes.chats import prepare_message
from treadle.frontends.server.routing import ApiRequest, Route
from treadle.protocol import commands as c
from treadle.protocol.http_answers import Accepted, QueueView
from treadle.protocol.http_requests import ApplyText, EditMessage, Extension, Nothing, ReplaceMessage, SendMessage


async def carry_out(
    call: ApiRequest, command: c.Command, queue_id: str = "", *, restore: str = "", status: int = 200
) -> ApiReply:
    chat = await call.find_chat()
    make_reply = lambda state: encode_reply(build_accepted(state, queue_id, restore), status)  # noqa: E731
    return await call.service.execute(chat, (command,), call.key, make_reply)


async def send(call: ApiRequest) -> ApiReply:
    body = call.get_body(SendMessage)
    state = await call.load_state()
    if body.expand:
        await call.service.require_work(state)  # before a server of the project is asked for anything
    queue_id = make_id("q")
    text, images = await prepare_message(call, body, state.options)
    return await carry_out(call, c.Send(text, body.delivery, tuple(images), queue_id, call.traceparent), queue_id)


async def edit(call: ApiRequest) -> ApiReply:
    seq = call.get_path_parameter("seq")
    if not (seq.isascii() and seq.isdigit() and len(seq) < 16):
        raise Problem("bad_request", f"{seq[:40]!r} is no seq of a message.")
    body = call.get_body(ReplaceMessage)
    restore = make_id("u") if body.files else ""
    return await carry_out(call, c.Edit(int(seq), body.content, body.files, restore), restore=restore)


async def queue(call: ApiRequest) -> ApiReply:
    return encode_reply(QueueView(queue=(await call.load_state()).queue))


async def edit_queued(call: ApiRequest) -> ApiReply:
    queued = call.get_path_parameter("queued")
    return await carry_out(call, c.EditQueued(queued, call.get_body(EditMessage).content), queued)


async def delete_queued(call: ApiRequest) -> ApiReply:
    return await carry_out(call, c.DeleteQueued(call.get_path_parameter("queued")))


async def promote(call: ApiRequest) -> ApiReply:
    queued = call.get_path_parameter("queued")
    return await carry_out(call, c.Promote(queued), queued)


async def interrupt(call: ApiRequest) -> ApiReply:
    return await carry_out(call, c.Interrupt())


async def compact(call: ApiRequest) -> ApiReply:
    return await carry_out(call, c.Compact())


async def apply(call: ApiRequest) -> ApiReply:
    body = call.get_body(ApplyText)
    command = c.Apply(body.path or "", body.content, body.block or 0, body.patch, command=body.command)
    return await carry_out(call, command)


async def extend(call: ApiRequest) -> ApiReply:
    return await carry_out(call, c.ExtendTurns(call.get_body(Extension).turns))


TAG = "conversation"
_AT = "/api/chats/{chat}"
ROUTES = (
    Route("POST", f"{_AT}/messages", send, "Say something; a busy chat queues it, or is steered.", reply=Accepted,
          body=SendMessage, large=True,
          codes=("archived", "empty", "queue_full", "invalid_input", "config", "root_changed", "tool")),
    Route("PUT", f"{_AT}/messages/{{seq}}", edit,
          "Replace an earlier message and run again from there; with `files` those go back first.", reply=Accepted,
          body=ReplaceMessage,
          codes=("archived", "empty", "no_such_message", "busy", "invalid_input", "config", "root_changed")),
    Route("GET", f"{_AT}/queue", queue, "List the messages that wait.", reply=QueueView),
    Route("PUT", f"{_AT}/queue/{{queued}}", edit_queued, "Change a queued message.", reply=Accepted, body=EditMessage,
          codes=("archived", "empty", "no_such_queued")),
    Route("DELETE", f"{_AT}/queue/{{queued}}", delete_queued, "Take a message out of the queue.", reply=Accepted,
          body=Nothing, codes=("archived", "no_such_queued")),
    Route("POST", f"{_AT}/queue/{{queued}}/promote", promote, "Make a queued message the next one.", reply=Accepted,
          body=Nothing, codes=("archived", "no_such_queued", "invalid_input", "config", "root_changed")),
    Route("POST", f"{_AT}/interrupt", interrupt, "Stop the run.", reply=Accepted, body=Nothing,
          codes=("archived", "not_running")),
    Route("POST", f"{_AT}/compact", compact, "Shorten the conversation now.", reply=Accepted, body=Nothing,
          codes=("archived", "busy", "awaiting_action", "empty")),
    Route("POST", f"{_AT}/apply", apply,
          "Write a fenced block of the last answer, or a text, to a file, or apply a patch; approvals and undo are as "
          "for the model.", reply=Accepted, body=ApplyText, large=True,
          codes=("archived", "busy", "awaiting_action", "no_such_block", "invalid_input", "config", "root_changed")),
    Route("POST", f"{_AT}/extend", extend, "Allow the run more turns.", reply=Accepted, body=Extension,
          codes=("archived", "not_running", "invalid_input", "config", "root_changed")),
)  # fmt: skip
