"""Takes secrets out of text (S-11): by value, those of the environment; by shape, the keys and tokens of known makers.
Redacting twice is the same as once. Fast: a family of patterns is tried only where one of its literals occurs. Careful
with what only looks like a secret: hashes, UUIDs, packed images and minified code pass."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from os.path import commonprefix
from typing import NamedTuple
from urllib.parse import quote, unquote

from treadle.protocol.permissions import SECRET_NAME

SHORTEST = 8  # the length of the shortest secret. A shorter value would match in many texts.

_SURE_NAME = re.compile(r"API_?KEY|ACCESS_?KEY|TOKEN|SECRET|PASSW|PASSPHRASE|PRIVATE_?KEY", re.I)
# fmt: off
_COMMON = frozenset({
    "changeme", "change_me", "default", "defaults", "development", "disabled", "empty", "enabled", "example", "false",
    "localhost", "none", "null", "optional", "passphrase", "passwd", "password", "postgres", "prompt", "production",
    "required", "secret", "staging", "string", "true", "undefined", "unlimited", "username", "value", "your_password",
})
# fmt: on


class _Family(NamedTuple):
    """Secrets of one kind. The group `secret`, if there is one, is what goes; else the whole match."""

    kind: str
    literals: tuple[str, ...]
    """Every pattern begins with one of these, or with what they have in common: that is what makes it quick."""
    pattern: str  # compiled when it is first needed, which most never are
    letter: str  # one that all literals have, and that is rarer than others


def _make_family(kind: str, begins: str, pattern: str) -> _Family:
    literals = tuple(begins.split())
    common = set.intersection(*map(set, literals))
    letter = next((letter for letter in "_-.:JzKIAu" if letter in common), min(common, default=""))
    return _Family(kind, literals, pattern, letter)


def _make_token_family(kind: str, begins: str, suffix_pattern: str) -> _Family:
    """A word that begins in one of these ways and goes on like this; not in the middle of a longer one."""
    words = "|".join(f"{re.escape(word)}(?<![A-Za-z0-9_\\-./+]{re.escape(word)})" for word in begins.split())
    return _make_family(kind, begins, f"(?:{words}){suffix_pattern}(?![A-Za-z0-9_\\-])")


_LONG_RUN = r"(?=[A-Za-z0-9_\-]*[A-Za-z0-9_]{16})(?=[A-Za-z_\-]*[0-9])"
"""A lookahead for a digit, and for sixteen letters or digits in a row: distinguishes a key from the name of a style."""
_PLAIN = r"(?![$<{(*%\[]|\.\.\.)"  # no placeholder
_BEARER = rf"{_PLAIN}(?P<secret>(?=[A-Za-z\-_.+/]*[0-9])[A-Za-z0-9\-_.~+/]{{16,}}=*)"
_PEM = r"(?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
# Of a key whose end is missing, as `head` shows it: numbered, in a diff, or with its line breaks escaped.
_PEM_LINE = (
    r"(?:\s|\\[nr]){1,20}(?:\d{1,6}[\t│|: ]{1,4})?[+>|\-]?[ ]{0,20}(?:[A-Za-z\-]+: [^\n]{1,200}|[A-Za-z0-9+/=]{16,})"
)

FAMILIES: tuple[_Family, ...] = (
    _make_family(
        "private key",
        "-----BEGIN",
        rf"-----BEGIN {_PEM}(?:(?:(?!-----BEGIN)[\s\S]){{0,20000}}?-----END {_PEM}|(?:{_PEM_LINE}){{1,400}})",
    ),
    _make_family(
        "private key",
        "-----END",
        rf"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/=]{{16,}}(?:{_PEM_LINE}){{0,60}}\s{{1,4}}"
        rf"(?:\d{{1,6}}[\t│|: ]{{1,4}})?-----END {_PEM}",
    ),
    _make_token_family("Anthropic key", "sk-ant-", r"[A-Za-z0-9_\-]{20,}"),
    _make_token_family("API key", "sk-", rf"{_LONG_RUN}[A-Za-z0-9_\-]{{20,}}"),
    _make_token_family("Stripe key", "sk_live_ rk_live_ sk_test_ whsec_", r"[A-Za-z0-9]{16,}"),
    _make_token_family("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", r"[A-Za-z0-9]{36,}"),
    _make_token_family("GitHub token", "github_pat_", r"[A-Za-z0-9_]{22,}"),
    _make_token_family("GitLab token", "glpat-", r"[A-Za-z0-9_\-]{20,}"),
    _make_token_family("AWS key id", "AKIA ASIA", r"[0-9A-Z]{16}"),
    _make_token_family("Google key", "AIza", r"[0-9A-Za-z_\-]{35}"),
    _make_token_family("Google token", "ya29.", r"[0-9A-Za-z_\-]{20,}"),
    _make_token_family("Slack token", "xoxb- xoxp- xoxa- xoxs- xapp-", r"(?=[A-Za-z\-]*[0-9])[A-Za-z0-9\-]{10,}"),
    _make_token_family("npm token", "npm_", r"[A-Za-z0-9]{36}"),
    _make_token_family("PyPI token", "pypi-", r"[A-Za-z0-9_\-]{50,}"),
    _make_token_family("Hugging Face token", "hf_", r"[A-Za-z0-9]{30,}"),
    _make_token_family("Docker token", "dckr_pat_", r"[A-Za-z0-9_\-]{20,}"),
    _make_token_family("SendGrid key", "SG.", r"[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{16,}"),
    _make_token_family("web token", "eyJ", r"[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}"),
    _make_family("authorization", "earer EARER", rf"(?:earer|EARER)[ ]+{_BEARER}"),
    _make_family(
        "authorization",
        "uthorization UTHORIZATION",
        rf"(?i:uthorization)[\"']?\s*[:=]\s*[\"']?(?i:bearer|basic|token)[ ]+{_BEARER}",
    ),
    _make_family(
        "password", "://", rf"://[^\s/:@\"'<>]{{0,200}}:{_PLAIN}(?P<secret>[^\s/\"'<>]{{3,200}})@(?=[\w\[.\-$])"
    ),
    _make_family(
        "token", "://", rf"://{_PLAIN}(?P<secret>(?=[A-Za-z_\-]*[0-9])[A-Za-z0-9_\-.~%+]{{16,200}})@(?=[\w\[])"
    ),
)

_VALUE = r"=[\"']?(?P<secret>[^\s\"'#]{8,})"
_ASSIGNED = tuple((f"{word}=", re.compile(word + _VALUE)) for word in ("KEY", "TOKEN", "SECRET"))
"""As in a file of settings for the environment: NAME=value at the beginning of a line."""
_LINE_BEFORE = re.compile(r"[ \t0-9│|:+>\-]*(?:(?:export|ENV|ARG)[ \t]+)?([A-Z][A-Z0-9_]*)?")

_PASSWORD = re.compile(
    r"^[ \t0-9│|:+>\-]*(?:(?:export|set|ENV|ARG)[ \t]+)?"
    r"(?P<name>[A-Za-z][\w.\-]{0,60}?)?(?P<word>(?i:passw(?:or)?d|passphrase))="
    r"(?P<quote>[\"']?)(?P<secret>[^\s\"'#]{4,})(?P=quote)[ \t]*$",
    re.MULTILINE,
)  # NAME_PASSWORD=value and nothing else on its line, as in `.env` and `.properties`
_INLINE_PASSWORD = re.compile(
    r"(?P<name>[A-Z][A-Z0-9_]{0,60}_)(?P<word>PASSW(?:OR)?D|PASSPHRASE)=(?P<quote>[\"']?)(?P<secret>[^\s\"'#]{4,})"
)  # the same among other text, or glued to it, as two programs write it one after the other
_CODE_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_KEYED_WORDS = ("passw", "passphrase", "secret", "token", "api")
_KEYED_HINT = re.compile(r"(?i:passw|passphrase|secret|token|api_?-?key)[\w\-]{0,20}[\"']?[ \t]*:")
_KEYED = re.compile(
    r"(?:^|[{,])(?P<before>[ \t0-9│|:+>\-]*)(?P<mark>[\"']?)"
    r"(?P<name>[\w.\-]{0,60}?(?i:passw(?:or)?d|passphrase|secret|token|api[_\-]?key|secret[_\-]?access[_\-]?key))(?P=mark)"
    r"[ \t]*:[ \t]*(?P<quote>[\"']?)(?P<secret>[^\s\"',;{}]{8,200})(?P=quote)(?=[ \t]*(?:[,}]|#.*|\r?$))",
    re.MULTILINE,
)  # `password: value` in YAML and `"password": "value"` in JSON


class Redactor:
    """`env` is where secrets are looked for by name; `extra` are others, by what to call them."""

    def __init__(self, env: Mapping[str, str], extra: Mapping[str, str] | None = None) -> None:
        self._values = _collect_values(env, extra or {})

    def __call__(self, text: str) -> str:
        for value, kind in self._values:
            if value in text:
                text = text.replace(value, f"[redacted: {kind}]")
        for family in (each for each in FAMILIES if each.letter in text):
            for literal in family.literals:
                if literal in text:
                    text = re.sub(family.pattern, partial(_replace_secret, f"[redacted: {family.kind}]"), text)
                    break
        for literal, pattern in _ASSIGNED:
            if literal in text:
                text = pattern.sub(_redact_assignment, text)
        lower = text.lower()  # a search for plain words is quicker than a pattern without regard to case
        if "assw" in lower or "assphrase" in lower:
            text = _PASSWORD.sub(_redact_password, text)
            text = _INLINE_PASSWORD.sub(_redact_inline_password, text)
        if any(word in lower for word in _KEYED_WORDS) and _KEYED_HINT.search(text):
            text = _KEYED.sub(_redact_keyed_value, text)
        return text

    def make_live_text(self) -> Callable[[str], str]:
        """The same for text that comes in pieces: a secret that is cut in two is held back until it is whole."""
        return LiveText(self)

    def measure_finished(self, text: str) -> int:
        """How much of a text that may go on can be shown: behind it may be the beginning of a secret."""
        length = len(text)
        key = text.rfind(_KEY_BEGINS)
        if key >= 0 and not _KEY_ENDS.search(text, key):
            length = key
        if (match := _BEGINS.search(text, max(0, len(text) - _TAIL))) is not None:
            length = min(length, match.start())
        for value, _ in self._values:  # the letters at the end of the text that are the beginning of the value
            starts = range(min(len(text), len(value) - 1), _SHORTEST_START - 1, -1)
            length = min(length, len(text) - next((size for size in starts if text.endswith(value[:size])), 0))
        return length if len(text) - length <= _LONGEST_HELD else len(text)


def _collect_values(env: Mapping[str, str], extra: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the values to redact and their names, the longest first: one may be a part of another."""
    names_by_value = {value: name for name, value in extra.items() if len(value) >= SHORTEST}
    for name, value in ((name, value.strip()) for name, value in env.items()):
        if SECRET_NAME.search(name) and is_secret(name, value):
            names_by_value.setdefault(value, name)
        elif "://" in value and (match := _URL_PASSWORD.match(value)) and len(match[1]) >= SHORTEST:
            names_by_value.setdefault(match[1], f"password of {name}")
            names_by_value.setdefault(unquote(match[1]), f"password of {name}")
    for value, name in list(names_by_value.items()):
        names_by_value.setdefault(quote(value, safe=""), name)
    return sorted(names_by_value.items(), key=lambda item: -len(item[0]))


