"""The words with which models mark a call, by family, and where a text may be in the middle of one. Literals only, so
that a word that has not wholly arrived can be told."""

import re

_WIDE = "\uff5c"  # the full-width bar of DeepSeek's special tokens
_BARS = (_WIDE, "|")
_GAPS = ("▁", "_")


def _special(words: str) -> list[str]:
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
    **dict.fromkeys((*_special("tool calls begin"), *_special("tool call begin")), "section"),
    **dict.fromkeys((*_special("tool calls section begin"), *_special("tool call section begin")), "section"),
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
    *(*_special("tool call end"), *_special("tool calls end"), *_special("tool calls section end")),
    *_special("tool call section end"),
    *("<tool_call|>", "<end_function_call>", "<end_of_turn>", "<turn|>", "<|tools_suffix|>", "<|assistant_end|>"),
    *("<|END_ACTION|>", "<|action_end|>", "<|python_end|>"),
    *("<|call|>", "<|return|>", "<|stop|>", "<|end_of_msg|>"),
    *(f"<|close|>{word}<|sep|>" for word in ("call", "tools", "response", "think", "message")),
    *(f"{MINIMAX}</{word}>" for word in ("invoke", "tool_call")),
    *("</s>", "<|eom_id|>", "<|eot_id|>", "<|eot|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>"),
    *_special("end of sentence"),
)
SEPARATORS: tuple[str, ...] = (*_special("tool sep"), *_special("tool call argument begin"))
THINK, THINK_END = "<think>", "</think>"


def _any_of(words: object) -> str:
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))  # type: ignore[call-overload]


OPENER = re.compile(_any_of(OPENERS))
ENDING = re.compile(_any_of(ENDINGS))
BORDER = re.compile(f"{_any_of(OPENERS)}|{_any_of(ENDINGS)}")  # where a call that cannot be read must have ended
SEPARATOR = _any_of(SEPARATORS)
LONGEST = max(map(len, (*OPENERS, *ENDINGS)))
CERTAIN = 5  # so many characters of an opener at the end of a text are no coincidence


def _prefixes(words: object) -> frozenset[str]:
    return frozenset(word[:length] for word in words for length in range(1, len(word)))  # type: ignore[attr-defined]


_BEGUN = _prefixes((*OPENERS, THINK))
_ENDING_BEGUN = _prefixes(ENDINGS)


def is_partial_opener(text: str, at: int) -> bool:
    """True if the rest of the text is the beginning of an opener."""
    return len(text) - at <= LONGEST and text[at:] in _BEGUN


def ending_begun(text: str, at: int) -> bool:
    return len(text) - at <= LONGEST and text[at:] in _ENDING_BEGUN
