"""What bash does to a text before it has words: joins continued lines, takes out here-documents, expands braces.

Here-documents and here-strings become redirections from a placeholder, because the grammar reads some of them
otherwise than bash does.
`sure` is False where this reading might differ from bash's; whoever uses it then assumes the worst.
"""

import re

import msgspec

from treadle.policy.shell.braces import expand_braces

MARK = "\ue000"
_MAX_NESTING = 100
_SPECIAL = re.compile(r"[\\'\"$`()#<\n{} \t;&|>]")
_PLACEHOLDER = re.compile(f"{MARK}([0-9]+){MARK}")
_CASE = re.compile(r"(?<![\w./-])case\s")
_BEFORE_COMPOUND = re.compile(
    r"(?<![^\s;&|(){}!])(?:(?:time(?:[ \t]+-p)?|!|coproc(?:[ \t]+[A-Za-z_]\w*)?)[ \t]+)+"
    r"(?=[({]|\[\[[ \t]|(?:if|for|while|until|case|select|function)[ \t])"
)
"""Keywords that the grammar knows before simple commands only. They change nothing that counts here, so that even a
mention of them may go."""
_NEEDED = re.compile(r"\\\n|<<|\{|#|" + MARK)


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
    if not _NEEDED.search(text):
        return Normal(text)
    return _Scanner(text).scan()


def placeholder(word: str) -> int | None:
    """The number of the here-document that a word stands for."""
    match = _PLACEHOLDER.fullmatch(word)
    return int(match[1]) if match else None


def skip_single(text: str, start: int) -> int:
    """The place behind the quote that closes the one before `start`; the end if none does."""
    end = text.find("'", start)
    return len(text) if end < 0 else end + 1


def skip_escaped(text: str, start: int, closing: str) -> int:
    """Like skip_single, where a backslash hides the closing character."""
    at = start
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == closing:
            return at + 1
        else:
            at += 1
    return len(text)


