"""Reads the call that begins at a position of a text (P-05): one that markup shows, in the notation of each family of
models, or one that nothing but its shape and the name of a known tool shows, in a fenced block of its own or bare. The
result never depends on how the text was split: it is undecided if more text could change it.

The scanner decides where a call may begin; this module does not search."""

import re
from collections.abc import Callable

from treadle.adapters.models.text_calls import notations, shapes
from treadle.adapters.models.text_calls.reader import read

_Reader = Callable[[shapes.Source, int], shapes.Result]

_FENCE = re.compile(r"```\w{0,20}[ \t]{0,8}\n?")
_HEAD = re.compile(rf"({shapes.NAME.pattern})\s{{0,40}}(?=[{{<(])")
_MISTRAL = re.compile(rf"({shapes.NAME.pattern})(?:\[CALL_ID\][\w-]{{0,64}})?(?:\[ARGS\])?\s{{0,40}}(?={{)")
_SECTION_NAME = rf"({shapes.NAME.pattern})\s{{0,8}}(?:{shapes.SEPARATOR})?\s{{0,40}}"
_SECTION_HEAD = rf"(?:function\s{{0,8}}(?:{shapes.SEPARATOR})\s{{0,8}})?{_SECTION_NAME}"
_SECTION = re.compile(rf"{_SECTION_HEAD}(```\w{{0,20}}\s{{0,8}})?(?={{)")
_GEMMA = re.compile(rf"call:({shapes.NAME.pattern})\s{{0,40}}(?={{)")

# A call may have no arguments, and then some models write nothing where they would stand. What ends the call must have
# come: else they may be yet to come, or were cut off.
_TAG_EMPTY = re.compile(rf"({shapes.NAME.pattern})\s{{0,40}}(?={shapes.ENDING.pattern})")
_MISTRAL_EMPTY = re.compile(
    rf"({shapes.NAME.pattern})(?:\[CALL_ID\][\w-]{{0,64}})?\[ARGS\]\s{{0,40}}(?={shapes.ENDING.pattern}|\[TOOL_CALLS\])"
)
_SECTION_EMPTY = re.compile(rf"{_SECTION_HEAD}(?:```\w{{0,20}}\s{{0,8}}```\s{{0,8}})?(?={shapes.ENDING.pattern})")


def read_marked(source: shapes.Source, at: int) -> shapes.Result:
    """The call at an opener, or at several."""
    text, depth = source.text, 0
    while (opener := shapes.OPENER.match(text, at)) is not None:
        family, at = shapes.OPENERS[opener[0]], shapes.skip_spaces(text, opener.end())
        depth += family not in ("mistral", "python")
        if at == len(text):
            return source.report_cut_end()
        if family not in ("tag", "section") or shapes.OPENER.match(text, at) is None:
            outcome = _READERS[family](source, opener.end() if family in _EXACT else at)
            return outcome._replace(depth=depth) if isinstance(outcome, shapes.FoundCalls) else outcome
    return shapes.Missed(at)


def _read_tag(source: shapes.Source, at: int) -> shapes.Result:
    text = source.text
    fence = _FENCE.match(text, at)
    if fence is None:
        return _read_tag_body(source, at)
    at = shapes.skip_spaces(text, fence.end())
    if at == len(text):
        return source.report_cut_end()
    outcome = _read_python_lines(source, at) if text[at].isidentifier() else _read_tag_body(source, at)
    return outcome._replace(fenced=True) if isinstance(outcome, shapes.FoundCalls) else outcome


def _read_python_lines(source: shapes.Source, at: int) -> shapes.Result:
    """Calls in Python's notation, one or more: so MiniCPM 3 and 4 write them."""
    text = source.text
    calls: list[shapes.TextCall] = []
    while True:
        outcome = _read_tag_body(source, at)
        if not isinstance(outcome, shapes.FoundCalls):
            return shapes.FoundCalls(calls, at) if calls and outcome is not None else outcome
        calls += outcome.calls
        at = shapes.skip(shapes.BETWEEN, text, outcome.end)
        if at == len(text) and not source.final:
            return None
        if at == len(text) or not text[at].isidentifier():
            return shapes.FoundCalls(calls, outcome.end)


