"""The capability ladder (M-07): any model can call tools, by its protocol (`native`), in its text (`text`), or it
cannot and just answers (`plain`). A Ladder stands around a model and is one itself.

The rung is what the request says; else what is known of the model; else `native` until the provider refuses the
`tools` field: then the call is made again at once, one rung down, and the rung is remembered. Which rung it is, the
user is told when it is not the highest.

Small models write calls into their text even when they were given tools natively. On the native rung such a call is
taken for one if nothing else can be meant: the markup is one that models are trained on (never bare or fenced JSON),
it stands in no code span and no fenced block, every name is that of a tool of the request, and the answer has no
native call. Otherwise the text stays as it is, to the letter.
"""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Literal
from weakref import WeakKeyDictionary, WeakSet

from msgspec.structs import replace

from treadle.adapters.models.answers import NativeAnswer, PlainAnswer, TextAnswer
from treadle.adapters.models.endings import EndingCheck
from treadle.base.types import CallKey
from treadle.chat.completion import MARKER_TEXT
from treadle.errors import ModelError
from treadle.ports.model import Memo, Model, ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, UserEntry
from treadle.protocol.deltas import Delta, NoticeDelta
from treadle.protocol.options import Rung
from treadle.protocol.tools import ToolSpec

_BELOW: dict[Rung, str] = {
    "text": "{ref} calls tools in its text instead of by its protocol; expect more mistakes",
    "plain": "{ref} runs without tools: it can only answer",
}
_TOOLS = r"(?i)\btools?\b|\btool[_ -]?(?:use|call|choice)|\bfunctions?\b|function[_ -]?call"
_REFUSED = (
    r"(?i)(?:n't|not|no longer) (?:be )?(?:support|enabled|available|permitted|allowed|implement)|unsupported"
    r"|unknown|unrecognized|unexpected|requires --|no endpoints found|extra inputs"
)
_ANOTHER_FAULT = r"(?i)schema|tools?[.\[]\d|function\.(?:name|param)|properties"


def refuses_tools(error: ModelError) -> bool:
    """True if the provider says that this model takes no tools, as opposed to these tools, or to a call that the model
    wrote badly: there the words may be the model's own."""
    if error.kind == "cut_stream":
        return False
    if error.kind != "bad_request" and error.status not in (500, 501):  # llama.cpp calls it a fault of its own
        return False
    error_text = str(error)
    return bool(re.search(_TOOLS, error_text) and re.search(_REFUSED, error_text)) and not re.search(
        _ANOTHER_FAULT, error_text
    )


class Ladder:
    """A model on the highest rung that it can stand on. `hint` is what someone knows better than the catalogue."""

    def __init__(self, model: Model, hint: Rung | Literal[""] = "") -> None:
        self.inner = model
        self._rung: Rung | Literal[""] = hint
        self._told: WeakSet[Memo] = WeakSet()
        self._retold: WeakKeyDictionary[Memo, Retelling] = WeakKeyDictionary()
        self._prompts: dict[tuple[int, ...], tuple[tuple[ToolSpec, ...], str]] = {}

    def __repr__(self) -> str:
        return f"Ladder({self.inner!r})"

    @property
    def info(self) -> ModelInfo:
        """The current facts about the model."""
        info = self.inner.info
        return replace(info, native_tools=False) if self._rung == "text" and info.native_tools else info

    async def close(self) -> None:
        await self.inner.close()

    def rung(self, request: ModelRequest) -> Rung:
        return request.rung or self._rung or ("native" if self.inner.info.native_tools else "text")

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        rung = self.rung(request)
        while True:
            if rung != "native" and request.purpose == "turn" and request.tools and request.memo not in self._told:
                yield [NoticeDelta("rung", _BELOW[rung].format(ref=self.info.ref))]
            sent_request = request if rung == "native" else self._retell(request, rung)
            answer = self._answer(request, rung)
            ending = EndingCheck(self.info.ref, marks_calls=rung == "native")
            has_output = False
            try:
                async with aclosing(self.inner.stream(sent_request)) as stream:  # type: ignore[type-var]
                    async for deltas in stream:
                        has_output = has_output or any(not isinstance(delta, NoticeDelta) for delta in deltas)
                        batch = answer.take(deltas)
                        yield ending.watch(batch) if request.purpose == "turn" else batch
                break
            except ModelError as error:
                if rung != "native" or has_output or request.rung or not request.tools or not refuses_tools(error):
                    raise
            rung = self._rung = "text"
        if rung != "native":
            self._told.add(request.memo)

    def _answer(self, request: ModelRequest, rung: Rung) -> PlainAnswer:
        if rung == "native" and request.tools:
            return NativeAnswer(self.info.ref, request.tools)
        return TextAnswer(self.info.ref, request.tools) if rung == "text" else PlainAnswer()

    def _retell(self, request: ModelRequest, rung: Rung) -> ModelRequest:
        """The request in words that need no tools."""
        retelling = self._retold.get(request.memo)
        if retelling is None:
            retelling = self._retold[request.memo] = Retelling()
        prompt = self._prompt(request.tools) if rung == "text" else ""
        marker = MARKER_TEXT if rung == "text" and request.marker else ""
        system = "\n".join(part for part in (request.system, prompt, marker) if part)
        # A server that holds the model to a schema would not let it write calls into its text.
        schema = None if rung == "text" and request.tools else request.output_schema
        entries = retelling.entries(request.entries)
        return replace(request, system=system, entries=entries, tools=(), rung="", output_schema=schema)

    def _prompt(self, tools: tuple[ToolSpec, ...]) -> str:
        key = tuple(map(id, tools))
        cached = self._prompts.get(key)
        if cached is None:
            from treadle.adapters.models.text_calls.prompt import tools_text

            if len(self._prompts) >= 64:
                self._prompts.clear()
            cached = self._prompts[key] = (
                tools,
                tools_text(tools),
            )  # the tools are held, so that their ids stay theirs
        return cached[1]


class Retelling:
    """A conversation whose calls and results are text. Each entry is retold once and then stays the same object, so
    that its bytes are kept (law 13)."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._retold: list[Entry] = []
        self._names: dict[CallKey, str] = {}

    def entries(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        known_count = len(self._entries)
        if self._entries != entries[:known_count]:
            self._entries, self._retold, self._names, known_count = [], [], {}, 0
        for entry in entries[known_count:]:
            self._entries.append(entry)
            self._retold.append(self._retell(entry))
        return list(self._retold)

    def _retell(self, entry: Entry) -> Entry:
        from treadle.adapters.models.text_calls.prompt import calls_text, results_text

        match entry:
            case AssistantEntry(calls=calls) if calls:
                self._names = {call.call: call.name for call in calls}
                return replace(entry, text=calls_text(entry.text, calls), calls=())
            case ResultsEntry(results=results):
                return UserEntry(results_text(results, self._names), source="results")
            case _:
                return entry
