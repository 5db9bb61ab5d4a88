"""The words with which models mark a call, by family (literals only, so that a word that has not wholly arrived can be
told); the calls in a parsed value, in any of the shapes that models use (P-03): JSON with a name in it, arguments
behind a name that was read, and Python's notation; and the result of reading a call at a position of a text: found,
missed, or undecided until more text arrives."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from treadle.adapters.models.text_calls.reader import ParsedValue, make_storable, read

_WIDE = "\uff5c"  # the full-width bar of DeepSeek's special tokens
_BARS = (_WIDE, "|")
_GAPS = ("▁", "_")


def _list_spellings(words: str) -> list[str]:
    """A special token in every spelling that is seen: full-width or plain bars, `▁` or `_` between the words."""
    return [f"<{bar}{words.replace(' ', gap)}{bar}>" for bar in _BARS for gap in _GAPS]


_TAGS = (
    *("tool_call", "tool_calls", "function_call", "function_calls", "functioncall"),
    *("minimax:tool_call", "seed:tool_call", "longcat_tool_call", "TOOLCALL"),
)
DSML = f"{_WIDE}DSML{_WIDE}"
MINIMAX = "]<]minimax[>["  # stands before every tag of MiniMax M3

OPENERS: dict[str, str] = {
    **dict.fromkeys((f"<{tag}>" for tag in _TAGS), "tag"),
    **dict.fromkeys(("<|tool_call|>", "<|tool_call_start|>", f"<{DSML}function_calls>"), "tag"),
    **dict.fromkeys(("<|START_ACTION|>", "<|action_start|><|plugin|>", "<|python_start|>"), "tag"),
    "<tools>": "tools",
    "<function=": "function",
    "<invoke name=": "invoke",
    f"<{DSML}invoke name=": "invoke",
    "<function name=": "invoke",
    "[TOOL_CALLS]": "mistral",
    "<|python_tag|>": "python",
    **dict.fromkeys((*_list_spellings("tool calls begin"), *_list_spellings("tool call begin")), "section"),
    **dict.fromkeys(
        (*_list_spellings("tool calls section begin"), *_list_spellings("tool call section begin")), "section"
    ),
    **dict.fromkeys(("<|tool_call>", "<start_function_call>"), "gemma"),
    "<|tools_prefix|>": "apertus",
    **dict.fromkeys(("<|channel|>", "<|start|>assistant"), "harmony"),
    **dict.fromkeys(("<|recipient|>", "<|from|>assistant\n<|recipient|>"), "recipient"),
    "<|open|>tools<|sep|>": "tag",
    **dict.fromkeys(("<|open|>call ", "<|open|>response<|sep|>", "<|open|>think<|sep|>"), "xtml"),
    f"{MINIMAX}<tool_call>": "tag",
    f"{MINIMAX}<invoke name=": "namespaced",
}
ENDINGS: tuple[str, ...] = (
    *(f"</{tag}>" for tag in _TAGS),
    *("</tools>", "</function>", "</invoke>", f"</{DSML}invoke>", f"</{DSML}function_calls>"),
    *("<|/tool_call|>", "</|tool_call|>", "[/TOOL_CALLS]"),
    *(
        *_list_spellings("tool call end"),
        *_list_spellings("tool calls end"),
        *_list_spellings("tool calls section end"),
    ),
    *_list_spellings("tool call section end"),
    *("<tool_call|>", "<end_function_call>", "<end_of_turn>", "<turn|>", "<|tools_suffix|>", "<|assistant_end|>"),
    *("<|END_ACTION|>", "<|action_end|>", "<|python_end|>"),
    *("<|call|>", "<|return|>", "<|stop|>", "<|end_of_msg|>"),
    *(f"<|close|>{word}<|sep|>" for word in ("call", "tools", "response", "think", "message")),
    *(f"{MINIMAX}</{word}>" for word in ("invoke", "tool_call")),
    *("</s>", "<|eom_id|>", "<|eot_id|>", "<|eot|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>"),
    *_list_spellings("end of sentence"),
)
SEPARATORS: tuple[str, ...] = (*_list_spellings("tool sep"), *_list_spellings("tool call argument begin"))
THINK, THINK_END = "<think>", "</think>"


def _build_pattern(words: object) -> str:
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))  # type: ignore[call-overload]


OPENER = re.compile(_build_pattern(OPENERS))
ENDING = re.compile(_build_pattern(ENDINGS))
BORDER = re.compile(
    f"{_build_pattern(OPENERS)}|{_build_pattern(ENDINGS)}"
)  # where a call that cannot be read must have ended
SEPARATOR = _build_pattern(SEPARATORS)
LONGEST = max(map(len, (*OPENERS, *ENDINGS)))
CERTAIN = 5  # so many characters of an opener at the end of a text are no coincidence


def _collect_prefixes(words: object) -> frozenset[str]:
    return frozenset(word[:length] for word in words for length in range(1, len(word)))  # type: ignore[attr-defined]


_BEGUN = _collect_prefixes((*OPENERS, THINK))
_ENDING_BEGUN = _collect_prefixes(ENDINGS)


def is_partial_opener(text: str, at: int) -> bool:
    """True if the rest of the text is the beginning of an opener."""
    return len(text) - at <= LONGEST and text[at:] in _BEGUN


def is_partial_ending(text: str, at: int) -> bool:
    return len(text) - at <= LONGEST and text[at:] in _ENDING_BEGUN


class TextCall(msgspec.Struct, frozen=True):
    """One call that stood in a text. `repaired`: it was cut off or broken, and completed by guessing (P-04)."""

    name: str
    arguments: dict[str, Any]
    repaired: bool = False


class AnyName(Collection[str]):
    """Stands for unknown tool names: any valid name is a member."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and NAME.fullmatch(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


