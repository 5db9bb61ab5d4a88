"""Inputs that models send to edit_file, and the results (T-03): the text afterwards and how the passage was found, or
words that the error must contain. Written from what the edit means, not from what the code does."""

# ruff: noqa: RUF001

from typing import Literal

import msgspec

How = Literal["exact", "line_endings", "trailing_space", "punctuation", "indentation", "line_numbers"]


class Case(msgspec.Struct, frozen=True):
    title: str
    text: str
    old: str
    new: str
    expected: str = ""
    match_kind: How = "exact"
    count: int = 1
    every: bool = False
    line: int = 0
    error: tuple[str, ...] = ()
    """Words of the error; empty: the edit is made."""


def make_case(
    title: str, text: str, old: str, new: str, expected: str, match_kind: How = "exact", count: int = 1
) -> Case:
    return Case(title, text, old, new, expected, match_kind, count, every=False)


def every(title: str, text: str, old: str, new: str, expected: str, count: int, match_kind: How = "exact") -> Case:
    return Case(title, text, old, new, expected, match_kind, count, every=True)


def at(line: int, title: str, text: str, old: str, new: str, expected: str, match_kind: How = "exact") -> Case:
    return Case(title, text, old, new, expected, match_kind, line=line)


def fails(title: str, text: str, old: str, new: str, *words: str) -> Case:
    return Case(title, text, old, new, error=words)


PY = "import os\n\n\nclass Shop:\n    def price(self, n):\n        total = n * 2\n        return total\n\n    def close(self):\n        return None\n"  # noqa: E501
TABS = "func main() {\n\tif ok {\n\t\tprint(1)\n\t}\n}\n"
BOM = "\ufeff"

EXACT = [
    make_case("a word", "a b c", "b", "x", "a x c"),
    make_case("a word and its space", "a b c", "b ", "", "a c"),
    make_case("a whole line", "one\ntwo\nthree\n", "two\n", "zwei\n", "one\nzwei\nthree\n"),
    make_case("a line deleted", "one\ntwo\nthree\n", "two\n", "", "one\nthree\n"),
    make_case("lines inserted", "one\nthree\n", "three", "two\nthree", "one\ntwo\nthree\n"),
    make_case("the whole file", "all\n", "all\n", "new\n", "new\n"),
    make_case("the last line without newline", "a\nb", "b", "c", "a\nc"),
    make_case("the first line", "a\nb\n", "a\n", "x\ny\n", "x\ny\nb\n"),
    make_case("no newline in the file", "no newline", "newline", "end", "no end"),
    make_case("the final newline asked away", "a\n", "a\n", "b", "b"),
    make_case("regular expression characters", "a.c abc", "a.c", "x", "x abc"),
    make_case("backslashes in the new text", "a b", "b", r"\1 \g<0> \n", r"a \1 \g<0> \n"),
    make_case("a backslash n that the file has", 'print("a\\n")\n', '"a\\n"', '"b\\n"', 'print("b\\n")\n'),
    make_case("a dollar and braces", "cost: ${X}", "${X}", "$1", "cost: $1"),
    make_case("a method", PY, "        total = n * 2\n", "        total = n * 3\n", PY.replace("n * 2", "n * 3")),
    make_case("the new text contains the old", "a\n", "a", "a a", "a a\n"),
    make_case("the old contains the new", "abc", "abc", "b", "b"),
    make_case("blank lines only", "a\n\n\n\nb", "\n\n\n\n", "\n\n", "a\n\nb"),
    make_case("only spaces", "a    b", "    ", " ", "a b"),
    make_case("unicode", "grüße, 世界 🌍\n", "世界 🌍", "Welt", "grüße, Welt\n"),
    make_case("combining characters stay", "e\u0301a\n", "a", "b", "e\u0301b\n"),
    make_case("smart quotes written exactly", "“a” and “b”", "“a”", "“c”", "“c” and “b”"),
    make_case("a form feed and a line separator", "a\x0cb\u2028c\n", "b\u2028c", "d", "a\x0cd\n"),
    make_case("an escape sequence", "\x1b[1mbold\x1b[0m", "bold", "thin", "\x1b[1mthin\x1b[0m"),
    make_case("tabs", TABS, "\t\tprint(1)\n", "\t\tprint(2)\n", TABS.replace("1", "2")),
    make_case("tab inside a line", "a\tb\n", "a\tb", "a b", "a b\n"),
    make_case("the first line begins inside an indentation", PY, "return None", "return 0", PY.replace("None", "0")),
    make_case(
        "the first line lost its indentation only",
        PY,
        "def close(self):\n        return None",
        "def close(self):\n        return 0",
        PY.replace("None", "0"),
    ),
    make_case("trailing space that the file has", "a  \nb\n", "a  \nb", "c", "c\n"),
    make_case("trailing space asked away", "a  \nb\n", "a  \n", "a\n", "a\nb\n"),
    make_case("text that looks like a line number", "1: one\n2: two\n", "2: two", "2: zwei", "1: one\n2: zwei\n"),
    make_case("a table with tabs and numbers", "1\tx\n2\ty\n", "2\ty", "2\tz", "1\tx\n2\tz\n"),
    make_case("HTML entities that are there", "a &lt; b\n", "&lt;", "&gt;", "a &gt; b\n"),
    make_case("a lone carriage return inside a line", "a\rb\nc\n", "b\n", "x\n", "a\rx\nc\n"),
    make_case("a NUL-like control character", "a\x01b", "\x01", " ", "a b"),
    make_case("a null edit apart from case", "Abc", "Abc", "abc", "abc"),
]

