"""Programs that run others once for each of many things: xargs, find, fd, parallel."""

import re

from treadle.policy.shell.arguments import read
from treadle.policy.shell.model import UNKNOWN, Effects, Found, Run, Script, ShellCall
from treadle.policy.shell.places import deleting, reading, writing
from treadle.policy.shell.wrappers import Rule


def xargs(call: ShellCall) -> Effects:
    valued = "a d E I L n P s arg-file delimiter eof replace max-lines max-args max-procs max-chars"
    options = read(call.args, valued, until_word=True)
    words = options.rest or ("echo",)
    text = call.stdin if not options.all("a", "arg-file") else None
    given = tuple(re.split(r"[\s\0]+", text.strip())) if text else ()
    given = given or (UNKNOWN,)
    marks = options.all("I", "replace") or (["{}"] if options.has("i") else [])
    if marks:
        for word in given[:8]:
            yield Run(tuple(each.replace(marks[0], word) for each in words))
    else:
        yield Run((*words, *given))
        if text and options.has("0", "null", "d", "delimiter"):
            yield Run((*words, text.rstrip("\n")))


def find(call: ShellCall) -> Effects:
    at = 0
    while at < len(call.args) and call.args[at] in ("-H", "-L", "-P"):
        at += 1
    starts = []
    while at < len(call.args) and call.args[at][:1] not in ("-", "(", "!", ")"):
        starts.append(call.args[at])
        at += 1
    rest = call.args[at:]
    narrowed = any(word in ("-name", "-iname", "-path", "-regex", "-mtime", "-newer", "-empty") for word in rest)
    for start in starts or ["."]:
        matches = f"{start}/{UNKNOWN}x" if narrowed and start[:1] not in "/~." else f"{start}/{UNKNOWN}"
        if narrowed and start.rstrip("/") in (".", "./"):
            matches = f"{UNKNOWN}x"
        yield from _find_actions(rest, start, matches, call.cwd, narrowed)
        if found := reading(start, call.cwd):
            yield found


def _find_actions(rest: tuple[str, ...], start: str, matches: str, cwd: str, narrowed: bool) -> Effects:
    for at, word in enumerate(rest):
        if word == "-delete":
            if narrowed and matches.startswith(UNKNOWN):
                yield Found("high", "deletes every file that matches, in all directories below")
            else:
                yield deleting(matches, cwd, recursive=True)
        elif word in ("-exec", "-execdir", "-ok", "-okdir"):
            words = rest[at + 1 :]
            end = next((n for n, each in enumerate(words) if each in (";", "+")), len(words))
            yield Run(tuple(each.replace("{}", matches) for each in words[:end]))
        elif word in ("-fprint", "-fprint0", "-fprintf", "-fls") and (found := writing((*rest, "", "")[at + 1], cwd)):
            yield found


def fd(call: ShellCall) -> Effects:
    for at, word in enumerate(call.args):
        if word in ("-x", "-X", "--exec", "--exec-batch"):
            yield Run((*(each.replace("{}", UNKNOWN) for each in call.args[at + 1 :]), UNKNOWN))
            return


def parallel(call: ShellCall) -> Effects:
    yield Found("medium", "starts many commands at once")
    options = read(
        call.args, "j jobs S sshlogin a arg-file I colsep C joblog tmpdir workdir wd delay retries", until_word=True
    )
    words = list(options.rest)
    at = next((n for n, word in enumerate(words) if word.startswith(":::")), len(words))
    template, given = words[:at], [word for word in words[at:] if not word.startswith(":::")]
    lines = given or ([line for line in call.stdin.split("\n") if line] if call.stdin else [UNKNOWN])
    for line in lines[:8]:
        if any("{" in word for word in template):
            yield Script(" ".join(re.sub(r"\{[/.%#\d]*\}", line.replace("\\", r"\\"), word) for word in template))
        else:
            yield Script(" ".join([*template, line]))


RULES: dict[str, Rule] = {
    **dict.fromkeys(("fd", "fdfind"), fd),
    "find": find,
    "parallel": parallel,
    "xargs": xargs,
}
