"""Model calls that are no turn: a summary, a compaction, what a tool asks in the middle of its call (E-01). Recorded
with their purpose and counted apart (L-02)."""

from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from treadle.chat.assembly import Assembler
from treadle.chat.history import tokens, weigh
from treadle.engine.deps import Deps
from treadle.engine.request import TYPICAL_OUTPUT, find_model, fitted, over, priced
from treadle.engine.silence_timeout import SilenceTimeout, delay
from treadle.engine.tenure import Tenure
from treadle.errors import ConfigError, ModelError, ToolError, TreadleError
from treadle.ports.model import Model, ModelRequest
from treadle.ports.toolset import AskModel
from treadle.protocol.content import Usage
from treadle.protocol.events import ModelCall
from treadle.types import CallKey

ATTEMPTS = 3


class SideReply(msgspec.Struct, frozen=True):
    """What came of it: a text, or why there is none; and what it cost either way."""

    text: str
    usage: Usage
    error: str = ""


async def ask(model: Model, request: ModelRequest, deps: Deps) -> SideReply:
    """Ask once, and again after passing faults."""
    cost = Usage()
    request = fitted(request, tokens(_sent(request)), model.info)
    for failures in range(ATTEMPTS):
        assembler = Assembler(0)
        try:
            silence = SilenceTimeout(deps.silence_s, deps.answer_s)
            async with silence, aclosing(model.stream(request)) as stream:  # type: ignore[type-var]
                async for deltas in stream:
                    silence.hear(deltas)
                    assembler.feed(deltas)
            answer = assembler.finish(model.info.ref)
            return SideReply(answer.text.strip(), cost + _cost(model, request, answer.usage, answer.text))
        except ModelError as fault:
            if assembler.text or assembler.usage is not None:
                cost += _cost(model, request, assembler.usage, assembler.text)
            wait = delay(fault, failures, deps.chance(), deps.retry_base_s)
            if wait is None or failures == ATTEMPTS - 1:
                return SideReply("", cost, str(fault))
            await deps.clock.sleep(wait)
        except TreadleError as error:
            return SideReply("", cost, str(error))
    return SideReply("", cost, "The model could not be reached.")


def expected(model: Model, request: ModelRequest) -> Usage:
    """What the call will probably cost, for the budget (L-11)."""
    usage = Usage(tokens(_sent(request)), TYPICAL_OUTPUT, estimated=True)
    return priced(usage, model.info)


def _sent(request: ModelRequest) -> int:
    return sum(weigh(entry) for entry in request.entries) + len(request.system)


def _cost(model: Model, request: ModelRequest, usage: Usage | None, text: str) -> Usage:
    if usage is None:
        usage = Usage(tokens(_sent(request)), tokens(len(text)), estimated=True)
    return priced(usage, model.info)


def asking(tenure: Tenure, call: CallKey, deps: Deps) -> AskModel:
    """A tool asks the chat's model: within the chat's budget, and recorded at once."""

    async def ask_model(wanted: ModelRequest) -> str:
        state = tenure.state
        try:
            model = find_model(state, deps)
        except ConfigError as error:
            raise ToolError(str(error)) from error
        limit = min(wanted.max_tokens or model.info.max_output, model.info.max_output)
        request = replace(wanted, max_tokens=limit, window=state.options.context_window, purpose="sampling")
        reserved = expected(model, request)
        if over(state, sum(tenure.reserved, reserved), deps) is not None:
            raise ToolError("The budget does not allow another call of the model.")
        tenure.reserved.append(reserved)
        try:
            reply = await ask(model, request, deps)
            await tenure.record(ModelCall("sampling", reply.usage, reply.text, reply.error, call))
        finally:
            tenure.reserved.remove(reserved)
        if reply.error:
            raise ToolError(reply.error)
        return reply.text

    return ask_model
