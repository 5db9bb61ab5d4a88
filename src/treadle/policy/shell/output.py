"""What a program writes, where its words alone say so; UNKNOWN stands for the rest. Encoded text is decoded."""

import base64
import binascii
import re
from collections.abc import Callable

from treadle.policy.shell.arguments import read
from treadle.policy.shell.model import UNKNOWN, ShellCall, names
from treadle.policy.shell.places import resolve
from treadle.policy.shell.quotes import unescape_ansi, unescape_printed

MOST = 100_000
_SILENT = names(
    """
    : true false cd pushd popd export set unset shift trap alias mkdir touch rm rmdir mv cp ln chmod chown kill
    sleep wait test [ exit return exec eval source . local declare readonly typeset shopt umask ulimit hash read
    """
)
_THROUGH = names(
    """
    tee head tail sort uniq grep egrep fgrep rg tac nl pv cut sed awk column fold fmt expand
    """
)
_FORMAT = re.compile(r"%(?:%|[-+ #0]*\d*(?:\.\d+)?([sbcdiuxXoq]))")


def output(call: ShellCall) -> str:
    rule = _RULES.get(call.name)
    if rule is not None:
        return rule(call)[:MOST]
    if call.name in _SILENT:
        return ""
    if call.name in _THROUGH and call.stdin is not None:
        return call.stdin if call.name == "tee" else f"{call.stdin}\n{UNKNOWN}"[:MOST]
    return UNKNOWN


def _echo(call: ShellCall) -> str:
    words = list(call.args)
    newline, escapes = "\n", False
    while words and re.fullmatch(r"-[neE]+", words[0]):
        option = words.pop(0)
        newline = "" if "n" in option else newline
        escapes = escapes or "e" in option
    text = " ".join(words)
    return (unescape_printed(text, zero=True) if escapes and "\\" in text else text) + newline


def _printf(call: ShellCall) -> str:
    words = list(call.args)
    if words[:1] == ["-v"]:
        return ""
    if words[:1] == ["--"]:
        words.pop(0)
    if not words:
        return ""
    template, values = words[0], words[1:]
    template = unescape_printed(template, zero=False) if "\\" in template else template
    pieces = []
    for _ in range(64):  # printf repeats its format until all values are used
        pieces.append(_FORMAT.sub(lambda match: _formatted(match, values), template))
        if not values or "%" not in template:
            break
    return "".join(pieces)


def _formatted(match: re.Match[str], values: list[str]) -> str:
    if match[1] is None:
        return "%"
    value = values.pop(0) if values else ""
    if match[1] in "xXo":
        return UNKNOWN
    return unescape_printed(value, zero=True) if match[1] == "b" else value[:1] if match[1] == "c" else value


def _cat(call: ShellCall) -> str:
    paths = [word for word in call.args if not word.startswith("-") or word == "-"]
    if not paths:
        return UNKNOWN if call.stdin is None else call.stdin
    texts = []
    for path in paths:
        text = call.stdin if path in ("-", "/dev/stdin") else call.files.get(resolve(path, call.cwd))
        texts.append(UNKNOWN if text is None else text)
    return "".join(texts)


def _base64(call: ShellCall) -> str:
    if not read(call.args, "w i").has("d", "D", "decode"):
        return UNKNOWN
    return _decode(call, lambda text: base64.b64decode("".join(text.split()) + "=="))


def _base32(call: ShellCall) -> str:
    if not read(call.args, "w").has("d", "decode"):
        return UNKNOWN
    return _decode(call, lambda text: base64.b32decode("".join(text.split())))


def _xxd(call: ShellCall) -> str:
    if not read(call.args, "c g l s").has("r"):
        return UNKNOWN
    return _decode(call, lambda text: bytes.fromhex("".join(text.split())))


def _openssl(call: ShellCall) -> str:
    words = set(call.args)
    if "-d" in words and ({"base64", "-base64", "-a"} & words):
        return _decode(call, lambda text: base64.b64decode("".join(text.split()) + "=="))
    return UNKNOWN


def _decode(call: ShellCall, decoder: Callable[[str], bytes]) -> str:
    """Text that had to be decoded was hidden: it is known now, and still suspicious."""
    text = call.stdin
    paths = [word for word in call.args if word[:1] not in ("-", "") and call.name not in ("openssl",)]
    for path in paths:
        text = call.files.get(resolve(path, call.cwd))
    if text is None or UNKNOWN in text:
        return UNKNOWN
    try:
        return decoder(text).decode("utf-8", "replace").replace(UNKNOWN, "") + "\n" + UNKNOWN
    except (ValueError, binascii.Error):
        return UNKNOWN


def _rev(call: ShellCall) -> str:
    if call.stdin is None or UNKNOWN in call.stdin:
        return UNKNOWN
    return "\n".join(line[::-1] for line in call.stdin.split("\n"))


def _tr(call: ShellCall) -> str:
    options = read(call.args)
    if call.stdin is None or UNKNOWN in call.stdin or not options.rest:
        return UNKNOWN
    old = _characters(options.rest[0])
    if options.has("d", "delete"):
        return "".join(c for c in call.stdin if c not in old)
    if len(options.rest) < 2 or not old or options.flags:
        return UNKNOWN
    new = _characters(options.rest[1])
    if not new:
        return UNKNOWN
    table = {ord(c): new[min(n, len(new) - 1)] for n, c in reversed(list(enumerate(old)))}
    return call.stdin.translate(table)


def _characters(text: str) -> str:
    text = unescape_ansi(text) if "\\" in text else text
    text = text.replace("[:upper:]", "A-Z").replace("[:lower:]", "a-z").replace("[:digit:]", "0-9")
    return re.sub(
        r"(.)-(.)", lambda m: "".join(chr(n) for n in range(ord(m[1]), min(ord(m[2]), ord(m[1]) + 255) + 1)), text
    )


def _find(call: ShellCall) -> str:
    starts = []
    for word in call.args:
        if word[:1] in ("-", "(", "!"):
            break
        starts.append(word)
    if any(word in ("-name", "-iname", "-path") for word in call.args) and starts in ([], ["."]):
        return UNKNOWN
    return "\n".join(f"{start}/{UNKNOWN}" for start in starts or ["."])


def _pwd(call: ShellCall) -> str:
    return call.cwd + "\n"


def _which(call: ShellCall) -> str:
    words = [word for word in call.args if not word.startswith("-")]
    return "\n".join(words) + "\n"


def _yes(call: ShellCall) -> str:
    return " ".join(call.args or ("y",)) + "\n"


def _mktemp(call: ShellCall) -> str:
    return "/tmp/tmp.new\n"


def _seq(call: ShellCall) -> str:
    return "1\n"


def _basename(call: ShellCall) -> str:
    return (call.args[0].rstrip("/").split("/")[-1] if call.args else "") + "\n"


_RULES: dict[str, Callable[[ShellCall], str]] = {
    "base32": _base32,
    "base64": _base64,
    "basename": _basename,
    "cat": _cat,
    "echo": _echo,
    "find": _find,
    "mktemp": _mktemp,
    "openssl": _openssl,
    "printf": _printf,
    "pwd": _pwd,
    "rev": _rev,
    "seq": _seq,
    "tr": _tr,
    "type": _which,
    "which": _which,
    "xxd": _xxd,
    "yes": _yes,
}