EVERY = [
    every("words", "x x x", "x", "y", "y y y", 3),
    every("once is enough", "a x", "x", "y", "a y", 1),
    every("overlapping ones are taken from the left", "aaaa", "aa", "b", "bb", 2),
    every("the new text contains the old", "x x", "x", "xx", "xx xx", 2),
    every("lines", "a\nb\na\n", "a\n", "c\nc\n", "c\nc\nb\nc\nc\n", 2),
    every("deleted", "a-b-c", "-", "", "abc", 2),
    every("across CRLF", "a\r\nb a\r\nb", "a\nb", "c", "c c", 2, "line_endings"),
    every("past trailing space", "a \nb\na\t\nb\n", "a\nb\n", "c\n", "c\nc\n", 2, "trailing_space"),
    every("past smart quotes", "“x” “x”", '"x"', "y", "y y", 2, "punctuation"),
    every(
        "at several depths",
        "if a:\n    go()\n    stop()\nif b:\n        go()\n        stop()\n",
        "go()\nstop()\n",
        "run()\n",
        "if a:\n    run()\nif b:\n        run()\n",
        2,
        "indentation",
    ),
]

ENDINGS = [
    make_case("one line of a CRLF file", "a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n"),
    make_case("several lines sent with LF", "a\r\nb\r\nc", "a\nb", "x\ny", "x\r\ny\r\nc", "line_endings"),
    make_case("several lines sent with CRLF", "a\r\nb\r\nc", "a\r\nb", "x\r\ny", "x\r\ny\r\nc"),
    make_case("old with CRLF, new with LF", "a\r\nb\r\nc", "a\r\nb", "x\ny", "x\r\ny\r\nc"),
    make_case("CRLF sent to an LF file", "a\nb\nc", "a\r\nb", "x\r\ny", "x\ny\nc", "line_endings"),
    make_case("only the new text has CRLF, the file LF", "a\nb\n", "a", "x\r\ny", "x\ny\nb\n"),
    make_case("a line deleted from a CRLF file", "a\r\nb\r\nc\r\n", "b\n", "", "a\r\nc\r\n", "line_endings"),
    make_case("a CRLF file without final newline", "a\r\nb", "a\nb", "c\nd", "c\r\nd", "line_endings"),
    make_case(
        "mixed endings: the replaced lines keep theirs", "a\nb\r\nc\n", "b\nc", "x\ny", "a\nx\r\ny\n", "line_endings"
    ),
    make_case("mixed endings: another line's is untouched", "a\nb\r\nc\nd\n", "a", "x\ny", "x\ny\nb\r\nc\nd\n"),
    make_case("mixed endings: a new line as its neighbour", "a\nb\r\nc\n", "b", "b\nb2", "a\nb\r\nb2\r\nc\n"),
    make_case(
        "mixed endings: one by one", "a\r\nb\nc\r\nd\n", "a\nb\nc", "1\n2\n3", "1\r\n2\n3\r\nd\n", "line_endings"
    ),
    make_case("line endings themselves are changed", "a\nb\nc\n", "a\nb\n", "a\r\nb\r\n", "a\r\nb\r\nc\n"),
    make_case("CRLF changed to LF", "a\r\nb\r\n", "a\r\nb\r\n", "a\nb\n", "a\nb\n"),
    make_case("old Mac line endings", "a\rb\rc\r", "a\nb", "x\ny\nz", "x\ry\rz\rc\r", "line_endings"),
    make_case("old Mac, one line made two", "a\rb\r", "b", "b\nc", "a\rb\rc\r"),
    make_case("regular expression characters across CRLF", "a\r\n.*\r\n", "a\n.*", r"\1", "\\1\r\n", "line_endings"),
    make_case("an old text that begins with a newline", "a\r\nb\r\n", "\nb", "\nc", "a\r\nc\r\n", "line_endings"),
    make_case("an old text that ends with a newline", "a\r\nb\r\nc\r\n", "a\nb\n", "x\n", "x\r\nc\r\n", "line_endings"),
    make_case("the file lacks the newline that old ends with", "a\nb", "b\n", "c\n", "a\nc", "line_endings"),
    make_case("the same in a CRLF file", "a\r\nb", "b\n", "c\nd\n", "a\r\nc\r\nd", "line_endings"),
    make_case("a CRLF between letters only in the file", "x\r\ny", "x\ny", "z", "z", "line_endings"),
]