def _read_tag_body(source: shapes.Source, at: int) -> shapes.Result:
    text = source.text
    if text[at] in "{[":
        return _read_behind_data(source, at)
    if not source.final and "```".startswith(text[at:]):
        return None
    empty = _TAG_EMPTY.match(text, at)
    if empty is not None and (
        source.tool_names is None or shapes.normalize_name(empty[1], source.tool_names) in source.tool_names
    ):
        return _read_empty_call(source, empty)
    head = _HEAD.match(text, at)
    if head is None:
        return _read_name_start(source, at)
    match text[head.end()]:
        case "{":
            return source.read_named(head[1], head.end())
        case "<":
            return notations.read_arg_keys(source, head.end(), head[1])
        case _:
            return source.read_python(at)


def _read_behind_data(source: shapes.Source, at: int) -> shapes.Result:
    """A call, or other objects and then the call: some models first write what they think of it."""
    text = source.text
    while True:
        outcome = source.read_list_or_value(at)
        if not isinstance(outcome, shapes.Missed) or outcome.is_cut_off:
            return outcome
        if text[at] != "{" or text[outcome.end - 1] != "}":
            return outcome
        at = shapes.skip(shapes.BETWEEN, text, outcome.end)
        if at == len(text) and not source.final:
            return None
        if at == len(text) or text[at] != "{":
            return outcome


def _read_empty_call(source: shapes.Source, head: re.Match[str]) -> shapes.Result:
    return shapes.FoundCalls([source.make_call(head[1], {})], head.end())


def _make_reader(head: re.Pattern[str], empty: re.Pattern[str] | None = None, *, takes_data: bool = False) -> _Reader:
    """A family that writes a name and then the arguments. `empty`: as it writes a call without arguments."""

    def read_call(source: shapes.Source, at: int) -> shapes.Result:
        if takes_data and source.text[at] in "{[":
            return source.read_value(at)
        match = head.match(source.text, at)
        if match is None and empty is not None and (bare := empty.match(source.text, at)) is not None:
            return _read_empty_call(source, bare)
        if match is None:
            return _read_name_start(source, at)
        outcome = source.read_named(match[1], match.end())
        return outcome._replace(fenced=match.lastindex == 2) if isinstance(outcome, shapes.FoundCalls) else outcome

    return read_call


def _read_python_tag(source: shapes.Source, at: int) -> shapes.Result:
    if source.text[at] in "{[":
        return source.read_list_or_value(at)
    return source.read_python(at) if source.text[at].isidentifier() else shapes.Missed(at)


def _read_apertus(source: shapes.Source, at: int) -> shapes.Result:
    """A list of objects, each with one key, which is the name, and the arguments behind it."""
    if source.text[at] not in "[{":
        return shapes.Missed(at)
    if (parsed := source.parse(at)) is None:
        return None
    items = parsed.value if isinstance(parsed.value, list) else [parsed.value]
    pairs = [pair for item in items for pair in (item.items() if isinstance(item, dict) else [("", item)])]
    calls = [
        source.make_call(name, arguments or {}, parsed.state != "whole" and number == len(pairs) - 1)
        for number, (name, arguments) in enumerate(pairs)
        if shapes.NAME.fullmatch(name) and (isinstance(arguments, dict) or arguments is None)
    ]
    if not calls or len(calls) < len(pairs):
        return source.read_value(at)
    return shapes.FoundCalls(calls, parsed.end)


