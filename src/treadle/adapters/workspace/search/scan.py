"""A small search program for where there is no ripgrep: it takes a job, searches its working directory or its input,
and writes what ripgrep would. A process of its own, because nothing else can stop a regular expression that never ends.
It goes from descriptor to descriptor and never through a link, so that nothing swapped meanwhile leads elsewhere."""

import codecs
import os
import re
import signal
import stat
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

import msgspec

from treadle.adapters.workspace.paths.entries import LIST, READ, hold_fd, read_bytes_at
from treadle.adapters.workspace.paths.ignore import FOLDERS, Ignoring, Rules, make_matcher
from treadle.adapters.workspace.paths.ignore import decode_rule_lines as rules_of
from treadle.diff.encodings import decode_bytewise


class Leaf(msgspec.Struct, frozen=True):
    """A regular file: its path from the top, and where it can be opened while it is the current one."""

    path: str
    directory: int
    name: str


class _Level(msgspec.Struct):
    """A directory on the way down: the entries still to be visited, and its ignore rules."""

    fd: int
    prefix: str
    files: list[str]
    directories: list[str]
    rules: Ignoring


def iterate_leaves(top: int, inherited: Ignoring) -> Iterator[Leaf]:
    """Every file, in no order. `inherited` are rules from above the top, weaker than any below."""
    levels = [_read_folder(os.dup(top), "", inherited)]
    try:
        while levels:
            level = levels[-1]
            while level.files:
                name = level.files.pop()
                yield Leaf(level.prefix + name, level.fd, name)
            if not level.directories:
                os.close(levels.pop().fd)
                continue
            name = level.directories.pop()
            try:
                fd = os.open(name, LIST, dir_fd=level.fd)
            except OSError:  # gone, closed to us, or a link by now
                continue
            levels.append(_read_folder(fd, f"{level.prefix}{name}/", level.rules))
    finally:
        for level in levels:
            os.close(level.fd)


def find_special_files(top: int, name: str, above: Ignoring | None = None) -> Iterator[bool | None]:
    """Look for files of this name that are, or lead to, a FIFO, device or socket: one answer for each folder, None if
    it may not be read. No such file is opened. With `above`, the rules from above the top, ignored folders are left
    out."""
    folders = [("", above)]
    while folders:
        prefix, rules = folders.pop()
        inner: list[str] = []
        has_special = False
        try:
            folder = os.open(prefix or ".", LIST, dir_fd=top)
        except OSError as error:
            if isinstance(error, PermissionError):
                yield None
            continue
        with hold_fd(folder) as fd:
            with suppress(OSError), os.scandir(fd) as entries:  # what could be listed counts
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        inner += [] if entry.name in FOLDERS else [f"{prefix}{entry.name}"]
                    elif entry.name == name:
                        with suppress(OSError):  # it is gone, or a link that leads nowhere
                            has_special = not stat.S_ISREG(entry.stat().st_mode)
            yield has_special
            if rules is not None:
                rules = rules.add_folder_rules(prefix, fd)
                inner = [path for path in inner if not rules.covers(path, directory=True)]
            folders += [(f"{path}/", rules) for path in inner]


def _read_folder(fd: int, prefix: str, above: Ignoring) -> _Level:
    level = _Level(fd, prefix, [], [], above.add_folder_rules(prefix, fd))
    with suppress(OSError), os.scandir(fd) as entries:  # what could be listed counts
        for entry in entries:
            directory = entry.is_dir(follow_symlinks=False)
            if entry.name in FOLDERS or not (directory or entry.is_file(follow_symlinks=False)):
                continue
            if not level.rules.covers(prefix + entry.name, directory=directory):
                (level.directories if directory else level.files).append(entry.name)
    return level


_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
UTF32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)  # One of them begins with a mark of UTF-16
MAX_FILE = 32_000_000  # Bytes of a file that is searched; larger ones are left out


def decode_lines(data: bytes) -> list[str] | None:
    """The lines without their ends; None if the bytes are no text. A byte-order mark tells UTF-16 and UTF-32;
    invalid UTF-8 becomes the text that read_file shows, with single broken bytes as surrogates."""
    if data.startswith(UTF32):
        try:
            text = data.decode("utf-32")
        except UnicodeDecodeError:
            return None
    elif data.startswith(_UTF16):
        text = data.decode("utf-16", errors="replace")
    elif b"\0" in data:
        return None
    else:
        data = data.removeprefix(codecs.BOM_UTF8)
        text = data.decode() if is_utf8(data) else decode_bytewise(data)[0]
    if "\0" in text:
        return None
    lines = text.replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]  # the end of the last line, or nothing at all


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_other_encoding(data: bytes) -> bool:
    """True if our own program decodes it, and not ripgrep."""
    return data.startswith(UTF32) or not (is_utf8(data) or data.startswith(_UTF16))