ANY_NAME = AnyName()

NAME_KEYS = ("name", "tool", "function", "tool_name", "function_name")
ARGUMENT_KEYS = ("arguments", "args", "params", "parameters", "input", "tool_input", "kwargs")
_OBJECT_ONLY = ("input", "tool_input", "kwargs")  # a tool's own argument may be called so: arguments only if an object
WRAPPER_KEYS = ("tool_calls", "tool_call", "function_call", "calls", "function")
LABEL_KEYS = ("type", "id", "index", "call_id", "tool_call_id")
OPENING_KEYS = frozenset((*NAME_KEYS, *ARGUMENT_KEYS, *WRAPPER_KEYS, *LABEL_KEYS))
"""With one of these a JSON object must begin to be taken for a call where nothing marks it as one."""

NAME = re.compile(r"[^\W\d][\w.:/-]{0,127}")
_LABELS = ("function", "tool_call", "tool_use", "function_call", "tool")
_PREFIXES = ("functions.", "function.", "default_api.", "tools.")


def find_calls(parsed: ParsedValue, tool_names: Collection[str] | None, *, marked: bool) -> list[TextCall] | None:
    """The calls that a value is; None when it is anything else. Without a mark, which says that a call is meant, its
    name must be known, and the definition of a tool is none."""
    values = _unwrap(parsed.value)
    calls: list[TextCall] = []
    for number, value in enumerate(values):
        last = number == len(values) - 1
        # A value that was cut or broken off is whole up to its last call.
        call = _find_call(value, tool_names, parsed.state == "guessed" or (last and parsed.state != "whole"))
        if call is not None and (marked or (_is_known(call.name, tool_names) and not _is_definition(value))):
            calls.append(call)
        elif not (last and calls and parsed.state in ("cut", "broken")):
            return None
    return calls or None


def normalize_name(name: str, tool_names: Collection[str] | None) -> str:
    """The name without what some models put around it: `functions.read_file:0` is `read_file`."""
    name = name.strip()
    if tool_names is not None and name in tool_names:
        return name
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    stem, _, number = name.rpartition(":")
    return stem if stem and number.isdecimal() else name


def can_become_known(word: str, tool_names: Collection[str] | None) -> bool:
    """True if a name that begins with this word can be a known one."""
    if tool_names is None or tool_names is ANY_NAME:
        return tool_names is not None
    # A name may stand behind a prefix, and a number behind a name.
    return any(name.startswith(word) or word.startswith(name) for name in (*tool_names, *_PREFIXES))


def is_only_calls(value: object) -> bool:
    """True if a value can only be calls: each item has arguments under a key of their own and is no definition."""
    return all(
        isinstance(inner, dict)
        and any(key in inner for key in ARGUMENT_KEYS if key not in _OBJECT_ONLY)
        and not _is_definition(inner)
        for inner in _unwrap(value)
    )


def _is_known(name: str, tool_names: Collection[str] | None) -> bool:
    return tool_names is not None and name in tool_names