MARKS = [
    make_case("the mark is not touched", BOM + "a\nb", "a\n", "x\n", BOM + "x\nb"),
    make_case("the mark sent in both", BOM + "a\nb", BOM + "a", BOM + "x", BOM + "x\nb"),
    make_case("the mark sent in old only stays", BOM + "a\nb", BOM + "a", "x", BOM + "x\nb"),
    make_case("the mark sent in new only is not doubled", BOM + "a\nb", "a", BOM + "x", BOM + "x\nb"),
    make_case("the mark sent, but the file has none", "a\nb", BOM + "a", "x", "x\nb", "line_endings"),
    make_case("sent in both, the file has none", "a\nb", BOM + "a", BOM + "x", "x\nb", "line_endings"),
    make_case("mark and CRLF", BOM + "a\r\nb\r\n", "a\nb", "c", BOM + "c\r\n", "line_endings"),
    make_case("mark and indentation", BOM + "    a\n    b\n", "a\nb\n", "c\n", BOM + "    c\n", "indentation"),
    make_case("the whole file with a mark", BOM + "a\n", "a\n", "b\n", BOM + "b\n"),
]

SPACE = [
    make_case("the file has trailing spaces", "a  \nb\n", "a\nb", "x\ny", "x\ny\n", "trailing_space"),
    make_case("the file has a trailing tab", "if x:\t\n    y\n", "if x:\n    y", "z", "z\n", "trailing_space"),
    make_case("old has trailing spaces", "a\nb\n", "a  \nb", "x", "x\n", "trailing_space"),
    make_case("old has them at its very end", "foo\nbar\n", "foo  ", "x", "x\nbar\n", "trailing_space"),
    make_case("that end is no beginning of a word", "foobar\nfoo\n", "foo ", "x", "foobar\nx\n", "trailing_space"),
    make_case("blank lines with spaces in the file", "a\n    \nb\n", "a\n\nb", "c", "c\n", "trailing_space"),
    make_case("blank lines with spaces in old", "a\n\nb\n", "a\n    \nb", "c", "c\n", "trailing_space"),
    make_case("trailing space and CRLF", "a \r\nb\r\n", "a\nb\n", "c\n", "c\r\n", "trailing_space"),
    make_case("what follows the passage stays", "a \nb  \nc\n", "a\nb", "x", "x  \nc\n", "trailing_space"),
    make_case("the line before it keeps its space", "z  \na \nb\n", "\na\nb", "\nc", "z  \nc\n", "trailing_space"),
    make_case("old ends inside an indentation", "a \n    b\n", "a\n    ", "c\n    ", "c\n    b\n", "trailing_space"),
]

