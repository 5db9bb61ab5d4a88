"""The capability ladder (M-07): any model can call tools, by its protocol (`native`), in its text (`text`), or it
cannot and just answers (`plain`). A Ladder stands around a model and is one itself. It puts an answer right as it
comes: calls and thinking that were written into the text become calls and thinking (M-10), and an answer that was cut
off, filtered or empty gets a notice that says so. The notice comes from here and not from the engine, so that a replay
takes it from the log.

The rung is what the request says; else what is known of the model; else `native` until the provider refuses the
`tools` field: then the call is made again at once, one rung down, and the rung is remembered. The user is told the rung
if it is not the highest.

On the native rung a call in the text is taken for one if nothing else can be meant: the markup is one that models are
trained on (never bare or fenced JSON), it stands in no code span and no fenced block, every name is that of a tool of
the request, and the answer has no native call. Otherwise the text stays as it is, to the letter."""

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Literal
from weakref import WeakKeyDictionary, WeakSet

from msgspec.structs import replace

from treadle.adapters.models.thinking import TextThinking
from treadle.adapters.models.wire.json import clean_tool_name, encode_json, ensure_json_object
from treadle.base.types import CallKey
from treadle.chat.completion import MARKER_TEXT
from treadle.errors import ModelError
from treadle.ports.model import Memo, Model, ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, ToolRequest, ToolResult, UserEntry
from treadle.protocol.deltas import CallDelta, Delta, FinishDelta, NoticeDelta, TextDelta, ThinkingDelta
from treadle.protocol.options import Rung
from treadle.protocol.tools import ToolSpec

if TYPE_CHECKING:
    from treadle.adapters.models.text_calls import Scanner, TextCall


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


def is_tool_refusal(error: ModelError) -> bool:
    """True if this model takes no tools, as opposed to these tools, or to a call that the model wrote badly."""
    if error.kind == "cut_stream" or (error.kind != "bad_request" and error.status not in (500, 501)):
        return False  # llama.cpp answers 500 or 501: it calls the refusal a fault of its own
    text = str(error)
    return bool(re.search(_TOOLS, text) and re.search(_REFUSED, text) and not re.search(_ANOTHER_FAULT, text))


class Ladder:
    """A model on the highest rung that it can stand on. `hint` is what someone knows better than the catalogue."""

    def __init__(self, model: Model, hint: Rung | Literal[""] = "") -> None:
        self.inner = model
        self._rung: Rung | Literal[""] = hint
        self._told: WeakSet[Memo] = WeakSet()
        self._retold: WeakKeyDictionary[Memo, Retelling] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Ladder({self.inner!r})"

    @property
    def info(self) -> ModelInfo:
        info = self.inner.info
        return replace(info, native_tools=False) if self._rung == "text" and info.native_tools else info

    async def close(self) -> None:
        await self.inner.close()

    def choose_rung(self, request: ModelRequest) -> Rung:
        return request.rung or self._rung or ("native" if self.inner.info.native_tools else "text")

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        rung = self.choose_rung(request)
        while True:
            if rung != "native" and request.purpose == "turn" and request.tools and request.memo not in self._told:
                yield [NoticeDelta("rung", _BELOW[rung].format(ref=self.info.ref))]
            sent_request = request if rung == "native" else self._retell(request, rung)
            answer = PlainAnswer()
            if rung == "text":
                answer = TextAnswer(self.info.ref, request.tools)
            elif rung == "native" and request.tools:
                answer = NativeAnswer(self.info.ref, request.tools)
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
                if rung != "native" or has_output or request.rung or not request.tools or not is_tool_refusal(error):
                    raise
            rung = self._rung = "text"
        if rung != "native":
            self._told.add(request.memo)

    def _retell(self, request: ModelRequest, rung: Rung) -> ModelRequest:
        retelling = self._retold.setdefault(request.memo, Retelling())
        prompt = retelling.describe(request.tools) if rung == "text" else ""
        marker = MARKER_TEXT if rung == "text" and request.marker else ""
        system = "\n".join(part for part in (request.system, prompt, marker) if part)
        # A server that holds the model to a schema would not let it write calls into its text.
        schema = None if rung == "text" and request.tools else request.output_schema
        entries = retelling.retell(request.entries)
        return replace(request, system=system, entries=entries, tools=(), rung="", output_schema=schema)


