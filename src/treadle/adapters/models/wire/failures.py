"""Classification of a provider's error: converts status, headers and body to one ModelError (M-11), and detects that
one parameter of the request was refused (M-01). Pure; the error texts of real servers are listed only here."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from treadle.errors import ModelError, ModelErrorKind
from treadle.ports.model import LONGEST_WAIT_S

SENTENCE_CAP = 500

_QUOTA = (
    *("insufficient_quota", "exceeded your current quota", "exceeded_current_quota", "insufficient balance"),
    *("insufficient credits", "billing", "api usage limits"),
)
# Words of a limit that passes by itself. Groq names the page of its billing in the same sentence.
_RATE_CODES = ("rate_limit", "rate limit reached", "too many requests", "requests per", "tokens per")
_CONTEXT = (
    *("context_length", "context length", "context window", "context size", "context_size"),
    "maximum model length",  # vLLM
    "maximum prompt length",  # xAI
    "max_prompt_tokens_exceeded",  # GitHub Copilot
    "prompt token count of",
    "exceeded model token limit",  # Kimi
    "prompt exceeds max length",  # Z.ai
    "exceeds the maximum length",
    "range of input length should be",  # Qwen
    "`inputs` tokens + `max_new_tokens` must be",  # Text Generation Inference
    "`inputs` must have less than",
    "too many tokens:",  # Cohere
    *("prompt is too long", "input is too long", "input length and `max_tokens` exceed", "too many input tokens"),
    *("input token count", "reduce the length of the messages", "request_too_large"),
)
_AUTH = ("invalid_api_key", "authentication_error", "permission_error", "unauthorized", "incorrect api key")
_BAD_KEY = ("api_key_invalid", "api key not valid", "api key expired")  # with a status of bad requests
_RATE = ("rate_limit", "rate limit", "too many requests")
_BAD = (
    *("invalid_request", "invalid request", "invalid_prompt", "not_found_error", "unsupported"),
    # Codes of the Responses API for a conversation that it never answers, however often it is asked.
    *("bio_policy", "misalignment_policy", "data_residency_mismatch", "content_policy", "invalid_image", "image_too_"),
    *("invalid_base64_image", "image_parse_error", "image_file_", "empty_image_file", "failed_to_download_image"),
)
_SPOILED = (  # the server could not read the call that its model wrote. Asked again, the model mostly does better.
    *("error parsing tool call", "failed to parse json"),  # Ollama
    *("failed to parse input at pos", "the model produced output that does not match"),  # llama.cpp
)
_TRY_AGAIN = re.compile(
    r"(?:try again|retry) (?:in|after) (?:(\d{1,4})h)?(?:(\d{1,4})m(?!s))?(?:(\d{1,9}(?:\.\d{1,9})?)(ms|s))?", re.I
)

_ADVICE: dict[ModelErrorKind, str] = {
    "auth": "check the key",
    "quota": "check the plan and balance of the account",
    "context_limit": "shorten the conversation or take a model with a larger window",
}


class Complaint(msgspec.Struct, frozen=True):
    sentence: str = ""
    words: str = ""  # its code and type, if it has them
    param: str = ""
    status: int = 0
    wait: float | None = None  # the seconds after which it may be asked again, if the body tells them
    is_error: bool = True  # True if the body itself reports a failure. A body with status 200 may be anything


def make_error(host: str, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> ModelError:
    """The error for an answer with this status and body; status 200 is judged by the body alone."""
    complaint = read_complaint(body)
    status = complaint.status if status == 200 and complaint.status else status
    wait = read_retry_after(headers or {}, time.time)
    wait = complaint.wait if wait is None else wait

    words = f"{complaint.words} {complaint.sentence}"
    kind = classify(status, words)
    # Google calls every limit a quota; those of a minute pass, those of a day and an empty account do not.
    is_lasting = "PerDay" in complaint.words or "insufficient" in words.lower()
    if kind == "quota" and status == 429 and wait is not None and not is_lasting:
        kind = "rate_limit"
    sentence = complaint.sentence or "it gave no reason"
    if complaint.param and complaint.param not in sentence:
        sentence += f" (parameter {complaint.param})"
    advice = f"; {_ADVICE[kind]}" if kind in _ADVICE else ""
    if wait is not None and wait > LONGEST_WAIT_S:
        hours, minutes = divmod(round(wait / 60), 60)
        advice += f"; it can be asked again in {f'{hours} h ' if hours else ''}{minutes} min"
    message = f"{host} answered {status}: {sentence}{advice}"
    return ModelError(kind, message, status=status, retry_after=wait, param=complaint.param)


def classify(status: int, text: str) -> ModelErrorKind:
    text = text.lower()

    def has_any(words: Iterable[str]) -> bool:
        return any(word in text for word in words)

    if "tool_use_failed" in text or (status in (200, 500) and has_any(_SPOILED)):
        return "cut_stream"
    if status == 413 or (status == 429 and "request too large" in text):
        # Also where the limit is one of a minute: only a shorter request passes.
        return "context_limit"
    if status == 402 or (has_any(_QUOTA) and not (status == 429 and has_any(_RATE_CODES))):
        return "quota"
    if status in (401, 403) or (status == 400 and has_any(_BAD_KEY)):
        return "auth"
    if status == 429:
        return "rate_limit"
    if has_any(_CONTEXT):
        return "context_limit"
    if status in (408, 425, 498) or (status >= 500 and status not in (501, 505)):
        return "overloaded"
    if status == 200:
        # The server began well and failed later: it says how, or it is its own fault and may be asked again.
        if has_any(_AUTH):
            return "auth"
        return "rate_limit" if has_any(_RATE) else "bad_request" if has_any(_BAD) else "overloaded"
    return "bad_request"


def read_complaint(body: bytes) -> Complaint:
    """Find the provider's own sentence in any of the shapes that servers use."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Complaint(_shorten_sentence(re.sub(r"<[^>]{0,200}>", " ", body[:20_000].decode("utf-8", "replace"))))
    if isinstance(document, list) and document:
        document = document[0]
    inner = document.get("error", document) if isinstance(document, dict) else document
    is_error = isinstance(document, dict) and bool(
        document.get("error") or "error" in (document.get("object"), document.get("type"))
    )
    if not isinstance(inner, dict):
        return Complaint(_shorten_sentence(str(inner)), is_error=is_error)
    sentence = next((inner[key] for key in ("message", "detail", "error", "msg") if inner.get(key)), inner)
    words = " ".join(str(inner[key]) for key in ("code", "type", "status") if inner.get(key))
    code = inner.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else 0
    more, wait = _parse_details(inner.get("details"))
    param = str(inner.get("param") or "")
    plain = sentence if isinstance(sentence, str) else msgspec.json.encode(sentence).decode()
    match = _TRY_AGAIN.search(plain) if wait is None else None  # "Please try again in 9m38.016s"
    if match is not None and any(match.groups()):
        hours, minutes, number, unit = match.groups()
        seconds = float(number or 0) * (0.001 if unit and unit.lower() == "ms" else 1.0)
        wait = int(hours or 0) * 3600 + int(minutes or 0) * 60 + seconds
    return Complaint(_shorten_sentence(plain), f"{words} {more}", param, status, wait, is_error)


