"""The first steps of bash before it splits a text into words: joins continued lines and extracts here-documents.

Here-documents and here-strings become redirections from a placeholder, because the grammar parses some of them
differently from bash. Quotes are recognised, nesting is not: `sure` is False where bash may read the text differently,
and the caller then assumes the worst.
"""

import re

import msgspec

MARK = "\ue000"
_TOKEN = re.compile(
    r"\\\n|\\.?|`(?:\\.|[^`\\])*`?|\$'(?:\\.|[^'\\])*'?|'[^']*'?|\"(?:\\.|[^\"\\])*\"?|\$?\(\((?:[^()]|\([^()]*\))*\)\)|\$\{[^}]*\}?"
    r"|(?P<comment>(?<![^\s;&|()<>])#[^\n]*)|<<<[ \t]*|<<|[^\\`$\"'(#<>;&|)\s]+|.",
    re.S,
)
_PLACEHOLDER = re.compile(f"{MARK}([0-9]+){MARK}")
_NEEDED = re.compile(r"\\\n|<<|#|" + MARK)
_DELIMITER = re.compile(r"[ \t]*((?:\\.|'[^']*'|\"[^\"]*\"|[^\s;&|()<>\\'\"])+)", re.S)
_QUOTED = re.compile(r"\\(.)|'([^']*)'|\"([^\"]*)\"", re.S)
_CLOSED = re.compile(r"\\.|\$\([^()]*\)|\$\{[^{}'\"]*\}|`[^`]*`", re.S)
_OPEN = re.compile(r"[\"$].*(?:\$[({]|`)|\$\{", re.S)


class Heredoc(msgspec.Struct, frozen=True):
    body: str
    literal: bool
    """Its delimiter was quoted: nothing in it is expanded."""


class Normal(msgspec.Struct, frozen=True):
    text: str
    heredocs: tuple[Heredoc, ...] = ()
    comments: tuple[str, ...] = ()
    sure: bool = True


def normalise(text: str) -> Normal:
    return _Scanner(text).scan() if _NEEDED.search(text) else Normal(text)


def placeholder(word: str) -> int | None:
    """The number of the here-document that a word stands for."""
    match = _PLACEHOLDER.fullmatch(word)
    return int(match[1]) if match else None


class _Scanner:
    """One pass over the tokens of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.out: list[str] = []
        self.pending: list[tuple[int, str, bool]] = []
        self.heredocs: list[Heredoc] = []
        self.comments: list[str] = []
        self.nests = False
        """A quote may stand inside of what stands in quotes: then they cannot be told apart here."""
        self.sure = MARK not in text

    def scan(self) -> Normal:
        while self.at < len(self.text):
            match = _TOKEN.match(self.text, self.at)
            self._step(match[0], match["comment"] is not None) if match else self._step(self.text[self.at])
        if self.pending:
            self.sure = False
            self._bodies()
        sure = self.sure and not (self.nests and (self.heredocs or self.comments))
        return Normal("".join(self.out), tuple(self.heredocs), tuple(self.comments), sure)

    def _step(self, token: str, comment: bool = False) -> None:
        self.at += len(token)
        self.nests |= token[0] in '"$' and _OPEN.match(_CLOSED.sub("", token)) is not None
        if token == "<<":
            self._heredoc()
        elif token.startswith("<<<"):
            self.out.append(f"< {MARK}")
        elif token != "\\\n":
            self.out.append(token.replace("\\\n", "") if token[0] == '"' else token)
            self.comments += [token] if comment else []
        if token == "\n" and self.pending:
            self._bodies()

    def _heredoc(self) -> None:
        tabs = self.text.startswith("-", self.at)
        match = _DELIMITER.match(self.text, self.at + tabs)
        word = match[1] if match else ""
        self.sure &= match is not None and not re.search(r"[$`]", word)
        delimiter = _QUOTED.sub(lambda each: next(part for part in each.groups() if part is not None), word)
        self.pending.append((len(self.heredocs), delimiter, tabs))
        self.out.append(f"< {MARK}{len(self.heredocs)}{MARK} ")
        self.heredocs.append(Heredoc("", bool(re.search(r"[\\'\"]", word))))
        self.at = match.end() if match else self.at + tabs

    def _bodies(self) -> None:
        for number, delimiter, tabs in self.pending:
            line = ("^\t*" if tabs else "^") + re.escape(delimiter)
            match = re.compile(line + r"(?:\n|\Z)", re.M).search(self.text, self.at)
            body = self.text[self.at : match.start() if match else len(self.text)]
            # bash ends it at `EOF)` in a substitution, with a warning
            self.sure &= match is not None and not ("(" in self.text and re.search(line, body, re.M))
            self.at = match.end() if match else len(self.text)
            body = re.sub(r"^\t+", "", body, flags=re.M) if tabs else body
            self.heredocs[number] = Heredoc(body, self.heredocs[number].literal)
        self.pending = []