def is_utf32(directory: int, name: str) -> bool:
    """True if the file begins with a byte-order mark of UTF-32."""
    with suppress(OSError), hold_fd(os.open(name, READ, dir_fd=directory)) as fd:
        return os.read(fd, 4) in UTF32
    return False


def is_bytewise(data: bytes) -> bool:
    """True if each byte is a character. Otherwise columns count bytes of the text in UTF-8."""
    is_marked = data.startswith(UTF32)
    return is_other_encoding(data) and not is_marked and decode_bytewise(data)[1] == "windows-1252"


_WHOLE = re.compile(r"\\[AZB]|\(\?[=!<(]")
"""In a pattern with one of these, the neighbours of a line may decide whether it matches: no shortcut by file."""
_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\t-\r ",
    "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_TOKEN = re.compile(r"\[:(\^?)(\w+):\]|\\.|\[\^?\]?|\]|[^\\\[\]]+|.", re.DOTALL)
_LETTERS_BEYOND_ASCII = (0x130, 0x131, 0x17F, 0x212A)  # Other cases of the letters i, s and k, as `re` sees them
_SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_JOINERS = "\u200c\u200d"


def find_odd_words(text: str) -> tuple[str, str] | None:
    """The insides of the classes of all word characters of a text and of all others; None if they are as in `re`, which
    counts ² and ½ to them, but no accent that is a character of its own."""

    def is_word(letter: str) -> bool:
        kind = unicodedata.category(letter)
        counts = kind[0] in "LM" or kind in ("Nd", "Nl", "Pc") or letter in _JOINERS
        return counts or letter.islower() or letter.isupper()

    letters = {letter for letter in set(text) if not letter.isascii()}
    words = {letter for letter in letters if is_word(letter)}
    if all(letter.isalnum() == (letter in words) for letter in letters):
        return None
    return "0-9A-Z_a-z" + "".join(sorted(words)), r"\x00-/:-@\[-\^`{-\x7f" + "".join(sorted(letters - words))


def translate_pattern(pattern: str, *, ignore_case: bool = False, words: tuple[str, str] | None = None) -> str:
    """A pattern of ripgrep's as `re` understands it: classes such as [[:alpha:]], spaces, and the ends of words.
    `words`: see `find_odd_words`. re.error for classes within classes, which `re` would read as something else."""
    word, other = words or (r"\w", r"\W")
    begins, ends = rf"(?<![{word}])(?=[{word}])", rf"(?<=[{word}])(?![{word}])"
    edge, inner = (rf"(?:{begins}|{ends})", rf"(?!{begins}|{ends})") if words else (r"\b", r"\B")
    inside = {r"\w": word, r"\W": other, r"\s": _SPACE}
    outside = {name: f"[{letters}]" for name, letters in inside.items()} | {r"\S": f"[^{_SPACE}]"}
    outside |= {r"\<": begins, r"\>": ends, r"\b": edge, r"\B": inner}
    parts: list[str] = []
    within = False
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if within and token[2] is not None:
            if token[2] not in _CLASSES:
                raise re.error(f"unrecognized class [:{token[2]}:]", pattern, token.start())
            text = _invert_class(_CLASSES[token[2]], ignore_case=ignore_case) if token[1] else _CLASSES[token[2]]
        elif within and text.startswith("["):
            raise re.error("classes within classes need ripgrep, which is not installed", pattern, token.start())
        elif within and ("&&" in text or "--" in text or "~~" in text):
            raise re.error("set operations in classes need ripgrep, which is not installed", pattern, token.start())
        elif not within and text.startswith("["):
            within = True
            if token[2] is not None:  # [:alpha:] alone is a class of these characters
                raise re.error(f"{text} stands within a class, as in [{text}]", pattern, token.start())
        elif within:
            within = text != "]"
            text = inside.get(text, text).replace("||", r"|\|")  # `re` warns of it
        else:
            text = outside.get(text, text)
        parts.append(text)
    return "".join(parts)