class Retelling:
    """Calls and results as text. Each entry is retold once and stays the same object, its bytes kept (law 13)."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._retold: list[Entry] = []
        self._names: dict[CallKey, str] = {}
        self._tools: tuple[ToolSpec, ...] = ()
        self._prompt = ""

    def describe(self, tools: tuple[ToolSpec, ...]) -> str:
        if tools != self._tools:
            self._tools, self._prompt = tools, format_tools(tools)
        return self._prompt

    def retell(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        known_count = len(self._entries)
        if self._entries != entries[:known_count]:
            self._entries, self._retold, self._names, known_count = [], [], {}, 0
        self._entries += entries[known_count:]
        self._retold += map(self._retell_entry, entries[known_count:])
        return list(self._retold)

    def _retell_entry(self, entry: Entry) -> Entry:
        match entry:
            case AssistantEntry(calls=calls) if calls:
                self._names = {call.call: call.name for call in calls}
                return replace(entry, text=format_calls(entry.text, calls), calls=())
            case ResultsEntry(results=results):
                return UserEntry(format_results(results, self._names), source="results")
            case _:
                return entry


_MAYBE_MARKUP = re.compile(r"<(?=[a-z|\uff5c]|\Z)|\[(?=T|\Z)|\](?=<\]|<?\Z)|[`~]")


class PlainAnswer:
    """An answer of text and thinking only. `take` holds text that is undecided for a later call."""

    def __init__(self) -> None:
        self._thinking: TextThinking | None = TextThinking()

    def take(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        if self._thinking is not None:
            deltas = self._thinking.take(deltas)
            if self._thinking.over:
                self._thinking = None
        return deltas


class NativeAnswer(PlainAnswer):
    """Text passes until markup that could be a call; from there on it is held, and interpreted at the end."""

    def __init__(self, ref: str, tools: Sequence[ToolSpec]) -> None:
        super().__init__()
        self._ref, self._tools = ref, tools
        self._scanner: Scanner | None = None
        self._called = False

    def take(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        if self._thinking is not None:
            deltas = super().take(deltas)
        if self._scanner is None and self._is_plain(deltas):
            return deltas
        from treadle.adapters.models.text_calls import Scanner

        scanner = self._scanner = self._scanner or Scanner(marked_only=True, freeze=True)
        out: list[Delta] = []
        for delta in deltas:
            if type(delta) is TextDelta:
                out += _make_text_deltas(scanner.feed(delta.text))
                continue
            self._called = self._called or type(delta) is CallDelta
            if type(delta) is FinishDelta:
                call_deltas = () if self._called else self._salvage_calls(scanner)
                out += call_deltas or _make_text_deltas(scanner.held_text)
                delta = _correct_finish(delta, bool(call_deltas))
                scanner = self._scanner = Scanner(marked_only=True, freeze=True)
            out.append(delta)
        return out

    def _is_plain(self, deltas: Sequence[Delta]) -> bool:
        """True if the text has no markup. It nearly never has any, and this runs for each read."""
        for delta in deltas:
            if type(delta) is TextDelta:
                if _MAYBE_MARKUP.search(delta.text) is not None:
                    return False
            elif type(delta) is CallDelta:
                self._called = True
        return True

    def _salvage_calls(self, scanner: "Scanner") -> Sequence[Delta]:
        """Return the held text with its calls as calls. Empty if it has no call, or if one names an unknown tool."""
        from treadle.adapters.models.text_calls import Scanner

        tool_names = {tool.name for tool in self._tools}
        reading = Scanner(tool_names, marked_only=True)
        visible_text = reading.feed(scanner.held_text)
        tail = reading.end()
        if not tail.calls or any(call.name not in tool_names for call in tail.calls):
            return ()
        notice = f"{self._ref} wrote a tool call into its text; it was taken for the call that it is"
        return [
            NoticeDelta("text_call", notice),
            *_make_text_deltas(visible_text + tail.text),
            *_make_call_deltas(tail.calls),
        ]


class TextAnswer(PlainAnswer):
    """Without tools there is nothing to call, but a model that called some before may go on: then its markup goes."""

    def __init__(self, ref: str, tools: Sequence[ToolSpec]) -> None:
        from treadle.adapters.models.text_calls import Scanner

        super().__init__()
        self._ref = ref
        self._calls = bool(tools)
        self._scanner = Scanner({tool.name for tool in tools})

    def take(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        scanner = self._scanner
        out: list[Delta] = []
        for delta in super().take(deltas):
            if type(delta) is TextDelta:
                out += _make_text_deltas(scanner.feed(delta.text))
            elif type(delta) is FinishDelta:
                tail = scanner.end()
                out += _make_text_deltas(tail.text)
                if scanner.dangling:
                    out.append(NoticeDelta("text_call", f"the answer of {self._ref} ended in half a tool call"))
                if self._calls:
                    out += _make_call_deltas(tail.calls)
                out.append(_correct_finish(delta, self._calls and bool(tail.calls)))
            else:
                out.append(delta)
        return out


def _make_text_deltas(text: str) -> Sequence[Delta]:
    return (TextDelta(text),) if text else ()


def _make_call_deltas(calls: "Iterable[TextCall]") -> Iterator[Delta]:
    for index, call in enumerate(calls):
        yield CallDelta(None, index, call.name, encode_json(call.arguments).decode(), call.repaired)


def _correct_finish(finish: FinishDelta, has_calls: bool) -> FinishDelta:
    return replace(finish, reason="tool_calls") if has_calls and finish.reason == "stop" else finish


_MISSING = {
    "length": "reached its output limit before its answer was complete",
    "content_filter": "was stopped by its provider's content filter; its answer is not complete",
    "refusal": "declined to answer",
    "repetition": "was stopped by its server because it repeated itself; its answer is not complete",
}


class EndingCheck:
    """Watches one answer and adds to its end what is missing from it. With `marks_calls` it marks the call that was
    being written when the room ran out: its arguments may look complete and are not."""

    def __init__(self, ref: str, *, marks_calls: bool) -> None:
        self._ref, self._marks_calls = ref, marks_calls
        self._has_text = self._has_calls = self._ends_in_call = False
        self._has_arguments = False  # True if any arguments of the last call have arrived
        self._is_told = False  # True if the adapter itself reported the missing part

    def watch(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        ending: FinishDelta | None = None
        for delta in deltas:
            if type(delta) is TextDelta:
                self._has_text = self._has_text or not delta.text.isspace()
                self._ends_in_call = False
            elif type(delta) is CallDelta:
                has_earlier = self._has_arguments and not delta.name and not delta.id
                self._has_arguments = has_earlier or bool(delta.arguments.strip())
                self._has_calls = self._ends_in_call = True
            elif type(delta) is ThinkingDelta:
                self._ends_in_call = False
            elif type(delta) is FinishDelta:
                ending = delta
            elif type(delta) is NoticeDelta and delta.kind in ("incomplete", "paused"):
                self._is_told = True
        if ending is None:
            return deltas
        missing: list[Delta] = []
        if ending.reason == "length" and self._ends_in_call and self._marks_calls:
            # Without a fragment the arguments would be taken for the empty object, and a call without any would run.
            missing.append(CallDelta(arguments="" if self._has_arguments else "{", repaired=True))
        if ending.reason in _MISSING and not self._is_told:
            missing.append(NoticeDelta("incomplete", f"{self._ref} {_MISSING[ending.reason]}"))
        elif not (self._is_told or self._has_text or self._has_calls):
            missing.append(NoticeDelta("empty_answer", f"{self._ref} ended its turn without an answer"))
        at = len(deltas) - 1 - deltas[::-1].index(ending)
        return [*deltas[:at], *missing, *deltas[at:]]


_TOOLS_PROMPT = """\
# Tools

