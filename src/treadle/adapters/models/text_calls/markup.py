"""Reads the call that begins at a position of a text (P-05): one that markup shows, in the notation of each family of
models, or one that nothing but its shape and the name of a known tool shows, in a fenced block of its own or bare. The
result never depends on how the text was split: it is undecided if more text could change it.

The scanner decides where a call may begin; this module does not search."""

import re
from collections.abc import Callable

from treadle.adapters.models.text_calls import notations
from treadle.adapters.models.text_calls.reader import read
from treadle.adapters.models.text_calls.shapes import (
    BETWEEN,
    ENDING,
    FENCE_END,
    NAME,
    NAME_KEYS,
    OPENER,
    OPENERS,
    OPENING_KEYS,
    PYTHON,
    SEPARATOR,
    WORD,
    FoundCalls,
    Missed,
    Result,
    Source,
    TextCall,
    Wrapper,
    is_only_calls,
    is_partial_opener,
    may_become_known,
    normalize_name,
    skip,
    spaces,
)

_Reader = Callable[[Source, int], Result]

_FENCE = re.compile(r"```\w{0,20}[ \t]{0,8}\n?")
_HEAD = re.compile(rf"({NAME.pattern})\s{{0,40}}(?=[{{<(])")
_MISTRAL = re.compile(rf"({NAME.pattern})(?:\[CALL_ID\][\w-]{{0,64}})?(?:\[ARGS\])?\s{{0,40}}(?={{)")
_SECTION_HEAD = rf"(?:function\s{{0,8}}(?:{SEPARATOR})\s{{0,8}})?({NAME.pattern})\s{{0,8}}(?:{SEPARATOR})?\s{{0,40}}"
_SECTION = re.compile(rf"{_SECTION_HEAD}(```\w{{0,20}}\s{{0,8}})?(?={{)")
_GEMMA = re.compile(rf"call:({NAME.pattern})\s{{0,40}}(?={{)")

# A call may have no arguments, and then some models write nothing where they would stand. What ends the call must have
# come: else they may be yet to come, or were cut off.
_TAG_EMPTY = re.compile(rf"({NAME.pattern})\s{{0,40}}(?={ENDING.pattern})")
_MISTRAL_EMPTY = re.compile(
    rf"({NAME.pattern})(?:\[CALL_ID\][\w-]{{0,64}})?\[ARGS\]\s{{0,40}}(?={ENDING.pattern}|\[TOOL_CALLS\])"
)
_SECTION_EMPTY = re.compile(rf"{_SECTION_HEAD}(?:```\w{{0,20}}\s{{0,8}}```\s{{0,8}})?(?={ENDING.pattern})")


def read_marked(source: Source, at: int) -> Result:
    """The call at an opener, or at several."""
    text, depth = source.text, 0
    while (opener := OPENER.match(text, at)) is not None:
        family, at = OPENERS[opener[0]], spaces(text, opener.end())
        depth += family not in ("mistral", "python")
        if at == len(text):
            return source.missed_at_end()
        if family not in ("tag", "section") or OPENER.match(text, at) is None:
            outcome = _READERS[family](source, opener.end() if family in _EXACT else at)
            return outcome._replace(depth=depth) if isinstance(outcome, FoundCalls) else outcome
    return Missed(at)


def _tag(source: Source, at: int) -> Result:
    text = source.text
    fence = _FENCE.match(text, at)
    if fence is None:
        return _tag_body(source, at)
    at = spaces(text, fence.end())
    if at == len(text):
        return source.missed_at_end()
    outcome = _python_lines(source, at) if text[at].isidentifier() else _tag_body(source, at)
    return outcome._replace(fenced=True) if isinstance(outcome, FoundCalls) else outcome


def _python_lines(source: Source, at: int) -> Result:
    """Calls in Python's notation, one or more: so MiniCPM 3 and 4 write them."""
    text = source.text
    calls: list[TextCall] = []
    while True:
        outcome = _tag_body(source, at)
        if not isinstance(outcome, FoundCalls):
            return FoundCalls(calls, at) if calls and outcome is not None else outcome
        calls += outcome.calls
        at = skip(BETWEEN, text, outcome.end)
        if at == len(text) and not source.final:
            return None
        if at == len(text) or not text[at].isidentifier():
            return FoundCalls(calls, outcome.end)


def _tag_body(source: Source, at: int) -> Result:
    text = source.text
    if text[at] in "{[":
        return _behind_data(source, at)
    if not source.final and "```".startswith(text[at:]):
        return None
    empty = _TAG_EMPTY.match(text, at)
    if empty is not None and (
        source.tool_names is None or normalize_name(empty[1], source.tool_names) in source.tool_names
    ):
        return _without_arguments(source, empty)
    head = _HEAD.match(text, at)
    if head is None:
        return _name_arriving(source, at)
    match text[head.end()]:
        case "{":
            return source.read_named(head[1], head.end())
        case "<":
            return notations.read_arg_keys(source, head.end(), head[1])
        case _:
            return source.read_python(at)