def _parse_details(details: Any) -> tuple[str, float | None]:
    """Return the details that Google adds to its errors: reasons and names of quotas, and the wait."""
    words: list[str] = []
    wait: float | None = None
    for detail in (each for each in (details if isinstance(details, list) else ()) if isinstance(each, dict)):
        violations = detail.get("violations")
        reasons = [detail.get("reason"), *(violations if isinstance(violations, list) else ())]
        words += (str(word.get("quotaId") if isinstance(word, dict) else word) for word in reasons if word)
        if re.fullmatch(r"\d{1,9}(\.\d{1,9})?s", delay := str(detail.get("retryDelay"))):
            wait = float(delay[:-1])
    return " ".join(words), wait


def read_retry_after(headers: Mapping[str, str], now: Callable[[], float]) -> float | None:
    """The wait that the server asked for, in seconds: given as milliseconds, as seconds, or as a date."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
            return float(value) * unit
    until = _parse_moment(headers.get("retry-after", ""))
    if until is None:
        return None
    # The server's own clock is the better base: ours may be wrong.
    base = _parse_moment(headers.get("date", ""))
    return max(0.0, until - (now() if base is None else base))


def _parse_moment(text: str) -> float | None:
    from email.utils import parsedate_to_datetime  # few servers write a date

    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def _shorten_sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SENTENCE_CAP else text[:SENTENCE_CAP] + "…"


_REFUSED = re.compile(
    r"unsupported|(?:n't|not|no longer|cannot) (?:be )?(?:support|permit|allow|accept|set\b|enabl|available|used?\b)"
    r"|unrecogni[sz]ed|unknown|unexpected|extra inputs|deprecated|invalid|too (?:large|high|low|small|many|big)"
    r"|out of range|range\b|must|should|may only|maximum|at most|only the default|instead",
    re.I,
)
_NEAR = 60  # characters between the name and the word that refuses it
_ELSEWHERE = re.compile(  # a sentence about the conversation or about a tool, in which anything may be mentioned
    r"\b(?:messages?|contents?|input|tools?|functions?)(?:[.\[]\d|\b.{0,40}\b(?:schema|propert|parameters?[.\[]|arguments?[.\[]))"
    r"|\bschema\b|\bpropert(?:y|ies)\b",
    re.I,
)


def is_refusal(error: ModelError) -> bool:
    """True if the server refused the request itself."""
    return error.kind == "bad_request" and error.status in (400, 422)


def is_refusal_of(error: ModelError, name: str, words: str = "", *, inside: bool = False) -> bool:
    """True if the server refused the parameter `name`. `words`: a pattern of its name in error messages, if it differs.
    `inside`: True if the parameter is inside the conversation or the tools."""
    if not is_refusal(error):
        return False
    if error.param and not inside:
        return re.match(rf"{re.escape(name)}(?![\w-])", error.param.removeprefix("body.")) is not None
    error_text = str(error)
    if not inside and _ELSEWHERE.search(error_text):
        return False
    pattern = rf"(?<![\w-])(?:{words or re.escape(name)})(?![\w-])"
    return any(
        _REFUSED.search(error_text, max(0, match.start() - _NEAR), match.end() + _NEAR)
        for match in re.finditer(pattern, error_text, re.I)
    )