You can call tools. To call one, write its name and its arguments as one JSON object between two tags, like this:

<tool_call>
{"name": "%(name)s", "arguments": %(arguments)s}
</tool_call>

- Inside the tags stands nothing but valid JSON: double quotes, newlines in strings as \\n, quotes in strings as \\".
- For several calls, write several such blocks, one after the other.
- When you have written your calls, stop. The results come to you in <tool_response> blocks; never write these.
- When no call is needed, answer in plain text without such a block.

The tools are, one a line, with the JSON Schema of their arguments:

<tools>
%(tools)s
</tools>
"""


def format_tools(tools: Sequence[ToolSpec]) -> str:
    """The part of the system text that describes the tools. The same tools give the same bytes (L-21)."""
    if not tools:
        return ""
    lines = (
        encode_json({"name": tool.name, "description": tool.description, "parameters": tool.parameters}).decode()
        for tool in tools
    )
    # The example has the arguments of the first tool that it must have.
    properties, required = tools[0].parameters.get("properties"), tools[0].parameters.get("required")
    example: dict[str, object] = {}
    if isinstance(properties, dict) and isinstance(required, list):
        example = {name: _make_sample(properties.get(name)) for name in required if isinstance(name, str)}
    arguments = encode_json(example).decode()
    return _TOOLS_PROMPT % {"name": tools[0].name, "arguments": arguments, "tools": "\n".join(lines)}


def _make_sample(schema: object) -> object:
    kind = schema.get("type") if isinstance(schema, dict) else None
    samples: dict[str, object] = {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
    return samples.get(kind, "…") if isinstance(kind, str) else "…"


def format_calls(text: str, calls: Sequence[ToolRequest]) -> str:
    """An earlier answer of the model, with its calls as it should have written them."""
    blocks = (
        f'<tool_call>\n{{"name": "{clean_tool_name(call.name)}", '
        f'"arguments": {ensure_json_object(call.arguments)}}}\n</tool_call>'
        for call in calls
    )
    return "\n".join((text, *blocks) if text else blocks)


def format_results(results: Sequence[ToolResult], names: Mapping[CallKey, str]) -> str:
    """Return all results of a turn as one message. The text of a result cannot end its own block."""
    blocks = []
    for result in results:
        name, failed = clean_tool_name(names.get(result.call, "")), "" if result.success else ' status="error"'
        text = result.text.replace("</tool_response", "<\\/tool_response")
        blocks.append(f'<tool_response name="{name}"{failed}>\n{text}\n</tool_response>')
    return "\n".join(blocks)