class _Scanner:
    """One pass with a stack of what is open: "top", '"', "$(", "(", "$((", "${"."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.out: list[str] = []
        self.open = ["top"]
        self.word = 0
        """Where in `out` the present word begins."""
        self.words: list[int] = []
        """The same of what is open outside."""
        self.begins: list[int] = []
        """Where in `out` that which is open begins."""
        self.pending: list[tuple[int, str, bool]] = []
        self.heredocs: list[Heredoc] = []
        self.comments: list[str] = []
        self.sure = MARK not in text

    def scan(self) -> Normal:
        text = self.text
        while self.at < len(text):
            match = _SPECIAL.search(text, self.at)
            if match is None:
                self._copy(len(text))
                break
            self._copy(match.start())
            self._step(match[0])
        if self.pending or len(self.open) > 1:
            self.sure = False
            self._bodies()
        return Normal("".join(self.out), tuple(self.heredocs), tuple(self.comments), self.sure)

    def _copy(self, end: int) -> None:
        if end > self.at:
            self.out.append(self.text[self.at : end])
            self.at = end

    def _step(self, char: str) -> None:
        text, at, inside = self.text, self.at, self.open[-1]
        if char == "\\":
            if text.startswith("\\\n", at):
                self.at += 2
            else:
                self._copy(min(at + 2, len(text)))
        elif char == "`":
            self._copy(skip_escaped(text, at + 1, "`"))
        elif char == "$":
            self._dollar()
        elif char == '"':
            self._toggle_quote()
        elif inside == '"':
            self._copy(at + 1)
        elif char == "'" and inside != "$((":
            self._copy(skip_single(text, at + 1))
        elif inside == "${":
            self._pop("}") if char == "}" else self._copy(at + 1)
        elif inside == "$((":
            self._arithmetic(char)
        else:
            self._plain(char)

    def _dollar(self) -> None:
        text, at, inside = self.text, self.at, self.open[-1]
        if text.startswith("$'", at) and inside != '"':
            self._copy(skip_escaped(text, at + 2, "'"))
        elif text.startswith("$((", at):
            self._push("$((", 3)
        elif text.startswith("$(", at):
            self._push("$(", 2)
        elif text.startswith("${", at):
            end = _simple_parameter(text, at)
            self._copy(end) if end else self._push("${", 2)
        else:
            self._copy(at + 1)

    def _push(self, what: str, length: int) -> None:
        self._copy(self.at + length)
        if what == "${" and self.open[-1] == '"' and "'" in self.text[self.at :]:
            self.sure = False  # whether a quote counts there depends on what stands before it
        self.open.append(what)
        self.words.append(self.word)
        self.begins.append(len(self.out))
        if what != '"':
            self.word = len(self.out)
        if len(self.open) > _MAX_NESTING:
            self.sure = False
            self._copy(len(self.text))

    def _pop(self, closing: str) -> None:
        self._copy(self.at + len(closing))
        if len(self.open) > 1:
            self.open.pop()
            self.word = self.words.pop()
            self.begins.pop()

    def _toggle_quote(self) -> None:
        if self.open[-1] == '"':
            self._pop('"')
        else:
            self._push('"', 1)

    def _arithmetic(self, char: str) -> None:
        if char == "(":
            self._push("(a", 1)
        elif char == ")" and self.text.startswith("))", self.at):
            self._pop("))")
        else:
            self._copy(self.at + 1)

    def _plain(self, char: str) -> None:
        text, at = self.text, self.at
        if char == "(":
            arithmetic = text.startswith("((", at) and self.word == len(self.out)
            self._push("$((" if arithmetic else "(", 2 if arithmetic else 1)
        elif char == ")":
            self._close()
        elif char == "#" and self.word == len(self.out) and self.open[-1] != "(a":
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            self.comments.append(text[at:end])
            self._copy(end)
        elif char == "<":
            self._less()
        elif char == "{":
            self._brace()
        else:
            self._copy(at + 1)
            if char == "\n" and self.pending:
                self._bodies()
            self.word = len(self.out)

    def _close(self) -> None:
        inside = self.open[-1]
        if inside == "$(" and _CASE.search("".join(self.out[self.begins[-1] :])):
            self.sure = False  # the parenthesis may be that of a pattern
        if inside in ("$(", "(", "(a"):
            self._pop(")")
        else:
            self._copy(self.at + 1)
        if inside != "$(":
            self.word = len(self.out)

    def _less(self) -> None:
        text = self.text
        if text.startswith("<<<", self.at):
            self.at += 3
            while self.at < len(text) and text[self.at] in " \t":
                self.at += 1
            self.out.append(f"< {MARK}")
        elif text.startswith("<<", self.at) and self.open[-1] != "(a":
            self._heredoc()
        else:
            self._copy(self.at + 1)
        self.word = len(self.out)

    def _heredoc(self) -> None:
        text, at = self.text, self.at + 2
        tabs = text.startswith("-", at)
        at += tabs
        while text[at : at + 1] in (" ", "\t") and at < len(text):
            at += 1
        end, delimiter, quoted = _delimiter(text, at)
        if end == at:
            self.sure = False
        number = len(self.heredocs)
        self.heredocs.append(Heredoc("", quoted))
        self.pending.append((number, delimiter, tabs))
        self.out.append(f"< {MARK}{number}{MARK} ")
        self.at = end

    def _bodies(self) -> None:
        for number, delimiter, tabs in self.pending:
            lines = []
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                if tabs:
                    line = line.lstrip("\t")
                if line == delimiter:
                    break
                if self.at >= len(self.text):
                    self.sure = False
                if self.open[-1] == "$(" and line.startswith(delimiter):
                    self.sure = False  # bash ends it at `EOF)` in a substitution, with a warning
                lines.append(line + "\n")
            self.heredocs[number] = Heredoc("".join(lines), self.heredocs[number].literal)
        self.pending = []

    def _brace(self) -> None:
        prefix = "".join(self.out[self.word :])
        end = word_end(self.text, self.at)
        raw = prefix + self.text[self.at : end]
        words = expand_braces(raw)
        if words == [raw]:
            self._copy(self.at + 1)
            return
        del self.out[self.word :]
        self.out.append(" ".join(words))
        self.at = end


def _delimiter(text: str, at: int) -> tuple[int, str, bool]:
    """A here-document's delimiter with its quotes removed: where it ends, what it is, whether it was quoted."""
    parts, quoted = [], False
    while at < len(text) and text[at] not in " \t\n;&|()<>":
        char = text[at]
        end = at + 1
        if char == "\\":
            quoted, end = True, at + 2
            parts.append(text[at + 1 : end])
        elif char == "'" or text.startswith("$'", at):
            quoted, begin = True, at + (1 if char == "'" else 2)
            end = skip_single(text, begin)
            parts.append(text[begin : end - 1])
        elif char == '"':
            quoted, end = True, skip_escaped(text, at + 1, '"')
            parts.append(text[at + 1 : end - 1])
        else:
            parts.append(char)
        at = end
    return at, "".join(parts), quoted


def _simple_parameter(text: str, at: int) -> int:
    """The end of `${…}` that holds no quotes and nothing nested; 0 if it does."""
    end = text.find("}", at)
    if end < 0 or any(c in text[at + 2 : end] for c in "\\'\"$`({"):
        return 0
    return end + 1


def word_end(text: str, at: int) -> int:
    """Where the unquoted word that `at` stands in ends."""
    depth = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 2
        elif char == "'":
            at = skip_single(text, at + 1)
        elif char in '"`':
            at = skip_escaped(text, at + 1, char)
        elif char == "$" and text.startswith("$'", at):
            at = skip_escaped(text, at + 2, "'")
        elif char == "(" and text[at - 1 : at] == "$":
            depth += 1
            at += 1
        elif depth and char in "()":
            depth += 1 if char == "(" else -1
            at += 1
        elif not depth and char in " \t\n;&|()<>":
            break
        else:
            at += 1
    return min(at, len(text))