PUNCTUATION = [
    make_case("double quotes", "say “hi” now\n", 'say "hi" now', "say nothing", "say nothing\n", "punctuation"),
    make_case("single quotes", "it’s ‘so’\n", "it's 'so'", "it is", "it is\n", "punctuation"),
    make_case("an em dash", "a — b\n", "a - b", "c", "c\n", "punctuation"),
    make_case("an en dash in a range", "pages 1–9\n", "1-9", "1-10", "pages 1-10\n", "punctuation"),
    make_case("a non-breaking hyphen", "well\u2011known\n", "well-known", "new", "new\n", "punctuation"),
    make_case("a minus sign", "x = −1\n", "x = -1", "x = 1", "x = 1\n", "punctuation"),
    make_case("a no-break space", "a\u00a0b\n", "a b", "c", "c\n", "punctuation"),
    make_case("a narrow space", "10\u202f000\n", "10 000", "20 000", "20 000\n", "punctuation"),
    make_case("the model sent the fancy ones", 'say "hi" - now\n', "say “hi” — now", "x", "x\n", "punctuation"),
    make_case("and trailing space", "“a”  \nb\n", '"a"\nb', "c", "c\n", "punctuation"),
    make_case("and CRLF", "“a”\r\nb\r\n", '"a"\nb', "c\nd", "c\r\nd\r\n", "punctuation"),
    make_case("exact beats fancy", '“a”\n"a"\n', '"a"', "b", "“a”\nb\n"),
    make_case("what is outside stays fancy", "“x” and “y”\n", 'x" and', "z and", "“z and “y”\n", "punctuation"),
]