_URL_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^\s/:@]*:([^\s/@]+)@")


def is_secret(name: str, value: str) -> bool:
    """True if the value of a variable with a suspicious name is a secret, and not a path, a switch or a plain word."""
    if len(value) < SHORTEST or value.lower() in _COMMON or value.isdecimal():
        return False
    if value.startswith(("/", "~", "./", "$", "<", "{", "file:", "%")) or "[redacted" in value or " " in value:
        return False
    if _SURE_NAME.search(name):
        return True
    kinds = (str.islower, str.isupper, str.isdigit)
    return len(value) >= 16 and sum(any(kind(letter) for letter in value) for kind in kinds) >= 2


def _replace_secret(instead: str, match: re.Match[str]) -> str:
    start, end = match.span("secret" if "secret" in match.re.groupindex else 0)
    return match.string[match.start() : start] + instead + match.string[end : match.end()]


def _redact_assignment(match: re.Match[str]) -> str:
    text, at = match.string, match.start()
    line_match = _LINE_BEFORE.fullmatch(text, text.rfind("\n", 0, at) + 1, at)
    if line_match is None:
        return match[0]
    name = (line_match[1] or "") + match[0].partition("=")[0]
    secret = _SURE_NAME.search(name) and is_secret(name, match["secret"]) and _is_random_text(match["secret"])
    return _replace_secret(f"[redacted: {name}]", match) if secret else match[0]