def _unwrap(value: object) -> list[object]:
    for _ in range(4):
        if isinstance(value, list):
            pairs = [(item, _get_wrapped_value(item)) for item in value]
            groups = [inner if isinstance(inner, list) else [item if inner is None else inner] for item, inner in pairs]
            return [each for group in groups for each in group]
        inner = _get_wrapped_value(value)
        if inner is None:
            return [value]
        value = inner
    return [value]


def _get_wrapped_value(value: object) -> object | None:
    """Return the content of a wrapper such as `{"type": "function", "function": {…}}`. None if it is not one."""
    if not isinstance(value, dict) or any(isinstance(value.get(key), str) for key in NAME_KEYS):
        return None
    return next((value[key] for key in WRAPPER_KEYS if isinstance(value.get(key), dict | list)), None)


def _find_call(value: object, tool_names: Collection[str] | None, repaired: bool) -> TextCall | None:
    keys = [key for key in NAME_KEYS if isinstance(value.get(key), str)] if isinstance(value, dict) else []
    if not isinstance(value, dict) or not keys:
        return None
    if tool_names is not None:  # the first key holds the name, unless a later one holds a name that is known
        keys.sort(key=lambda key: normalize_name(value[key], tool_names) not in tool_names)
    key = keys[0]
    name = normalize_name(value[key], tool_names)
    if not (NAME.fullmatch(name) or _is_known(name, tool_names)):
        return None
    arguments, guessed = _find_arguments(value, key)
    return TextCall(name, make_storable(arguments), repaired or guessed)


def _find_arguments(value: dict[str, Any], name_key: str) -> tuple[dict[str, Any], bool]:
    """The arguments, and whether they had to be guessed. Without a key of their own they lie beside the name."""
    for key in ARGUMENT_KEYS:
        if key not in value or key == name_key:
            continue
        raw_arguments = value[key]
        if isinstance(raw_arguments, dict):
            return raw_arguments, False
        if key in _OBJECT_ONLY:
            continue
        if not raw_arguments:
            return {}, False
        text = raw_arguments.strip() if isinstance(raw_arguments, str) else ""
        parsed = read(text, 0) if text.startswith("{") else None  # arguments as a JSON string
        if isinstance(raw_arguments, str) and not text:
            return {}, False
        if parsed is not None and isinstance(parsed.value, dict):
            return parsed.value, parsed.state != "whole" or bool(text[parsed.end :].strip())
    return {key: inner for key, inner in value.items() if key != name_key and not _is_label(key, inner)}, False


def _is_label(key: str, value: object) -> bool:
    """True if a pair belongs to the call itself and not to its arguments."""
    if not isinstance(value, str):
        return False
    is_id = key in ("id", "call_id", "tool_call_id") and value.startswith(("call", "fc_", "toolu", "chatcmpl"))
    return is_id or (key == "type" and value in _LABELS)


def _is_definition(value: object) -> bool:
    """True if the value is the definition of a tool and not a call: models repeat definitions from their prompt."""
    if not isinstance(value, dict):
        return False
    schema = value.get("parameters") or value.get("input_schema")
    return isinstance(schema, dict) and isinstance(schema.get("properties"), dict) and schema.get("type") == "object"


class FoundCalls(NamedTuple):
    calls: list[TextCall]
    end: int
    fenced: bool = False  # A fence was opened with the call, whose end is yet to come
    begin: int = -1  # where the call begins, if not at the place that was asked for
    depth: int = 0  # how many words of markup were opened whose ends are yet to come


class Missed(NamedTuple):
    end: int  # the position up to which the text was read
    is_cut_off: bool = False  # True if the text ended too early to exclude a call


class Wrapper(NamedTuple):
    """Markup around text that is no call, as of the channel in which an answer stands: it is not shown."""

    end: int
    until: tuple[str, ...] = ()  # thinking, which is not shown either, up to one of these words


Result = FoundCalls | Missed | Wrapper | None  # None: undecided until more text arrives

HEAD = 400  # the longest text between an opener and its arguments, in characters

_SPACES = re.compile(r"\s*+")
_NO_SPACE = re.compile(r"\S*+\Z")


def skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    """The end of the match that begins at `at`, or `at`."""
    match = pattern.match(text, at)
    return match.end() if match else at


def skip_spaces(text: str, at: int) -> int:
    return skip(_SPACES, text, at)


WORD = r"[^\W\d]\w{0,63}"
PYTHON = re.compile(rf"(print\()?(?!print\()({WORD}(?:\.{WORD}){{0,3}})(?=\()")
FENCE_END = re.compile(r"\n[ \t]*+```")
BETWEEN = re.compile(r"[\s,;]*+")