INDENTATION = [
    make_case(
        "the model sent too little",
        PY,
        "def price(self, n):\n    total = n * 2\n    return total\n",
        "def price(self, n):\n    if not n:\n        return 0\n    return n * 2\n",
        PY.replace(
            "        total = n * 2\n        return total\n",
            "        if not n:\n            return 0\n        return n * 2\n",
        ),
        "indentation",
    ),
    make_case(
        "the model sent too much",
        "a:\n  b: 1\n  c: 2\n",
        "      b: 1\n      c: 2\n",
        "      b: 1\n      c:\n        - 3\n",
        "a:\n  b: 1\n  c:\n    - 3\n",
        "indentation",
    ),
    make_case(
        "one line only",
        "x\n  unique_call(1)\n",
        "    unique_call(1)\n",
        "    other(1)\n",
        "x\n  other(1)\n",
        "indentation",
    ),
    make_case(
        "no newline at its end",
        "if a:\n  go()\n",
        "    go()",
        "    stop()",
        "if a:\n  stop()\n",
        "indentation",
    ),
    make_case("the file has none", "go()\nstop()\n", "    go()\n    stop()\n", "    run()\n", "run()\n", "indentation"),
    make_case(
        "spaces sent, the file has tabs",
        TABS,
        "    if ok {\n        print(1)\n    }\n",
        "    if ok {\n        print(1)\n        if more {\n            print(2)\n        }\n    }\n",
        "func main() {\n\tif ok {\n\t\tprint(1)\n\t\tif more {\n\t\t\tprint(2)\n\t\t}\n\t}\n}\n",
        "indentation",
    ),
    make_case(
        "two spaces sent, the file has tabs",
        TABS,
        "  if ok {\n    print(1)\n",
        "  if ok {\n    print(3)\n",
        TABS.replace("1", "3"),
        "indentation",
    ),
    make_case(
        "tabs sent, the file has spaces",
        PY,
        "\tdef close(self):\n\t\treturn None\n",
        "\tdef close(self):\n\t\tif self:\n\t\t\treturn 0\n",
        PY.replace("        return None\n", "        if self:\n            return 0\n"),
        "indentation",
    ),
    make_case("a tab too many", TABS, "\t\t\tprint(1)\n", "\t\t\tprint(2)\n", TABS.replace("1", "2"), "indentation"),
    make_case(
        "two spaces a level sent, four in the file",
        "def f():\n    if a:\n        b()\n    c()\n",
        "  if a:\n    b()\n  c()\n",
        "  if a:\n    b()\n    d()\n  c()\n",
        "def f():\n    if a:\n        b()\n        d()\n    c()\n",
        "indentation",
    ),
    make_case(
        "blank lines between",
        "class A:\n    x = 1\n\n    y = 2\n",
        "x = 1\n\ny = 2\n",
        "x = 1\n\ny = 3\n",
        "class A:\n    x = 1\n\n    y = 3\n",
        "indentation",
    ),
    make_case(
        "a new line less indented than all",
        "a\n    b\n    c\n",
        "        b\n        c\n",
        "        b\n      c\n",
        "a\n    b\n  c\n",
        "indentation",
    ),
    make_case(
        "CRLF is kept", "a {\r\n    b\r\n    c\r\n}\r\n", "b\nc\n", "d\n", "a {\r\n    d\r\n}\r\n", "indentation"
    ),
    make_case("at the end without newline", "a\n    b\n    c", "b\nc\n", "d\n", "a\n    d", "indentation"),
    make_case("deleted", "a\n    b\n    c\nd\n", "b\nc\n", "", "a\nd\n", "indentation"),
    make_case(
        "with fancy quotes", "a\n    say(“x”)\n    go()\n", 'say("x")\ngo()\n', "go()\n", "a\n    go()\n", "indentation"
    ),
]

NUMBERS = [
    make_case(
        "as read_file writes them",
        "a = 1\nb = 2\n",
        "1\ta = 1\n2\tb = 2",
        "1\ta = 1\n2\tb = 5",
        "a = 1\nb = 5\n",
        "line_numbers",
    ),
    make_case("in old only", "a = 1\nb = 2\n", "1\ta = 1\n2\tb = 2", "c = 3", "c = 3\n", "line_numbers"),
    make_case("one line, with its own number", "a = 1\nb = 2\n", "2\tb = 2", "b = 5", "a = 1\nb = 5\n", "line_numbers"),
    make_case("as cat -n writes them", "x\ny\n", "     1\tx\n     2\ty\n", "     1\tz\n", "z\n", "line_numbers"),
    make_case("with a bar", "if a:\n    b\n", "1│if a:\n2│    b", "1│if a:\n2│    c", "if a:\n    c\n", "line_numbers"),
    make_case(
        "with a bar and a space",
        "if a:\n    b\n",
        "1 | if a:\n2 |     b".replace(" |", "|"),
        "c",
        "c\n",
        "line_numbers",
    ),
    make_case("with a colon", "x = 1\ny = 2\n", "1: x = 1\n2: y = 2\n", "x = 0\n", "x = 0\n", "line_numbers"),
    make_case("as grep writes them", "x = 1\ny = 2\n", "1:x = 1\n2:y = 2\n", "x = 0\n", "x = 0\n", "line_numbers"),
    make_case("with an arrow", "x\ny\n", "1→x\n2→y", "z", "z\n", "line_numbers"),
    make_case("into a CRLF file", "x\r\ny\r\n", "1\tx\n2\ty", "z\nw", "z\r\nw\r\n", "line_numbers"),
    fails(
        "one line, with another's number", "a = 1\nb = 2\n", "7\tb = 2", "b = 5", "line numbers", "not part of the file"
    ),
    fails("numbers that do not count up", "a\nb\n", "3\ta\n9\tb", "c", "not found"),
    fails("in some lines of new only", "a\nb\nc\n", "1\ta\n2\tb", "1\ta\nx", "line numbers"),
    fails("and the text is not there", "a\nb\n", "1\tq\n2\tr", "c", "line numbers", "not found"),
]

