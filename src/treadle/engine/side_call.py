"""Model calls that are no turn: a summary, a compaction, what a tool asks in the middle of its call (E-01). Recorded
with their purpose and counted apart (L-02)."""

import asyncio
import contextlib
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from treadle.base.types import CallKey
from treadle.chat.assembly import Assembler
from treadle.chat.history import tokens, weigh
from treadle.engine.deps import Deps
from treadle.engine.request import TYPICAL_OUTPUT, find_model, fitted, over, priced
from treadle.engine.silence_timeout import SilenceTimeout, delay
from treadle.engine.tenure import Tenure
from treadle.errors import ConfigError, ModelError, StoreError, ToolError, TreadleError
from treadle.ports.model import Model, ModelRequest
from treadle.ports.toolset import AskModel
from treadle.protocol.content import Usage
from treadle.protocol.events import ModelCall

ATTEMPTS = 3
INTERRUPTED = "interrupted"


class SideReply(msgspec.Struct, frozen=True):
    """The result of a side call: a text, or the reason why there is none; and the usage in both cases."""

    text: str
    usage: Usage
    error: str = ""


class SideCall:
    """One question to a model, asked again after passing faults. `spent` is what it has cost so far, also when it was
    cancelled."""

    def __init__(self, model: Model, request: ModelRequest, deps: Deps) -> None:
        self._model = model
        self._request = fitted(request, tokens(_measure_request(request)), model.info)
        self._deps = deps
        self._settled = Usage()
        self._assembler: Assembler | None = None

    @property
    def spent(self) -> Usage:
        assembler = self._assembler
        if assembler is None or not (assembler.text or assembler.usage is not None):
            return self._settled
        return self._settled + _cost(self._model, self._request, assembler.usage, assembler.text)

    async def ask(self) -> SideReply:
        deps = self._deps
        for failures in range(ATTEMPTS):
            try:
                return SideReply(await self._listen(), self.spent)
            except ModelError as fault:
                wait = delay(fault, failures, deps.chance(), deps.retry_base_s)
                if wait is None or failures == ATTEMPTS - 1:
                    return SideReply("", self.spent, str(fault))
                await deps.clock.sleep(wait)
            except TreadleError as error:
                return SideReply("", self.spent, str(error))
            except Exception as error:  # a fault of an adapter: what had come by then was paid for
                return SideReply("", self.spent, f"{type(error).__name__}: {error}")
        return SideReply("", self.spent, "The model could not be reached.")

    async def _listen(self) -> str:
        self._settled, self._assembler = self.spent, None
        assembler = Assembler(0)
        silence = SilenceTimeout(self._deps.silence_s, self._deps.answer_s)
        async with silence, aclosing(self._model.stream(self._request)) as stream:  # type: ignore[type-var]
            async for deltas in stream:
                self._assembler = assembler
                silence.hear(deltas)
                assembler.feed(deltas)
        self._assembler = assembler
        answer = assembler.finish(self._model.info.ref)
        if answer.usage is None:  # an answer without a word costs its question
            self._settled += _cost(self._model, self._request, None, answer.text)
            self._assembler = None
        return answer.text.strip()


def expected(model: Model, request: ModelRequest) -> Usage:
    """Return the estimated usage of the call, for the budget (L-11)."""
    usage = Usage(tokens(_measure_request(request)), TYPICAL_OUTPUT, estimated=True)
    return priced(usage, model.info)


def _measure_request(request: ModelRequest) -> int:
    return sum(weigh(entry) for entry in request.entries) + len(request.system)


def _cost(model: Model, request: ModelRequest, usage: Usage | None, text: str) -> Usage:
    if usage is None:
        usage = Usage(tokens(_measure_request(request)), tokens(len(text)), estimated=True)
    return priced(usage, model.info)


def asking(tenure: Tenure, call: CallKey, deps: Deps) -> AskModel:
    """A tool asks the chat's model: within the chat's budget, and recorded at once."""

    async def ask_model(base_request: ModelRequest) -> str:
        state = tenure.state
        try:
            model = find_model(state, deps)
        except ConfigError as error:
            raise ToolError(str(error)) from error
        limit = min(base_request.max_tokens or model.info.max_output, model.info.max_output)
        options = state.options
        request = replace(
            base_request,
            max_tokens=limit,
            window=options.context_window,
            effort=options.reasoning_effort,
            purpose="sampling",
        )
        reserved = expected(model, request)
        if over(state, sum(tenure.reserved, reserved), deps) is not None:
            raise ToolError("The budget does not allow another call of the model.")
        tenure.reserved.append(reserved)
        question = SideCall(model, request, deps)
        try:
            reply = await question.ask()
            await tenure.record(ModelCall("sampling", reply.usage, reply.text, reply.error, call))
        except asyncio.CancelledError:
            if question.spent.tokens:
                with contextlib.suppress(StoreError):
                    cut_off = ModelCall("sampling", question.spent, error=INTERRUPTED, call=call)
                    await asyncio.shield(tenure.record(cut_off))
            raise
        finally:
            tenure.reserved.remove(reserved)
        if reply.error:
            raise ToolError(reply.error)
        return reply.text

    return ask_model
