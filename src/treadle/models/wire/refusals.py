"""Whether a server refused one parameter of a request (M-01). A refusal of the documented shape names it in `param`;
others say so in a sentence about it. A sentence that merely mentions the word is none. Pure."""

import re

from treadle.errors import ModelError

_REFUSED = re.compile(
    r"unsupported|(?:n't|not|no longer|cannot) (?:be )?(?:support|permit|allow|accept|set\b|enabl|available|used?\b)"
    r"|unrecogni[sz]ed|unknown|unexpected|extra inputs|deprecated|invalid|too (?:large|high|low|small|many|big)"
    r"|out of range|range\b|must|should|may only|maximum|at most|only the default|instead",
    re.I,
)
_NEAR = 60
"""Characters between the name and the word that refuses it."""
_ELSEWHERE = re.compile(
    r"\b(?:messages?|contents?|input|tools?|functions?)(?:[.\[]\d|\b.{0,40}\b(?:schema|propert|parameters?[.\[]|arguments?[.\[]))"
    r"|\bschema\b|\bpropert(?:y|ies)\b",
    re.I,
)
"""A sentence about the conversation or about a tool, in which anything may be mentioned."""


def is_refusal(error: ModelError) -> bool:
    """Whether the server refused the request as such."""
    return error.kind == "bad_request" and error.status in (400, 422)


def refuses(error: ModelError, name: str, words: str = "", *, inside: bool = False) -> bool:
    """Whether the server refused the parameter `name`; `words` is a pattern of what sentences call it, if that is not
    its name; `inside` says that it stands inside the conversation and the tools."""
    if not is_refusal(error):
        return False
    if error.param and not inside:
        return re.match(rf"{re.escape(name)}(?![\w-])", error.param.removeprefix("body.")) is not None
    said = str(error)
    if not inside and _ELSEWHERE.search(said):
        return False
    pattern = rf"(?<![\w-])(?:{words or re.escape(name)})(?![\w-])"
    return any(
        _REFUSED.search(said, max(0, found.start() - _NEAR), found.end() + _NEAR)
        for found in re.finditer(pattern, said, re.I)
    )