def _invert_class(inside: str, *, ignore_case: bool) -> str:
    """The content of a character class for all characters but those of another one, which are ASCII. Where case is
    ignored, neither case of a letter may be in it: `re` would find the letter by the other."""
    inner = re.compile(f"[{inside}]", re.I if ignore_case else 0)
    excluded = (number for number in (*range(128), *_LETTERS_BEYOND_ASCII) if inner.match(chr(number)))
    ends = [-1, *excluded, sys.maxunicode + 1]
    return "".join(f"\\U{one + 1:08x}-\\U{next_end - 1:08x}" for one, next_end in pairwise(ends) if next_end - one > 1)


class SearchJob(msgspec.Struct, frozen=True):
    pattern: str = ""  # Empty: only list the files
    include: str = ""
    ignore_case: bool = False
    literal: bool = False
    stdin: bool = False  # True to search the standard input instead of a directory
    rules: int = -1  # A descriptor with rules from above the directory; -1: there are none
    only: int = -1  # A descriptor with the paths to search, each ended by a NUL; -1: all
    seconds: int = 30  # The most seconds that a search may take, even if no process is left to stop it


def is_supported(job: SearchJob) -> bool:
    """True if the pattern is one for our own program, too."""
    try:
        _compile(job)
    except re.error:
        return False
    return True


def _compile(job: SearchJob, words: tuple[str, str] | None = None) -> re.Pattern[str]:
    expression = re.escape(job.pattern)
    if not job.literal:
        expression = translate_pattern(job.pattern, ignore_case=job.ignore_case, words=words)
    try:
        return re.compile(expression, re.I if job.ignore_case else 0)
    except (RecursionError, OverflowError) as error:
        raise re.error(str(error)) from error


def main(text: str) -> int:
    import resource

    job = msgspec.json.decode(text, type=SearchJob)
    signal.alarm(job.seconds)  # its default action ends the process at any point
    with suppress(ValueError, OSError):  # one descriptor is held for each level of the tree
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        with suppress(BrokenPipeError):
            _run_job(job)
    except re.error as error:
        at = "" if error.pos is None else f" at position {error.pos}"
        sys.stderr.write(f"regex parse error:\nerror: {error.msg}{at}\n")
        return 2
    return 0


def _run_job(job: SearchJob) -> None:
    with open(1, "wb", closefd=False) as out:
        if not job.pattern:
            for leaf in iterate_leaves(os.open(".", os.O_RDONLY), read_inherited_rules(job.rules)):
                out.write(b"./" + os.fsencode(leaf.path) + b"\0")
            return
        usual_pattern, is_whole = _compile(job), not job.literal and _WHOLE.search(job.pattern)
        for path, data in _read_files(job):
            lines = decode_lines(data)
            if lines is None:
                continue
            text = "\n".join(lines)
            words = None if text.isascii() else find_odd_words(text)
            pattern = usual_pattern if words is None else _compile(job, words)
            if not is_whole and not re.compile(pattern.pattern, pattern.flags | re.M).search(text):
                continue
            block, bytewise = bytearray(), is_bytewise(data)
            for number, line in enumerate(lines, 1):
                if match := pattern.search(line):
                    prefix = line[: match.start()]
                    byte_offset = len(prefix if bytewise else prefix.encode(errors="surrogateescape"))
                    block += b"%d:%d:\n" % (number, byte_offset + 1)
            if block:
                out.write(path + b"\0" + block + b"\n")


def _read_files(job: SearchJob) -> Iterator[tuple[bytes, bytes]]:
    if job.stdin:
        yield b"<stdin>", open(0, "rb", closefd=False).read(MAX_FILE)  # noqa: SIM115
        return
    accepts = make_matcher(job.include) if job.include else None
    if job.only >= 0:
        with open(job.only, "rb", closefd=False) as file:
            accepts = {os.fsdecode(path) for path in file.read().split(b"\0")}.__contains__
    for leaf in iterate_leaves(os.open(".", os.O_RDONLY), read_inherited_rules(job.rules)):
        if (accepts is None or accepts(leaf.path)) and (data := read_bytes_at(leaf.directory, leaf.name, MAX_FILE)):
            yield b"./" + os.fsencode(leaf.path), data


def read_inherited_rules(descriptor: int) -> Ignoring:
    """The rules that hold at the top of a search, from above it."""
    if descriptor < 0:
        return Ignoring()
    with open(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return Ignoring(((Rules(rules_of(file.read())), 0),))