def _behind_data(source: Source, at: int) -> Result:
    """A call, or other objects and then the call: some models first write what they think of it."""
    text = source.text
    while True:
        outcome = source.list_or_value(at)
        if not isinstance(outcome, Missed) or outcome.is_cut_off or text[at] != "{" or text[outcome.end - 1] != "}":
            return outcome
        at = skip(BETWEEN, text, outcome.end)
        if at == len(text) and not source.final:
            return None
        if at == len(text) or text[at] != "{":
            return outcome


def _without_arguments(source: Source, head: re.Match[str]) -> Result:
    return FoundCalls([source.call(head[1], {})], head.end())


def _make_reader(head: re.Pattern[str], empty: re.Pattern[str] | None = None, *, takes_data: bool = False) -> _Reader:
    """A family that writes a name and then the arguments. `empty`: as it writes a call without arguments."""

    def read_call(source: Source, at: int) -> Result:
        if takes_data and source.text[at] in "{[":
            return source.read_value(at)
        match = head.match(source.text, at)
        if match is None and empty is not None and (bare := empty.match(source.text, at)) is not None:
            return _without_arguments(source, bare)
        if match is None:
            return _name_arriving(source, at)
        outcome = source.read_named(match[1], match.end())
        return outcome._replace(fenced=match.lastindex == 2) if isinstance(outcome, FoundCalls) else outcome

    return read_call


def _python_tag(source: Source, at: int) -> Result:
    if source.text[at] in "{[":
        return source.list_or_value(at)
    return source.read_python(at) if source.text[at].isidentifier() else Missed(at)


def _apertus(source: Source, at: int) -> Result:
    """A list of objects, each with one key, which is the name, and the arguments behind it."""
    if source.text[at] not in "[{":
        return Missed(at)
    if (parsed := source.parse(at)) is None:
        return None
    items = parsed.value if isinstance(parsed.value, list) else [parsed.value]
    pairs = [pair for item in items for pair in (item.items() if isinstance(item, dict) else [("", item)])]
    calls = [
        source.call(name, arguments or {}, parsed.state != "whole" and number == len(pairs) - 1)
        for number, (name, arguments) in enumerate(pairs)
        if NAME.fullmatch(name) and (isinstance(arguments, dict) or arguments is None)
    ]
    if not calls or len(calls) < len(pairs):
        return source.read_value(at)
    return FoundCalls(calls, parsed.end)


# Here what stands directly behind the opener belongs to it, spaces too.
_EXACT = ("function", "invoke", "harmony", "xtml", "namespaced")
_READERS: dict[str, _Reader] = {
    "tag": _tag,
    # `<tools>` marks the definitions that models are given; some small ones put their calls into it.
    "tools": lambda source, at: source.read_value(at, marked=False) if source.text[at] in "{[" else Missed(at),
    "function": notations.read_function,
    "invoke": lambda source, at: notations.read_function(source, at, notations.INVOKE_NAME),
    "mistral": _make_reader(_MISTRAL, _MISTRAL_EMPTY, takes_data=True),
    "python": _python_tag,
    # DeepSeek and Kimi: older ones put the word `function` first and a fence around the arguments.
    "section": _make_reader(_SECTION, _SECTION_EMPTY),
    "gemma": _make_reader(_GEMMA),  # Gemma 4 and FunctionGemma: strings stand between tokens instead of quotes
    "apertus": _apertus,
    "harmony": notations.read_harmony,
    "recipient": notations.read_recipient,
    "xtml": notations.read_xtml,
    "namespaced": notations.read_namespaced,
}


def _name_arriving(source: Source, at: int) -> Result:
    """A name may stand there, or a word of markup, of which the rest has not come."""
    if source.text[at].isidentifier():
        return source.short(at)
    return None if not source.final and is_partial_opener(source.text, at) else Missed(at)


JSON_FENCES = frozenset(("", "json", "json5", "jsonc"))
TOOL_FENCES = frozenset(("tool_call", "tool_calls", "tool", "tools", "tool_use", "function_call", "function"))
CODE_FENCES = frozenset(("tool_code",))
CALL_FENCES = JSON_FENCES | TOOL_FENCES | CODE_FENCES

_WORD_ARRIVING = re.compile(rf"{WORD}(?:\.{WORD}){{0,3}}\.?\Z")


def read_fenced(source: Source, info: str, at: int) -> Result:
    """The calls that a fenced block consists of. `at` is the place behind its opening line."""
    text = source.text
    calls: list[TextCall] = []
    while True:
        at = skip(BETWEEN, text, at)
        if at == len(text):
            if not source.final:
                return None
            return FoundCalls(calls, at) if calls else Missed(at)
        if text.startswith("```", at):
            return FoundCalls(calls, at, fenced=True) if calls else Missed(at)
        if not source.final and "```".startswith(text[at:]):
            return None
        outcome = _fenced_item(source, info, at)
        if not isinstance(outcome, FoundCalls):
            return outcome
        calls += outcome.calls
        at = outcome.end
        if OPENER.match(text, at) or outcome.fenced:
            return FoundCalls(calls, at, fenced=True)