def _redact_password(match: re.Match[str]) -> str:
    """Under a name in capitals every plain value is a password; in small letters it may be the argument of a call."""
    name, value = (match["name"] or "") + match["word"], match["secret"]
    if not _is_plain(value) or not (name.isupper() or (_is_random_text(value) and len(value) >= SHORTEST)):
        return match[0]
    return _replace_secret(f"[redacted: {name}]", match)


def _redact_inline_password(match: re.Match[str]) -> str:
    """Among other text the value may be a name in code: `connect(DB_PASSWORD=settings.PASSWORD)`."""
    if not _is_plain(match["secret"]) or _CODE_NAME.fullmatch(match["secret"]):
        return match[0]
    return _replace_secret(f"[redacted: {match['name']}{match['word']}]", match)


def _is_plain(value: str) -> bool:
    return not re.search(r"[(){}<>;,\[\]]|\$|^%|^\*+$|^\.\.\.", value) and value.lower() not in _COMMON


def _redact_keyed_value(match: re.Match[str]) -> str:
    """A quoted name has a quoted value: without quotes it is code. Names of variables, paths and addresses are none."""
    value = match["secret"]
    code = bool(match["mark"]) and not match["quote"]
    if (
        code
        or not is_secret(match["name"], value)
        or not _is_random_text(value)
        or re.search(r"[:/\[\]*]|\w\.\w", value)
    ):
        return match[0]
    return _replace_secret(f"[redacted: {match['name']}]", match)


