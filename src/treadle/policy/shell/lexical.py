"""What bash does to a text before it has words: joins continued lines, takes out here-documents.

Here-documents and here-strings become redirections from a placeholder, because the grammar reads some of them otherwise
than bash does. `sure` is False where this reading might differ from bash's; whoever uses it then assumes the worst.
"""

import re

import msgspec

MARK = "\ue000"
_MAX_NESTING = 100
_TOKEN = re.compile(
    r"\\.?|`(?:\\.|[^`\\])*`?|\$'(?:\\.|[^'\\])*'?|\$\(\(|\$\(|\$\{|<<<|<<|[^\\`$\"'()#<>;&|{}\s]+|.", re.S
)
_PLACEHOLDER = re.compile(f"{MARK}([0-9]+){MARK}")
_CASE = re.compile(r"(?<![\w./-])case\s")
_BEFORE_COMPOUND = re.compile(
    r"(?<![^\s;&|(){}!])(?:(?:time(?:[ \t]+-p)?|!|coproc(?:[ \t]+[A-Za-z_]\w*)?)[ \t]+)+"
    r"(?=[({]|\[\[[ \t]|(?:if|for|while|until|case|select|function)[ \t])"
)
"""Keywords that the grammar knows before simple commands only. They change nothing that counts here, so that even a
mention of them may go."""
_NEEDED = re.compile(r"\\\n|<<|#|" + MARK)
_DELIMITER = re.compile(r"[ \t]*((?:\\.|'[^']*'|\"[^\"]*\"|[^\s;&|()<>\\'\"])+)", re.S)
_QUOTED = re.compile(r"\\(.)|'([^']*)'|\"([^\"]*)\"", re.S)


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
    text = _BEFORE_COMPOUND.sub("", text)
    return _Scanner(text, "top").scan() if _NEEDED.search(text) else Normal(text)


def normalise_body(body: str) -> Normal:
    """The body of a here-document as the argument of `:`, in double quotes; its substitutions stay what they are."""
    found = _Scanner(body, "body").scan()
    return msgspec.structs.replace(found, text=f': "{found.text}"')


def placeholder(word: str) -> int | None:
    """The number of the here-document that a word stands for."""
    match = _PLACEHOLDER.fullmatch(word)
    return int(match[1]) if match else None


class _Scanner:
    """One pass with a stack of what is open: top or body, a double quote, `$(`, `(`, `((`, `${`, and "(a" for
    parentheses in arithmetic."""

    def __init__(self, text: str, start: str) -> None:
        self.text = text
        self.at = 0
        self.out: list[str] = []
        self.stack = [(start, 0)]
        self.pending: list[tuple[int, str, bool]] = []
        self.heredocs: list[Heredoc] = []
        self.comments: list[str] = []
        self.last_quote = text.rfind("'")
        self.sure = MARK not in text

    def scan(self) -> Normal:
        while self.at < len(self.text):
            match = _TOKEN.match(self.text, self.at)
            self._step(match[0] if match else self.text[self.at])
        if self.pending or len(self.stack) > 1:
            self.sure = False
            self._bodies()
        return Normal("".join(self.out), tuple(self.heredocs), tuple(self.comments), self.sure)

    def _copy(self, token: str) -> None:
        self.out.append(token)
        self.at += len(token)

    def _push(self, kind: str, token: str) -> None:
        if kind == "${" and self.stack[-1][0] in ('"', "body"):
            self.sure &= self.last_quote < self.at  # whether a quote counts there depends on what is before it
        self.stack.append((kind, self.at))
        self._copy(token)
        if len(self.stack) > _MAX_NESTING:
            self.sure = False
            self._copy(self.text[self.at :])

    def _pop(self, token: str) -> None:
        self.stack.pop()
        self._copy(token)

    def _step(self, token: str) -> None:
        inside = self.stack[-1][0]
        string = inside in ('"', "body")
        if token == "\\\n":
            self.at += 2
        elif token[0] in "\\`":
            self._copy(token)
        elif token in ("$(", "${"):
            self._push(token, token)
        elif token == "$((":
            self._push("((", token)
        elif token == '"' and inside == "body":
            self.out.append('\\"')
            self.at += 1
        elif token == '"':
            self._pop(token) if inside == '"' else self._push(token, token)
        elif token.startswith("$'"):
            self._copy("$" if string else token)
        elif string:
            self._copy(token)
        elif token == "'" and inside not in ("((", "(a"):
            end = self.text.find("'", self.at + 1)
            self._copy(self.text[self.at : end + 1 if end >= 0 else len(self.text)])
        elif inside in ("${", "((", "(a"):
            self._expression(token, inside)
        else:
            self._plain(token, inside)

    def _expression(self, token: str, inside: str) -> None:
        if inside == "${":
            self._pop(token) if token == "}" else self._copy(token)
        elif token == "(":
            self._push("(a", token)
        elif token == ")" and inside == "(a":
            self._pop(token)
        elif self.text.startswith("))", self.at):
            self._pop("))")
        else:
            self._copy(token)

    def _plain(self, token: str, inside: str) -> None:
        before = self.out[-1][-1] if self.out and self.out[-1] else "\n"
        if token == "(":
            arithmetic = self.text.startswith("((", self.at) and before in " \t\n;&|("
            self._push("((" if arithmetic else "(", "((" if arithmetic else token)
        elif token == ")" and inside != "top":
            if inside == "$(" and _CASE.search(self.text, self.stack[-1][1], self.at):
                self.sure = False  # the parenthesis may be that of a pattern
            self._pop(token)
        elif token == "#" and before in " \t\n;&|()<>":
            self.comments.append(self._line())
            self._copy(self.comments[-1])
        elif token == "<<<":
            self.out.append(f"< {MARK}")
            self.at += 3
            while self.text[self.at : self.at + 1] in (" ", "\t"):
                self.at += 1
        elif token == "<<":
            self._heredoc()
        else:
            self._copy(token)
            if token == "\n" and self.pending:
                self._bodies()

    def _line(self) -> str:
        """The rest of the present line."""
        end = self.text.find("\n", self.at)
        return self.text[self.at : end if end >= 0 else len(self.text)]

    def _heredoc(self) -> None:
        tabs = self.text.startswith("-", self.at + 2)
        match = _DELIMITER.match(self.text, self.at + 2 + tabs)
        word = match[1] if match else ""
        self.sure &= match is not None and not re.search(r"[$`]", word)
        delimiter = _QUOTED.sub(lambda each: next(part for part in each.groups() if part is not None), word)
        self.pending.append((len(self.heredocs), delimiter, tabs))
        self.out.append(f"< {MARK}{len(self.heredocs)}{MARK} ")
        self.heredocs.append(Heredoc("", bool(re.search(r"[\\'\"]", word))))
        self.at = match.end() if match else self.at + 2 + tabs

    def _bodies(self) -> None:
        for number, delimiter, tabs in self.pending:
            line = ("^\t*" if tabs else "^") + re.escape(delimiter)
            match = re.compile(line + r"(?:\n|\Z)", re.M).search(self.text, self.at)
            body = self.text[self.at : match.start() if match else len(self.text)]
            # bash ends it at `EOF)` in a substitution, with a warning
            self.sure &= match is not None and not (len(self.stack) > 1 and re.search(line, body, re.M))
            self.at = match.end() if match else len(self.text)
            body = re.sub(r"^\t+", "", body, flags=re.M) if tabs else body
            self.heredocs[number] = Heredoc(body, self.heredocs[number].literal)
        self.pending = []
