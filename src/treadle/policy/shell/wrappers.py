"""Programs that run other programs: what they run, and what it means that they do. Each rule gives effects only."""

import re
from collections.abc import Callable

from treadle.policy.shell.arguments import read
from treadle.policy.shell.model import UNKNOWN, Code, Effects, Found, Run, Script, Severity, ShellCall
from treadle.policy.shell.places import reading, resolve, writing
from treadle.policy.shell.settings import is_secret

Rule = Callable[[ShellCall], Effects]

_PREFIXES: dict[str, tuple[str, int]] = {
    "builtin": ("", 0),
    "busybox": ("", 0),
    "caffeinate": ("t w", 0),
    "cgexec": ("g", 0),
    "chronic": ("", 0),
    "chrt": ("T P D", 1),
    "coproc": ("", 0),
    "dbus-run-session": ("config-file", 0),
    "exec": ("a", 0),
    "faketime": ("f", 1),
    "fakeroot": ("l s i", 0),
    "gtimeout": ("k s kill-after signal", 1),
    "ionice": ("c n p class classdata", 0),
    "ltrace": ("e o p s u a n", 0),
    "nice": ("n adjustment", 0),
    "noglob": ("", 0),
    "nocorrect": ("", 0),
    "nohup": ("", 0),
    "numactl": ("N m C p", 0),
    "prlimit": ("", 0),
    "proxychains": ("f", 0),
    "proxychains4": ("f", 0),
    "rlwrap": ("f H P", 0),
    "setsid": ("", 0),
    "stdbuf": ("i o e input output error", 0),
    "strace": ("e o p s u E P a b I O S X", 0),
    "taskset": ("", 1),
    "time": ("f o format output", 0),
    "timeout": ("k s kill-after signal", 1),
    "torsocks": ("", 0),
    "toybox": ("", 0),
    "unbuffer": ("", 0),
    "valgrind": ("", 0),
    "xvfb-run": ("e f n p s w", 0),
    "dotenv": ("f", 0),
    "catchsegv": ("", 0),
    "setarch": ("", 1),
}
"""Programs that run the rest of their words: the options that take a value, and how many words come first."""

_POWERS: dict[str, tuple[Severity, str]] = {
    "chroot": ("high", "runs in another root directory"),
    "nsenter": ("high", "enters the namespaces of another process"),
    "systemd-run": ("high", "runs outside the command's own process tree"),
    "unshare": ("medium", "runs in namespaces of its own"),
    "firejail": ("medium", "runs in another sandbox"),
    "strace": ("medium", "traces another program"),
    "ltrace": ("medium", "traces another program"),
    "proxychains": ("medium", "reaches the network through a proxy"),
    "proxychains4": ("medium", "reaches the network through a proxy"),
    "torsocks": ("medium", "reaches the network through Tor"),
}


def prefix(call: ShellCall) -> Effects:
    valued, skipped = _PREFIXES[call.name]
    power = _POWERS.get(call.name)
    if power:
        yield Found(*power)
    options = read(call.args, valued, until_word=True)
    rest = options.rest[skipped:]
    for name in ("o", "output"):
        for path in options.all(name) if call.name in ("time", "strace", "ltrace") else ():
            if found := writing(path, call.cwd):
                yield found
    if call.name == "coproc" and rest[:1] == ("{",):
        rest = rest[1:]
    if rest:
        yield Run(rest, stdin=call.stdin)


def strange_root(call: ShellCall) -> Effects:
    yield Found(*_POWERS[call.name])
    options = read(call.args, "u g S G userspec groups t p property unit description setenv", until_word=True)
    rest = options.rest[1:] if call.name == "chroot" else options.rest
    if rest:
        yield Run(rest)


def command(call: ShellCall) -> Effects:
    options = read(call.args, until_word=True)
    if options.rest and not options.has("v", "V"):
        yield Run(options.rest, stdin=call.stdin)


def env(call: ShellCall) -> Effects:
    options = read(call.args, "u unset C chdir S split-string block-signal", until_word=True)
    rest = list(options.rest[1:] if options.rest[:1] == ("-",) else options.rest)
    for text in options.all("S", "split-string"):
        yield Script(text + " " + " ".join(_quote(word) for word in rest))
        rest = []
    assigned = []
    while rest and re.match(r"[A-Za-z_]\w*=", rest[0]):
        assigned.append(rest.pop(0))
    if rest:
        cwd = next(iter(options.all("C", "chdir")), None)
        yield Run((*assigned, *rest), cwd=cwd, stdin=call.stdin)
    elif not options.all("S", "split-string") and not options.has("version", "help"):
        yield Found("medium", "shows the environment, which may hold secrets")


def printenv(call: ShellCall) -> Effects:
    if not [word for word in call.args if not word.startswith("-")]:
        yield Found("medium", "shows the environment, which may hold secrets")
    elif any(is_secret(word) for word in call.args):
        yield Found("high", "shows a secret of the environment")


def sudo(call: ShellCall) -> Effects:
    yield Found("high", f"runs with another user's rights ({call.name})")
    valued = "u g p C c D r t T U h R user group prompt chdir host role type close-from other-user chroot"
    options = read(call.args, valued, until_word=True)
    rest = list(options.rest)
    assigned = []
    while rest and re.match(r"[A-Za-z_]\w*=", rest[0]):
        assigned.append(rest.pop(0))
    if options.has("e", "edit"):
        for path in rest:
            if found := writing(path, call.cwd):
                yield found
    elif rest:
        yield Run((*assigned, *rest), stdin=call.stdin)
    elif call.stdin is not None:
        yield from shell_input(call)