AMBIGUOUS = [
    fails("twice", "x\ny\nx\n", "x", "z", "occurs 2 times", "lines 1, 3"),
    fails("a way out", "a\nport\nb\n  port\n", "port", "x", 'again with "line": 2 or "line": 4.'),
    fails("a way out among many", "port\n" * 9, "port", "x", 'the one you mean, as in "line": 1.'),
    fails("two in a line", "a a\nb\na\n", "a", "x", "lines 1, 3", 'again with "line": 3.'),
    fails("all in a line", "a a\n", "a", "x", "line 1", "what stands around"),
    Case("none in that line", "x\ny\nx\n", "x", "z", line=2, error=("occurs 2 times", "lines 1, 3")),
    at(3, "the second", "x\ny\nx\n", "x", "z", "x\ny\nz\n"),
    at(2, "a leading newline and a line", "a\nx\nb\nx\n", "\nx", "\ny", "a\ny\nb\nx\n"),
    at(2, "one, and a wrong line", "x\n", "x", "z", "z\n"),
    at(3, "a line across CRLF", "x\r\ny\r\nx\r\ny", "x\ny", "z", "x\r\ny\r\nz", "line_endings"),
    fails("overlapping", "aaa", "aa", "b", "occurs 2 times", "line 1"),
    fails("the line before is shown", "a:\n  x\nb:\n  x\n", "  x", "y", "lines 2, 4", "1  a:", "3  b:"),
    fails("across CRLF", "x\r\ny\r\nx\r\ny", "x\ny", "z", "occurs 2 times", "lines 1, 3", "line endings"),
    fails("past trailing space", "x \ny\nx  \ny\n", "x\ny\n", "z", "occurs 2 times", "lines 1, 3", "ends of lines"),
    fails("past quotes", "“x”\n“x”\n", '"x"', "z", "occurs 2 times", "lines 1, 2"),
    fails("shifted twice", "if a:\n    go()\nif b:\n    go()\n", "  go()\n", "z\n", "occurs 2 times", "lines 2, 4"),
    fails("many", "x\n" * 60, "x", "y", "occurs 60 times", "1, 2, 3", "50 and 10 more"),
    fails("a leading newline counts for the line after", "a\nx\nb\nx\n", "\nx", "y", "lines 2, 4"),
]

MISSING = [
    fails(
        "another name",
        "def foo(a):\n    return a\n",
        "def fooo(a):\n    pass",
        "x",
        "line 1",
        "-1  def foo(a):",
        "+   def fooo(a):",
    ),
    fails(
        "one line of several differs",
        PY,
        "        total = n * 5\n        return total\n",
        "",
        "line 6",
        "- 6          total = n * 2",
        "+            total = n * 5",
        " 7          return total",
    ),
    fails("only spaces differ", "a\n  x  = 1\nb\n", "a\nx = 1\nb", "", "·", "-2  ··x··=·1", "+   x·=·1"),
    fails("tabs inside", "a\tb = 1\n", "a  b = 1", "", "→"),
    fails("a line left out", "one one\ntwo two\nthree three\n", "one one\nthree three", "", "-2  two two"),
    fails("a line too many", "one one\nthree three\n", "one one\ntwo two\nthree three", "", "+   two two"),
    fails("nothing like it", "zzz", "completely different", "x", "No line of the file resembles it"),
    fails(
        "what is to be added",
        "a = 1\nb = 2\n\n",
        "def f():",
        "x",
        'send the call again with "old_str": "b = 2" and with',
    ),
    fails("an empty file", "", "a", "b", "not found"),
    fails("another case", "Hello World\n", "hello world", "x", "line 1", "Hello World"),
    fails("inner space counts", "f(a, b)\n", "f(a,b)", "x", "not found", "line 1"),
    fails(
        "indentation that is not one shift", "a:\n    b\n    c\n", "a:\n  b\n      c\n", "x\n", "not found", "line 1"
    ),
    fails("only spaces that are not there", "abc", "   ", "x", "not found"),
    fails("only blank lines that are not there", "abc\n", "\n\n\n", "x", "not found"),
]