def _is_random_text(value: str) -> bool:
    """Letters and digits together, and no code: an assignment in a file is not known to be real."""
    is_code = re.search(r"[(){}<>;,]|\$", value)
    return not is_code and any(map(str.isdigit, value)) and any(map(str.isalpha, value))


# -- streamed text: what may be the beginning of a secret is held back until more arrives -----------------------------
_LONGEST_HELD = 20_000
_SHORTEST_START = 4
_KEPT = 64
_TAIL = 400  # how far back the beginning of a token is looked for
_BEGINS = re.compile(
    r"(?:(?<![A-Za-z0-9_\-])(?:sk-|[sr]k_|whsec_|gh[pousr]_|github_pat_|gl(?:pat|dt|rt)-|AKIA|ASIA|AIza|ya29\.|xox|xapp-"
    r"|npm_|pypi-|hf_|dckr_pat_|SG\.|eyJ)[A-Za-z0-9_\-.]*"
    r"|(?i:bearer|basic)[ ]+[^\s]*|[A-Za-z][A-Za-z0-9+.\-]*://[^\s/]*|[A-Z][A-Z0-9_]*=[^\s]*"
    r"|[\w.\-]*(?i:passw(?:or)?d|passphrase|secret|token|api[_\-]?key)"
    r"(?:=|[\"']?[ \t]*:[ \t]*)[\"']?[^\s\"']*[\"']?[ \t]*)$"
)
_KEY_BEGINS = "-----BEGIN "
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]*-----")


class LiveText:
    """One stream. Text held at its end is only in the result. The last letters are checked again with the next."""

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact
        self._shown = self._held = ""

    def __call__(self, piece: str) -> str:
        text = self._shown + self._held + piece
        length = self._redact.measure_finished(text)
        if length <= len(self._shown):
            self._held += piece
            return ""
        clean = self._redact(text[:length])
        news = clean[len(commonprefix((self._shown, clean))) :]  # noqa: RUF071 - letters, not folders
        self._held = text[length:]
        self._shown = (self._shown + news)[-_KEPT:]
        return news