class Source(NamedTuple):
    """A text, and the readers of the values and calls that begin at a place of it."""

    text: str
    tool_names: Collection[str] | None  # the names of the tools; None if unknown
    final: bool  # True if no more text will come

    def make_call(self, name: str, arguments: Mapping[str, object], repaired: bool = False) -> TextCall:
        return TextCall(normalize_name(name, self.tool_names), make_storable(dict(arguments)), repaired)

    def report_cut_end(self) -> Missed | None:
        """Return the result for the end of the text where more must follow."""
        return Missed(len(self.text), is_cut_off=True) if self.final else None

    def report_short_head(self, at: int) -> Result:
        """Return the result for a head that cannot be read: it may not have arrived completely."""
        remaining = len(self.text) - at
        if not self.final:
            return None if remaining < HEAD else Missed(at + HEAD)
        is_cut_off = remaining < HEAD and _NO_SPACE.match(self.text, at) is not None
        return Missed(at + min(remaining, HEAD), is_cut_off=is_cut_off)

    def parse(self, at: int) -> ParsedValue | None:
        """The value that begins there; None if more of it may come."""
        parsed = read(self.text, at, final=self.final)
        return None if parsed.state == "cut" and not self.final else parsed

    def read_value(self, at: int, *, marked: bool = True, border: re.Pattern[str] | None = BORDER) -> Result:
        """A JSON value that is a call or several. A broken one is read as far as possible if `border` shows its end."""
        if (parsed := self.parse(at)) is None:
            return None
        calls = find_calls(parsed, self.tool_names, marked=marked)
        if calls is None or (parsed.state == "broken" and border is None):
            return Missed(parsed.end, is_cut_off=parsed.state == "cut")
        return self._find_end(parsed, calls, border)

    def read_named(self, name: str, at: int, border: re.Pattern[str] | None = BORDER) -> Result:
        """The arguments of a call whose name is known already."""
        if (parsed := self.parse(at)) is None:
            return None
        if not isinstance(parsed.value, dict):
            return Missed(parsed.end, is_cut_off=parsed.state == "cut")
        call = self.make_call(name, parsed.value, parsed.state != "whole")
        return self._find_end(parsed, [call], border)

    def _find_end(self, parsed: ParsedValue, calls: list[TextCall], border: re.Pattern[str] | None) -> Result:
        """Where a call ends: behind its value; if that is broken, at the next word of markup."""
        if parsed.state != "broken" or border is None:
            return FoundCalls(calls, parsed.end)
        end_match = border.search(self.text, parsed.end)
        if end_match is None and not self.final:
            return None
        if end_match is None:
            return FoundCalls(calls, len(self.text) if border is FENCE_END else parsed.end)
        return FoundCalls(calls, end_match.start())

    def read_list_or_value(self, at: int) -> Result:
        """A value, or a list of calls in Python's notation: `[read_file(path="a"), …]`."""
        inside = skip_spaces(self.text, at + 1)
        if self.text[at] == "[" and self.text[inside : inside + 1].isidentifier():
            return self.read_python_list(inside)
        return self.read_value(at)

    def read_python(self, at: int) -> Result:
        """`name(key=value)`, `name.call(key=value)` or `print(default_api.name(key=value))`."""
        head = PYTHON.match(self.text, at)
        if head is None:
            return self.report_short_head(at)
        name = head[2].removesuffix(".call")
        if (parsed := self.parse(head.end())) is None:
            return None
        if parsed.state == "broken" or not isinstance(parsed.value, dict):
            return Missed(parsed.end, is_cut_off=parsed.state == "cut")
        end = parsed.end
        if head[1] and parsed.state != "cut":
            end = skip_spaces(self.text, end)
            if end == len(self.text) and not self.final:
                return None
            end += self.text[end : end + 1] == ")"
        return FoundCalls([self.make_call(name, parsed.value, parsed.state != "whole")], end)

    def read_python_list(self, at: int) -> Result:
        calls: list[TextCall] = []
        text = self.text
        while True:
            outcome = self.read_python(at)
            if not isinstance(outcome, FoundCalls):
                return outcome
            calls += outcome.calls
            at = skip(BETWEEN, text, outcome.end)
            if at == len(text):
                doubted = TextCall(calls[-1].name, calls[-1].arguments, True)
                return FoundCalls([*calls[:-1], doubted], at) if self.final else None
            if text[at] == "]":
                return FoundCalls(calls, at + 1)
