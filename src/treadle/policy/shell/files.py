"""Programs that change files: what they delete, overwrite, or open to others."""

import re

from treadle.policy.shell.arguments import Options, read
from treadle.policy.shell.model import UNKNOWN, Effects, Found, Run, Script, ShellCall
from treadle.policy.shell.places import deleting, reading, resolve, writing
from treadle.policy.shell.wrappers import Rule


def rm(call: ShellCall) -> Effects:
    options = read(call.args)
    unsure = any(word.startswith(UNKNOWN) for word in call.args)  # it may be an option
    recursive = options.has("r", "R", "recursive")
    for word in filter(None, options.rest):
        top = resolve(word.replace(UNKNOWN, ""), call.cwd) == "/" and bool(word.strip(UNKNOWN))
        yield deleting(word, call.cwd, recursive=recursive or (unsure and top))
    if options.has("no-preserve-root"):
        yield Found("critical", "asks rm to delete / as well")
    if options.rest == ():
        yield Found("medium", "deletes files")


def rmdir(call: ShellCall) -> Effects:
    yield Found("medium", "deletes empty directories")


def shred(call: ShellCall) -> Effects:
    for word in read(call.args, "n s size iterations random-source").rest:
        found = writing(word, call.cwd)
        if found and found.severity == "critical":
            yield found
        yield Found("high", f"destroys {word} beyond recovery")


def truncate(call: ShellCall) -> Effects:
    yield Found("medium", "cuts files off")
    yield from _into(read(call.args, "s r size reference").rest, call.cwd)


def mv(call: ShellCall) -> Effects:
    yield Found("medium", "moves files and may overwrite others")
    options = read(call.args, "t S target-directory suffix")
    targets, sources = _targets(options)
    yield from _into(targets, call.cwd)
    for target in targets:
        if resolve(target, call.cwd) == "/dev/null":
            yield Found("high", "moves files to where they are lost")
    for source in sources:
        gone = deleting(source, call.cwd, recursive=True)
        if gone.severity == "critical" and resolve(source, call.cwd) not in (".", "*"):
            yield Found("critical", gone.reason.replace("deletes", "moves away", 1))
        elif source.startswith(("/", "~", "..")):
            yield Found("medium", f"moves {source} away")


def cp(call: ShellCall) -> Effects:
    yield Found("medium", "copies files and may overwrite others")
    options = read(call.args, "t S target-directory suffix m mode o owner g group")
    yield from _into(_targets(options)[0], call.cwd)


def ln(call: ShellCall) -> Effects:
    yield Found("medium", "makes links, through which other places are reached")
    options = read(call.args, "t S target-directory suffix")
    targets, _ = _targets(options)
    yield from _into(targets if len(options.rest) > 1 else (), call.cwd)