# Here what stands directly behind the opener belongs to it, spaces too.
_EXACT = ("function", "invoke", "harmony", "xtml", "namespaced")
_READERS: dict[str, _Reader] = {
    "tag": _read_tag,
    # `<tools>` marks the definitions that models are given; some small ones put their calls into it.
    "tools": lambda source, at: source.read_value(at, marked=False) if source.text[at] in "{[" else shapes.Missed(at),
    "function": notations.read_function,
    "invoke": lambda source, at: notations.read_function(source, at, notations.INVOKE_NAME),
    "mistral": _make_reader(_MISTRAL, _MISTRAL_EMPTY, takes_data=True),
    "python": _read_python_tag,
    # DeepSeek and Kimi: older ones put the word `function` first and a fence around the arguments.
    "section": _make_reader(_SECTION, _SECTION_EMPTY),
    "gemma": _make_reader(_GEMMA),  # Gemma 4 and FunctionGemma: strings stand between tokens instead of quotes
    "apertus": _read_apertus,
    "harmony": notations.read_harmony,
    "recipient": notations.read_recipient,
    "xtml": notations.read_xtml,
    "namespaced": notations.read_namespaced,
}


def _read_name_start(source: shapes.Source, at: int) -> shapes.Result:
    """A name may stand there, or a word of markup, of which the rest has not come."""
    if source.text[at].isidentifier():
        return source.report_short_head(at)
    return None if not source.final and shapes.is_partial_opener(source.text, at) else shapes.Missed(at)


JSON_FENCES = frozenset(("", "json", "json5", "jsonc"))
TOOL_FENCES = frozenset(("tool_call", "tool_calls", "tool", "tools", "tool_use", "function_call", "function"))
CODE_FENCES = frozenset(("tool_code",))
CALL_FENCES = JSON_FENCES | TOOL_FENCES | CODE_FENCES

_WORD_ARRIVING = re.compile(rf"{shapes.WORD}(?:\.{shapes.WORD}){{0,3}}\.?\Z")


def read_fenced(source: shapes.Source, info: str, at: int) -> shapes.Result:
    """The calls that a fenced block consists of. `at` is the place behind its opening line."""
    text = source.text
    calls: list[shapes.TextCall] = []
    while True:
        at = shapes.skip(shapes.BETWEEN, text, at)
        if at == len(text):
            if not source.final:
                return None
            return shapes.FoundCalls(calls, at) if calls else shapes.Missed(at)
        if text.startswith("```", at):
            return shapes.FoundCalls(calls, at, fenced=True) if calls else shapes.Missed(at)
        if not source.final and "```".startswith(text[at:]):
            return None
        outcome = _read_fenced_item(source, info, at)
        if not isinstance(outcome, shapes.FoundCalls):
            return outcome
        calls += outcome.calls
        at = outcome.end
        if shapes.OPENER.match(text, at) or outcome.fenced:
            return shapes.FoundCalls(calls, at, fenced=True)


def _read_fenced_item(source: shapes.Source, info: str, at: int) -> shapes.Result:
    text = source.text
    if shapes.OPENER.match(text, at):
        outcome = read_marked(source, at)
        return outcome._replace(fenced=True) if isinstance(outcome, shapes.FoundCalls) else outcome
    if not source.final and shapes.is_partial_opener(text, at):
        return None
    if info in CODE_FENCES and text[at].isidentifier():
        return _reject_unknown(source, source.read_python(at))
    if text[at] not in "{[":
        return shapes.Missed(at)
    if info not in JSON_FENCES:
        return source.read_value(at, border=shapes.FENCE_END)
    if source.tool_names is not None:
        return read_bare(source, at, border=shapes.FENCE_END)
    value = read(text, at, final=source.final)
    if not shapes.is_only_calls(value.value) and (value.state != "cut" or source.final):
        return shapes.Missed(value.end)
    return source.read_value(at, border=shapes.FENCE_END)


def _reject_unknown(source: shapes.Source, outcome: shapes.Result) -> shapes.Result:
    if isinstance(outcome, shapes.FoundCalls) and not all(
        source.tool_names is None or call.name in source.tool_names for call in outcome.calls
    ):
        return shapes.Missed(outcome.end)
    return outcome


