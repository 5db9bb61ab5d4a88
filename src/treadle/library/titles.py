"""Titles of chats by their own model: one short call beside the next run, recorded with its cost (L-02), so that a
replay has the same title. Until then, and if it fails: the first words of the first message."""

import asyncio

from treadle.base.logs import log_warning
from treadle.base.types import ChatId
from treadle.chat.fold_calls import make_title
from treadle.chat.state import ChatState, is_untitled
from treadle.engine import request as requests
from treadle.engine.deps import Deps
from treadle.engine.side_call import INTERRUPTED, SideCall, estimate_request_usage
from treadle.errors import TreadleError
from treadle.ports.model import ModelRequest
from treadle.protocol.commands import RecordTitle
from treadle.protocol.content import AssistantEntry, UserEntry
from treadle.protocol.options import TitleChoice

SYSTEM = (
    "Write a title for the conversation: at most six words, in the language of the user, about the task. "
    "Answer with the title alone, without quotes and without a full stop."
)
SCRIPTED = ("scripted", "recorded")
_TASK = 2_000
_ANSWER = 1_000


class Titles:
    def __init__(self, deps: Deps, choice: TitleChoice) -> None:
        self._deps, self._choice = deps, choice
        self._calls: dict[ChatId, asyncio.Task[None]] = {}

    def consider(self, chat: ChatId) -> None:
        """The chat is at rest: ask for its title if it has none yet."""
        state = self._deps.log.peek(chat)
        if self._choice == "off" or state is None or chat in self._calls or not is_untitled(state):
            return
        self._calls[chat] = asyncio.create_task(self._make(state), name=f"title of {chat}")
        self._calls[chat].add_done_callback(lambda _: self._calls.pop(chat, None))

    async def finish(self) -> None:
        """Wait for the calls that are under way."""
        await asyncio.gather(*self._calls.values(), return_exceptions=True)

    async def close(self) -> None:
        for call in self._calls.values():
            call.cancel()
        await self.finish()

    async def _make(self, state: ChatState) -> None:
        try:
            await self._ask(state)
        except TreadleError as error:  # a chat without a model, a store that is away, a chat that was deleted
            log_warning("chat %s gets no title: %s", state.chat, error)

    async def _ask(self, state: ChatState) -> None:
        model = requests.find_model(state, self._deps)
        if self._choice == "auto" and model.info.ref.partition(":")[0] in SCRIPTED:
            return
        options = state.options
        task = next((entry.text for entry in state.history if isinstance(entry, UserEntry)), "")
        answers = (entry.text for entry in reversed(state.history.slice(0)) if isinstance(entry, AssistantEntry))
        answer = next((text for text in answers if text), "")
        history = [UserEntry(f"The user wrote:\n{task[:_TASK]}\n\nThe assistant answered:\n{answer[:_ANSWER]}")]
        effort = options.compaction_effort or options.reasoning_effort
        window, temperature = options.context_window, options.temperature
        request = ModelRequest(SYSTEM, history, temperature=temperature, window=window, effort=effort, purpose="title")
        if requests.find_blocking_limit(state, estimate_request_usage(model, request), self._deps) is not None:
            return
        question, log = SideCall(model, request, self._deps), self._deps.log
        try:
            reply = await question.ask()
        except asyncio.CancelledError:
            if question.spent.tokens:  # the part that had arrived is paid for
                cut_off = RecordTitle("", state.title, question.spent, INTERRUPTED)
                await asyncio.shield(log.execute(state.chat, cut_off))
            raise
        title = clean_title(self._deps.redact(reply.text))
        await log.execute(state.chat, RecordTitle(title, state.title, reply.usage, reply.error))


def clean_title(text: str) -> str:
    """A model's answer as a title: its first line without marks around it."""
    line = make_title(text).strip("#*_`\"'“”„«» ")
    return line.removeprefix("Title:").strip().rstrip(".")
