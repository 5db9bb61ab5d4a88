"""What each program does: harmless ones by name, others by their rules; a program nobody knows is medium."""

import re

from treadle.policy.shell import files, git, interpreters, spreaders, system, tools, wrappers
from treadle.policy.shell.arguments import read
from treadle.policy.shell.model import UNKNOWN, Effects, Found, Script, ShellCall, names
from treadle.policy.shell.places import reading, writing
from treadle.policy.shell.wrappers import Rule

HARMLESS = names(
    """
    ls dir vdir cat echo printf pwd head tail wc cut tr grep egrep fgrep zgrep zcat ag ack diff diff3 sdiff cmp
    comm file stat du df whoami id uname which type whereis basename dirname realpath readlink test [ [[ true
    false : sleep seq expr tree nl od hexdump strings md5sum sha1sum sha224sum sha256sum sha384sum sha512sum
    b2sum cksum sum fold fmt column paste join tac rev shuf ps top htop free uptime nproc arch groups tty locale
    jq cal factor getconf lscpu lsblk lsusb lspci lsof vmstat iostat sensors users w who last tput clear reset
    stty bc dc base64 base32 iconv expand unexpand pr tsort numfmt yes apropos info whatis help history cd pushd
    popd dirs exit return break continue wait jobs fg bg disown umask ulimit shift getopts times logout let
    local readonly suspend caller colordiff delta bat batcat exa eza lsd hyperfine tokei cloc scc pgrep pidof
    pstree sha3sum shasum md5 sw_vers getent logname hostid dmesg journalctl ldd nm objdump readelf size c++filt
    addr2line ncal zless xxd rev diffstat look units figlet cowsay identify exiftool mediainfo ffprobe cloc
    xmllint pygmentize tldr loc mktemp fc read mapfile readarray unset set declare typeset export shopt compgen
    complete bind enable hash trap alias unalias eval
    """
)
"""Programs that only read and write to the screen, and builtins that the walk follows itself."""

_MENTIONS = names(
    """
    echo printf : true false test [ [[ ls stat file mkdir touch rm rmdir chmod chown du cd pushd basename
    dirname realpath which type export find fd exit return read sleep seq expr let ln trap alias env timeout
    nice nohup command exec time bash sh zsh dash eval sudo xargs
    """
)
"""Programs whose words are not files that they read; those that run others are judged by what they run."""

_PATTERNS = names(
    """
    grep egrep fgrep zgrep rg ag ack sed awk gawk jq perl
    """
)
"""The first word is not a file."""

RULES: dict[str, Rule] = {
    **tools.RULES,
    **system.RULES,
    **files.RULES,
    **git.RULES,
    **interpreters.RULES,
    **spreaders.RULES,
    **wrappers.RULES,
}
_SYSTEM_PLACES = re.compile(r"(/usr(/local)?|/opt/homebrew|/run/current-system/sw)?/s?bin/([^/]+)|/usr/lib/\w+/(\w+)")
_VERSION = (("--version",), ("--help",))


def plain_name(name: str) -> tuple[str, bool]:
    """A program's name without its place, and whether it is the one that everybody knows by that name."""
    if "/" not in name:
        return name.removesuffix(".exe"), True
    match = _SYSTEM_PLACES.fullmatch(name)
    return name.rstrip("/").rsplit("/", 1)[-1], match is not None


def is_known(name: str) -> bool:
    return name in HARMLESS or name in RULES or name.startswith("mkfs.") or interpreters.is_interpreter(name)


def judge(call: ShellCall) -> Effects:
    name = call.name
    if not is_known(name) and is_known(name.lower()):
        call = ShellCall(
            name.lower(), call.args, call.cwd, call.stdin, call.files
        )  # some file systems know no capitals
        yield Found("medium", f"{name} is a program that is not known here")
    if call.name.startswith("mkfs."):
        call = ShellCall("mkfs", call.args, call.cwd, call.stdin, call.files)
    rule = RULES.get(call.name) or (interpreters.interpreter if interpreters.is_interpreter(call.name) else None)
    if rule is not None:
        yield from rule(call)
    elif call.name in HARMLESS:
        yield from _exceptions(call)
    else:
        yield Found("medium", f"{name or 'it'} is a program that is not known here")
    yield from secrets(call)


def _exceptions(call: ShellCall) -> Effects:
    """The few words that make a harmless program do more."""
    match call.name:
        case "journalctl" if any(word.startswith("--vacuum") for word in call.args):
            yield Found("high", "deletes the system's journal")
        case "dmesg" if read(call.args).has("C", "clear", "c"):
            yield Found("high", "deletes the kernel's messages")
        case "tree" | "shuf" | "xxd" | "base64" | "iconv" | "jq":
            options = read(call.args, "o output L P I f")
            targets = options.all("o", "output") if call.name != "xxd" else list(options.rest[1:2])
            for path in targets:
                if found := writing(path, call.cwd):
                    yield found
        case "yes" if not call.args:
            return
        case "history" if call.args:
            yield Found("medium", "changes the history")
        case "bat" | "batcat" | "ack" | "ag":
            for text in read(call.args, "pager").all("pager"):
                yield Script(text)
        case "set" | "declare" | "typeset" | "export" if not [w for w in call.args if w not in ("-p", "-x")]:
            yield Found("medium", "shows the environment, which may hold secrets")


def secrets(call: ShellCall) -> Effects:
    if call.name in _MENTIONS:
        return
    words = list(call.args)
    if call.name in _PATTERNS:
        first = next((n for n, word in enumerate(words) if not word.startswith("-")), None)
        if first is not None:
            words[first] = ""
    if call.name == "git":
        words = [word for at, word in enumerate(words) if words[at - 1 : at] not in (["-m"], ["--message"], ["-am"])]
    for word in words:
        if word and (found := reading(word.replace(UNKNOWN, "x"), call.cwd)):
            yield found