def su(call: ShellCall) -> Effects:
    yield Found("high", f"runs with another user's rights ({call.name})")
    options = read(call.args, "c command s shell g G u user group")
    for text in options.all("c", "command", "session-command"):
        yield Script(text)
    if call.stdin is not None and not options.has("c", "command"):
        yield from shell_input(call)
    if call.name == "runuser" and options.has("u", "user") and options.rest:
        yield Run(options.rest)


def watch(call: ShellCall) -> Effects:
    options = read(call.args, "n interval q equexit", until_word=True)
    yield Script(" ".join(options.rest))


def ssh(call: ShellCall) -> Effects:
    yield Found("medium", "runs commands on another machine")
    valued = "B b c D E e F I i J L l m O o p Q R S W w"
    options = read(call.args, valued, until_word=True)
    for setting in options.all("o"):
        name, _, value = setting.partition("=") if "=" in setting else setting.partition(" ")
        if name.strip().lower() in ("proxycommand", "localcommand", "knownhostscommand"):
            yield Found("high", f"ssh runs a local command ({name.strip()})")
            yield Script(value)
    later = read(options.rest[1:], valued, until_word=True)
    if later.rest:
        yield Script(" ".join(later.rest))
    elif call.stdin is not None:
        yield from shell_input(call)


def script(call: ShellCall) -> Effects:
    options = read(call.args, "c command I O B T E m o")
    for text in options.all("c", "command"):
        yield Script(text)
    for path in options.rest:
        if found := writing(path, call.cwd):
            yield found
    if not options.has("c", "command"):
        yield Found("medium", "starts a shell")


def flock(call: ShellCall) -> Effects:
    options = read(call.args, "w E wait timeout conflict-exit-code", until_word=True)
    rest = options.rest[1:]
    if rest[:1] in (("-c",), ("--command",)):
        yield from (Script(text) for text in rest[1:2])
    elif rest:
        yield Run(rest, stdin=call.stdin)


def entr(call: ShellCall) -> Effects:
    options = read(call.args, until_word=True)
    if options.has("s"):
        yield Script(" ".join(options.rest))
    elif options.rest:
        yield Run(options.rest)


def shell(call: ShellCall) -> Effects:
    """bash, sh and their kin: -c text, a script's name, or what is piped in."""
    args = tuple(word for at, word in enumerate(call.args) if word[:1] != "+" or "-c" in call.args[:at])
    options = read(args, "O o rcfile init-file", until_word=True)
    for path in options.all("rcfile", "init-file"):
        yield from _script_file(path, call)
    if options.has("version", "help"):
        return
    if "c" in options.flags:
        if options.rest:
            yield Script(options.rest[0], options.rest[1:])
        return
    if options.rest and "s" not in options.flags:
        yield from _script_file(options.rest[0], call)
    elif call.stdin is not None:
        yield from shell_input(call)
    else:
        yield Found("medium", "starts a shell")


def shell_input(call: ShellCall) -> Effects:
    text = call.stdin or ""
    if UNKNOWN in text:
        yield Found("high", f"{call.name} runs whatever is piped into it, which nobody has seen")
    yield Script(text)


def source(call: ShellCall) -> Effects:
    if call.args:
        yield from _script_file(call.args[0], call)


def _script_file(path: str, call: ShellCall) -> Effects:
    where = resolve(path, call.cwd)
    if path in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0") and call.stdin is not None:
        yield from shell_input(call)
        return
    text = call.files.get(where)
    if text is None:
        yield Found("medium", "runs a script whose content is not part of the command")
        if found := reading(path, call.cwd):
            yield found
        return
    if UNKNOWN in text:
        yield Found("high", "runs what the same command has just made or fetched, which nobody has seen")
    yield Script(text, call.args[1:])


def awk(call: ShellCall) -> Effects:
    options = read(call.args, "f F v i E file field-separator assign include exec", until_word=True)
    if options.has("f", "file", "E", "exec"):
        yield Found("medium", "runs a program from a file")
    elif options.rest:
        assigned = "".join(f' "{value.partition("=")[2]}"' for value in options.all("v", "assign"))
        yield Code("awk", options.rest[0] + assigned)


def _quote(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


RULES: dict[str, Rule] = {
    **dict.fromkeys(_PREFIXES, prefix),
    **dict.fromkeys(("chroot", "nsenter", "systemd-run", "unshare", "firejail"), strange_root),
    **dict.fromkeys(("sudo", "doas", "pkexec", "sudoedit", "gosu", "run0"), sudo),
    **dict.fromkeys(("su", "runuser", "sg"), su),
    **dict.fromkeys(("bash", "sh", "zsh", "dash", "ksh", "mksh", "ash", "rbash", "fish", "csh", "tcsh", "yash"), shell),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), awk),
    **dict.fromkeys(("source", "."), source),
    "command": command,
    "entr": entr,
    "env": env,
    "flock": flock,
    "printenv": printenv,
    "script": script,
    "ssh": ssh,
    "watch": watch,
}