SLIPS = [
    fails("old is a carriage return", "ab\n", "\r", "x", "not found"),
    fails("old is empty", "a", "", "x", "empty", "write_file"),
    fails("old is a byte-order mark", BOM + "a", BOM, "x", "empty"),
    fails("old is empty in an empty file", "", "", "x", "empty"),
    fails("old and new are the same", "a", "a", "a", "the same"),
    fails("the same, and not there", "a", "b", "b", "the same"),
    fails("already applied", "one\nnew text\n", "old text!", "new text", "already there", "line 2", "already applied"),
    fails("already applied in a CRLF file", "one\r\nnew\r\ntext\r\n", "old", "new\ntext", "already there", "line 2"),
    fails("already applied, past trailing space", "one\nnew  \ntext\n", "old", "new\ntext", "already there", "line 2"),
    fails("an escaped newline", "a = 1\nb = 2\n", "a = 1\\nb = 2", "c", "line 1", "\\n", "escape once"),
    fails("an escaped tab", "\tx = 1\n", "\\tx = 1", "c", "line 1", "escape once"),
    fails("escaped quotes", 'say("hi")\n', 'say(\\"hi\\")', "c", "line 1", "escape once"),
    fails("HTML entities", "if a < b && c:\n", "a &lt; b &amp;&amp; c", "x", "line 1", "characters themselves"),
]

_BIG = "".join(f"entry {i} = value({i * 7})\n" for i in range(150_000))
_PART = "".join(f"entry {i} = value({i * 7})\n" for i in range(90_000, 93_000))
HUGE = [
    make_case(
        "a line in five megabytes",
        _BIG,
        "entry 99999 = value(699993)\n",
        "gone\n",
        _BIG.replace("entry 99999 = value(699993)", "gone"),
    ),
    make_case("100 KB of it", _BIG, _PART, "gone\n", _BIG.replace(_PART, "gone\n")),
    make_case(
        "100 KB, indented",
        _BIG,
        "  " + _PART.replace("\n", "\n  ")[:-2],
        "  gone\n",
        _BIG.replace(_PART, "gone\n"),
        "indentation",
    ),
    make_case(
        "100 KB, with CRLF", _BIG, _PART.replace("\n", "\r\n"), "gone\n", _BIG.replace(_PART, "gone\n"), "line_endings"
    ),
    fails(
        "100 KB that differ in one line",
        _BIG,
        _PART.replace("value(637000)", "walue(637000)"),
        "x",
        "line 90999",
        "91001  entry 91000 = value(637000)",
    ),
    fails("100 KB of nothing", _BIG, "q" * 100_000, "x", "No line of the file resembles it"),
    fails("one line of five megabytes", "a" * 5_000_000, "a" * 100_000 + "b", "x", "not found"),
    fails("that overlaps itself all over", "a" * 5_000_000, "a" * 100_000, "x", "times", "line 1"),
    every("every line of it", "x\n" * 100_000, "x", "y", "y\n" * 100_000, 100_000),
]

CASES = [
    *EXACT, *EVERY, *ENDINGS, *MARKS, *SPACE, *PUNCTUATION, *INDENTATION, *NUMBERS, *AMBIGUOUS, *MISSING, *SLIPS, *HUGE,
]  # fmt: skip