def read_bare(source: shapes.Source, at: int, *, border: re.Pattern[str] | None = None) -> shapes.Result:
    """A call that nothing marks: JSON, or a list in Python's notation, with the name of a tool that is known."""
    text = source.text
    inside = at if text[at] == "{" else shapes.skip_spaces(text, at + 1)
    if inside == len(text):
        return shapes.Missed(inside) if source.final else None
    if text[inside] != "{":
        return _read_bare_python(source, inside)
    viable = _can_be_call(source, inside)
    if not viable:
        return None if viable is None else shapes.Missed(inside)
    outcome = source.read_value(at, marked=False, border=border)
    if isinstance(outcome, shapes.Missed) and inside > at:  # the bracket may belong to the prose before a call
        alone = source.read_value(inside, marked=False, border=None)
        return alone._replace(begin=inside) if isinstance(alone, shapes.FoundCalls) else outcome
    return outcome


def _read_bare_python(source: shapes.Source, at: int) -> shapes.Result:
    head = shapes.PYTHON.match(source.text, at)
    if head is None or head[1]:
        word = _WORD_ARRIVING.match(source.text, at)
        arriving = word is not None and not source.final and shapes.can_become_known(word[0], source.tool_names)
        return None if arriving else shapes.Missed(at)
    if shapes.normalize_name(head[2], source.tool_names) not in (source.tool_names or ()):
        return shapes.Missed(at)
    return _reject_unknown(source, source.read_python_list(at))


_ADDRESS = ">>>"
_ADDRESSED = re.compile(rf"(?:{_ADDRESS})?+({shapes.NAME.pattern})(?:[ \t]{{0,8}}\n\s{{0,20}}(?:({{)|(\Z))?|(\Z))")


def read_addressed(source: shapes.Source, at: int) -> shapes.Result:
    """Functionary 3.2: `>>>name`, and its arguments on the next line; `>>>all` is for the user (llama.cpp's parser
    and tests). The prompt ends with the first `>>>`, so that an answer may begin without it."""
    text, tool_names = source.text, source.tool_names
    if not tool_names:
        return shapes.Missed(at)
    if not source.final and len(text) - at <= len(_ADDRESS) and _ADDRESS.startswith(text[at:]):
        return None
    marked = text.startswith(_ADDRESS, at)
    if marked and text.startswith("all\n", at + len(_ADDRESS)):
        return shapes.Wrapper(at + len(_ADDRESS) + 4)
    head = _ADDRESSED.match(text, at)
    if head is None:
        return shapes.Missed(at)
    if head[4] is not None and not source.final:
        arriving = shapes.can_become_known(head[1], tool_names) or (marked and "all".startswith(head[1]))
        return None if arriving else shapes.Missed(at)
    if shapes.normalize_name(head[1], tool_names) not in tool_names:
        return shapes.Missed(at)
    if head[2]:
        return source.read_named(head[1], head.end() - 1)
    return None if head[3] is not None and not source.final else shapes.Missed(at)


_KEY = re.compile(r"""\{\s*+(?:(["'“‘])([\w]{0,20})(?:["'”’](\s*+(?::\s*+)?+))?+)?+""")  # noqa: RUF001
_STRING = re.compile(r"""["'“‘]([\w.:/-]{0,128}+)(["'”’])?""")  # noqa: RUF001


def _can_be_call(source: shapes.Source, at: int) -> bool | None:
    """True if a JSON object begins as calls do: with a key that calls have, and if that key is the name, with a known
    name. None if too little of it has arrived."""
    text = source.text
    match = _KEY.match(text, at)
    if match is None:
        return False
    arrived = match.end() < len(text) or source.final
    if match[3] is None:
        begins = match[2] is None or any(key.startswith(match[2]) for key in shapes.OPENING_KEYS)
        return None if not arrived and begins else False
    if match[2] not in shapes.OPENING_KEYS:
        return False
    if ":" not in match[3]:
        return False if arrived else None
    if match[2] not in shapes.NAME_KEYS:
        return True
    if not arrived:
        return None
    value = _STRING.match(text, match.end())
    if value is None:
        return text[match.end() : match.end() + 1] == "{"
    if value[2] is None:
        is_open = value.end() == len(text) and not source.final
        return None if is_open and shapes.can_become_known(value[1], source.tool_names) else False
    return source.tool_names is not None and shapes.normalize_name(value[1], source.tool_names) in source.tool_names
