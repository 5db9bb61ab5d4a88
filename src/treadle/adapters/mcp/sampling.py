"""A server asks the chat's model (sampling): the question to a person whether it may, what the model is asked, and what
the server is told. The model sees nothing of the chat, and the server's words are all that it is told."""

import mcp_types as types

from treadle.adapters.mcp.content import render_content
from treadle.adapters.mcp.elicitation import DECLINE, ServerQuestion
from treadle.base.inert import inert
from treadle.errors import ToolError
from treadle.ports.model import ModelRequest
from treadle.ports.toolset import Invocation
from treadle.protocol.content import AssistantEntry, UserEntry

ALLOW = "allow"
_SHOWN = 4_000
"""Characters of what is asked that a person is shown."""
_NOT_ALLOWED = "The user does not allow it to ask the model."

Reply = types.CreateMessageResult | types.ErrorData


def build_question(server: str, params: types.CreateMessageRequestParams, again: str = "") -> ServerQuestion:
    """The question to the person whose model it is."""
    messages = [("it is told", params.system_prompt or ""), *((each.role, _text(each)) for each in params.messages)]
    text = inert("\n".join(f"{role}: {words}" for role, words in messages if words))
    excerpt = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}\n[{len(text) - _SHOWN:,} characters more]"
    head = f"{again}\n" if again else ""
    return ServerQuestion(
        f"{head}The MCP server {server} wants to ask your model, at your cost:\n{excerpt}", (ALLOW, DECLINE)
    )


async def reply(params: types.CreateMessageRequestParams, answer: str, invocation: Invocation) -> Reply | str:
    """Return the reply for the server after a person's answer, or the reason why the answer is invalid."""
    choice = answer.strip().lower()
    if choice == ALLOW:
        return await sampled(params, invocation)
    return refusal() if choice in (DECLINE, "cancel") else f"Answer {ALLOW} or {DECLINE}."


def refusal() -> types.ErrorData:
    return types.ErrorData(code=types.INVALID_REQUEST, message=_NOT_ALLOWED)


async def sampled(params: types.CreateMessageRequestParams, invocation: Invocation) -> Reply:
    assert invocation.ask_model is not None
    messages = [(each.role, _text(each)) for each in params.messages]
    request = ModelRequest(
        params.system_prompt or "",
        [UserEntry(text) if role == "user" else AssistantEntry(0, text) for role, text in messages],
        temperature=params.temperature,
        max_tokens=params.max_tokens,
    )
    try:
        text = await invocation.ask_model(request)
    except ToolError as error:
        return types.ErrorData(code=types.INTERNAL_ERROR, message=str(error))
    content = types.TextContent(type="text", text=text)
    model = invocation.options.model or "unknown"
    return types.CreateMessageResult(role="assistant", content=content, model=model, stop_reason="endTurn")


def _text(message: types.SamplingMessage) -> str:
    """Pictures and sounds are told of, and not shown."""
    visible_types = (types.TextContent, types.ImageContent, types.AudioContent)
    return render_content([each for each in message.content_as_list if isinstance(each, visible_types)]).text