def _fenced_item(source: Source, info: str, at: int) -> Result:
    text = source.text
    if OPENER.match(text, at):
        outcome = read_marked(source, at)
        return outcome._replace(fenced=True) if isinstance(outcome, FoundCalls) else outcome
    if not source.final and is_partial_opener(text, at):
        return None
    if info in CODE_FENCES and text[at].isidentifier():
        return _if_known(source, source.read_python(at))
    if text[at] not in "{[":
        return Missed(at)
    if info not in JSON_FENCES:
        return source.read_value(at, border=FENCE_END)
    if source.tool_names is not None:
        return read_bare(source, at, border=FENCE_END)
    value = read(text, at, final=source.final)
    if not is_only_calls(value.value) and (value.state != "cut" or source.final):
        return Missed(value.end)
    return source.read_value(at, border=FENCE_END)


def _if_known(source: Source, outcome: Result) -> Result:
    if isinstance(outcome, FoundCalls) and not all(
        source.tool_names is None or call.name in source.tool_names for call in outcome.calls
    ):
        return Missed(outcome.end)
    return outcome


def read_bare(source: Source, at: int, *, border: re.Pattern[str] | None = None) -> Result:
    """A call that nothing marks: JSON, or a list in Python's notation, with the name of a tool that is known."""
    text = source.text
    inside = at if text[at] == "{" else spaces(text, at + 1)
    if inside == len(text):
        return Missed(inside) if source.final else None
    if text[inside] != "{":
        return _bare_python(source, inside)
    viable = _viable(source, inside)
    if not viable:
        return None if viable is None else Missed(inside)
    outcome = source.read_value(at, marked=False, border=border)
    if isinstance(outcome, Missed) and inside > at:  # the bracket may belong to the prose before a call
        alone = source.read_value(inside, marked=False, border=None)
        return alone._replace(begin=inside) if isinstance(alone, FoundCalls) else outcome
    return outcome


def _bare_python(source: Source, at: int) -> Result:
    head = PYTHON.match(source.text, at)
    if head is None or head[1]:
        word = _WORD_ARRIVING.match(source.text, at)
        arriving = word is not None and not source.final and may_become_known(word[0], source.tool_names)
        return None if arriving else Missed(at)
    if normalize_name(head[2], source.tool_names) not in (source.tool_names or ()):
        return Missed(at)
    return _if_known(source, source.read_python_list(at))


_ADDRESS = ">>>"
_ADDRESSED = re.compile(rf"(?:{_ADDRESS})?+({NAME.pattern})(?:[ \t]{{0,8}}\n\s{{0,20}}(?:({{)|(\Z))?|(\Z))")


def read_addressed(source: Source, at: int) -> Result:
    """Functionary 3.2: `>>>name`, and its arguments on the next line; `>>>all` is for the user (llama.cpp's parser
    and tests). The prompt ends with the first `>>>`, so that an answer may begin without it."""
    text, tool_names = source.text, source.tool_names
    if not tool_names:
        return Missed(at)
    if not source.final and len(text) - at <= len(_ADDRESS) and _ADDRESS.startswith(text[at:]):
        return None
    marked = text.startswith(_ADDRESS, at)
    if marked and text.startswith("all\n", at + len(_ADDRESS)):
        return Wrapper(at + len(_ADDRESS) + 4)
    head = _ADDRESSED.match(text, at)
    if head is None:
        return Missed(at)
    if head[4] is not None and not source.final:
        arriving = may_become_known(head[1], tool_names) or (marked and "all".startswith(head[1]))
        return None if arriving else Missed(at)
    if normalize_name(head[1], tool_names) not in tool_names:
        return Missed(at)
    if head[2]:
        return source.read_named(head[1], head.end() - 1)
    return None if head[3] is not None and not source.final else Missed(at)


_KEY = re.compile(r"""\{\s*+(?:(["'“‘])([\w]{0,20})(?:["'”’](\s*+(?::\s*+)?+))?+)?+""")  # noqa: RUF001
_STRING = re.compile(r"""["'“‘]([\w.:/-]{0,128}+)(["'”’])?""")  # noqa: RUF001


def _viable(source: Source, at: int) -> bool | None:
    """True if a JSON object begins as calls do: with a key that calls have, and if that key is the name, with a known
    name. None if too little of it has arrived."""
    text = source.text
    match = _KEY.match(text, at)
    if match is None:
        return False
    arrived = match.end() < len(text) or source.final
    if match[3] is None:
        begins = match[2] is None or any(key.startswith(match[2]) for key in OPENING_KEYS)
        return None if not arrived and begins else False
    if match[2] not in OPENING_KEYS:
        return False
    if ":" not in match[3]:
        return False if arrived else None
    if match[2] not in NAME_KEYS:
        return True
    if not arrived:
        return None
    value = _STRING.match(text, match.end())
    if value is None:
        return text[match.end() : match.end() + 1] == "{"
    if value[2] is None:
        is_open = value.end() == len(text) and not source.final
        return None if is_open and may_become_known(value[1], source.tool_names) else False
    return source.tool_names is not None and normalize_name(value[1], source.tool_names) in source.tool_names