def _targets(options: Options) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where the files go, and which they are."""
    named = options.all("t", "target-directory")
    if named:
        return tuple(named), options.rest
    return options.rest[-1:], options.rest[:-1]


def tee(call: ShellCall) -> Effects:
    yield from _into(read(call.args).rest, call.cwd)


def dd(call: ShellCall) -> Effects:
    for word in call.args:
        name, _, value = word.partition("=")
        if name == "if" and (found := reading(value, call.cwd)):
            yield found
        if name == "of":
            yield writing(value, call.cwd) or Found("medium", f"overwrites {value}")


def chmod(call: ShellCall) -> Effects:
    options = read([word for word in call.args if not re.match(r"-[rwxXst,+-]+$", word) or word == "-R"])
    mode, places = (options.rest[0], options.rest[1:]) if options.rest else ("", ())
    wide = re.fullmatch(r"[0-7]?[0-7]?[0-7][2367]", mode) or re.search(r"(^|,)[ugo]*[oa][ugoa]*[+=]\w*w", mode)
    special = re.fullmatch(r"0?[2467][0-7]{3}", mode) or re.search(r"[+=]\w*s", mode)
    if wide or mode in ("+w", "=rwx"):
        yield Found("high", f"lets everybody write ({mode})")
    elif special:
        yield Found("high", f"runs programs with their owner's rights ({mode})")
    else:
        yield Found("medium", f"changes permissions ({mode})")
    yield from _attributes(places, call, options.has("R", "recursive"))


def chown(call: ShellCall) -> Effects:
    options = read(call.args, "from reference")
    yield Found("high", "gives files to another owner")
    yield from _attributes(options.rest[1:], call, options.has("R", "recursive"))


def _attributes(places: tuple[str, ...], call: ShellCall, recursive: bool) -> Effects:
    for place in places:
        path = resolve(place.replace(UNKNOWN, "") or UNKNOWN, call.cwd)
        gone = deleting(place, call.cwd, recursive=True)
        if recursive and gone.severity == "critical" and not path.startswith((".", "*")):
            yield Found("critical", f"changes permissions of everything below {place}")
        elif (found := writing(place, call.cwd)) and found.severity != "medium":
            yield Found("high", f"changes permissions of {place}")


def touch(call: ShellCall) -> Effects:
    yield from _into(read(call.args, "d r t m mode date reference").rest, call.cwd)


def sort(call: ShellCall) -> Effects:
    options = read(call.args, "o k t S T output compress-program key field-separator")
    yield from _into(tuple(options.all("o", "output")), call.cwd)
    yield from (Script(text) for text in options.all("compress-program"))


def uniq(call: ShellCall) -> Effects:
    yield from _into(read(call.args, "f s w").rest[1:2], call.cwd)


def sed(call: ShellCall) -> Effects:
    options = read(call.args, "e f E_ expression file l line-length")
    scripts = options.all("e", "expression") or list(options.rest[:1])
    if options.has("i", "in-place"):
        yield Found("medium", "edits files in place")
        yield from _into(options.rest if options.has("e", "expression") else options.rest[1:], call.cwd)
    if options.has("f", "file"):
        yield Found("medium", "runs an editing script from a file")
    for text in scripts:
        yield from _sed_script(text, call.cwd)


_SED_E = re.compile(r"(?:^|[;{}\n]|[0-9$/])\s*e(?:\s+([^\n]+)|\s*(?=$|[;}\n]))")
_SED_S = re.compile(
    r"(?:^|[;{}\n\s]|[0-9$/,])s(.)(?:\\.|(?!\1).)*\1((?:\\.|(?!\1).)*)\1([a-zA-Z0-9]*)(?:\s+(\S+))?", re.S
)
_SED_W = re.compile(r"(?:^|[;{}\n]|[0-9$/])\s*[wW]\s+([^\n;}]+)")


def _sed_script(text: str, cwd: str) -> Effects:
    for match in _SED_E.finditer(text):
        yield Found("high", "sed runs a command")
        if match[1]:
            yield Script(match[1])
    for match in _SED_S.finditer(text):
        if "e" in match[3]:
            yield Found("high", "sed runs what it has put together")
            yield Script(match[2])
        if "w" in match[3] and match[4]:
            yield from _into((match[4],), cwd)
    for match in _SED_W.finditer(text):
        yield from _into((match[1].strip(),), cwd)


def tar(call: ShellCall) -> Effects:
    words = call.args
    if words and words[0][:1] not in ("-", "") and re.fullmatch(r"[A-Za-z]+", words[0]):
        words = ("-" + words[0], *words[1:])
    valued = "f C I F T X g H b K L N directory file use-compress-program checkpoint-action to-command info-script"
    valued += " new-volume-script rsh-command exclude transform"
    options = read(words, valued)
    if options.has("t", "list") and not options.has("x", "extract"):
        effects: list[Found] = []
    else:
        effects = [Found("medium", "packs or unpacks files")]
    yield from effects
    for name in ("I", "use-compress-program", "F", "info-script", "new-volume-script", "to-command", "rsh-command"):
        for text in options.all(name):
            if text.split(" ")[0] not in ("gzip", "pigz", "zstd", "xz", "bzip2", "lz4", "lzma", "pbzip2", "lzip"):
                yield Found("high", "tar runs a command")
            yield Script(text)
    for text in options.all("checkpoint-action"):
        if text.startswith("exec="):
            yield Found("high", "tar runs a command")
            yield Script(text[5:])
    if options.has("x", "extract", "get"):
        yield from _into(tuple(options.all("C", "directory")), call.cwd)
        if options.has("P", "absolute-names"):
            yield Found("high", "unpacks to wherever the archive says")
    elif options.has("c", "create", "r", "u"):
        yield from _into(tuple(p for p in options.all("f", "file") if p != "-"), call.cwd)


def unzip(call: ShellCall) -> Effects:
    yield Found("medium", "packs or unpacks files")
    options = read(call.args, "d TT o O unzip-command")
    yield from _into(tuple(options.all("d")), call.cwd)
    if call.name == "zip" and options.all("TT", "unzip-command"):
        yield Found("high", "zip runs a command")
        yield from (Script(text) for text in options.all("TT", "unzip-command"))


def split(call: ShellCall) -> Effects:
    options = read(call.args, "a b C l n t filter additional-suffix")
    for text in options.all("filter"):
        yield Script(text)
    yield Found("medium", "writes many files")


def install(call: ShellCall) -> Effects:
    yield from cp(call)


def rg(call: ShellCall) -> Effects:
    options = read(call.args, "e f g t T A B C m pre pre-glob hostname-bin")
    for text in options.all("pre", "hostname-bin"):
        yield Found("high", "the search runs a program on every file")
        yield Run((text, UNKNOWN))


def _into(places: tuple[str, ...], cwd: str) -> Effects:
    for place in places:
        if found := writing(place, cwd):
            yield found


RULES: dict[str, Rule] = {
    **dict.fromkeys(("rm", "unlink", "grm", "rimraf", "trash", "srm", "del"), rm),
    **dict.fromkeys(("shred", "wipe", "scrub"), shred),
    **dict.fromkeys(("mv", "rename", "gmv"), mv),
    **dict.fromkeys(("cp", "gcp", "ditto"), cp),
    **dict.fromkeys(("ln", "link"), ln),
    **dict.fromkeys(("tee", "sponge"), tee),
    **dict.fromkeys(("chown", "chgrp"), chown),
    **dict.fromkeys(("touch", "mkdir", "mkfifo", "mknod", "fallocate"), touch),
    **dict.fromkeys(("sed", "gsed"), sed),
    **dict.fromkeys(("tar", "gtar", "bsdtar"), tar),
    **dict.fromkeys(("unzip", "zip", "gunzip", "gzip", "xz", "bzip2", "7z", "cpio", "unxz", "zstd"), unzip),
    **dict.fromkeys(("split", "csplit"), split),
    "chmod": chmod,
    "dd": dd,
    "install": install,
    "rg": rg,
    "rmdir": rmdir,
    "sort": sort,
    "truncate": truncate,
    "uniq": uniq,
}
