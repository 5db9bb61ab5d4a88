"""Programs that run others: which words they run, and what it means that they do."""

import re

from treadle.adapters.policy.shell.model import (
    UNKNOWN,
    Meanings,
    NestedCommand,
    Rating,
    Script,
    ShellCall,
    parse_table,
    read,
)

SHELLS = frozenset(["bash", "sh", "zsh", "dash", "ksh", "mksh", "ash", "rbash", "fish", "csh", "tcsh", "yash"])
_PREFIXES = parse_table(
    """
    builtin busybox command coproc nohup setsid valgrind torsocks unshare entr :
    chrt setarch taskset : T P D
    sudo doas pkexec gosu run0 : u g p C c D r t T U h R user group prompt chdir
    proxychains proxychains4 : f
    strace ltrace : e o p s u E P a b I O S X n
    chroot : userspec groups
    env : u unset C chdir S split-string
    exec : a
    flock : w E wait timeout conflict-exit-code
    ionice : c n p class classdata
    nice : n adjustment
    nsenter : t S G
    stdbuf : i o e input output error
    systemd-run : u p property unit description setenv
    time : f o format output
    timeout : k s kill-after signal
    watch : n interval q equexit
    """
)  # programs that run the rest of their words: the options that take a value
_WITH_OPERAND = ("chroot", "chrt", "flock", "setarch", "taskset", "timeout")  # those with a word of their own first
RUNNERS = parse_table("npx bunx uvx pnpx :\npoetry pdm pipenv hatch rye uv : run\nbundle npm : exec")
"""Programs of packages that run the words behind a verb."""
_RENAMES = Rating("high", "gives a name another meaning", hides_commands=True)
_POWERS = parse_table(
    """
    sudo doas pkexec gosu run0 su runuser sg : runs with another user's rights
    chroot : runs in another root directory
    nsenter : enters the namespaces of another process
    systemd-run : runs outside the command's own process tree
    """
)


COMMAND_OPTIONS = parse_table(
    """
    tar gtar bsdtar : to-command use-compress-program I F info-script new-volume-script rsh-command checkpoint-action
    rsync : e rsh
    ssh scp sftp : o
    scp sftp : S D
    split : filter
    sort : compress-program
    tcpdump : z
    zip : TT unzip-command
    man : P pager H html
    nc ncat netcat : e c exec sh-exec
    vim vi nvim view ex gvim : c cmd
    emacs : e eval execute
    gdb lldb : ex eval-command o one-line
    go : exec toolexec vettool
    make gmake bmake : E eval
    """
)  # options whose value is a command or code, by program
_PLAIN_HELPER = re.compile(r"(?:ssh|gzip|bzip2|xz|zstd|pigz|lz4|cat)(?:\s+-[A-Za-z0-9]+|\s+\d+)*|dot|echo(?:=.*)?")
_SSH_COMMAND = re.compile(r"\s*(?:proxy|local|knownhosts)command[\s=]", re.I)
_CODE_OPTION = re.compile(r"-[A-Za-z]*[ceErp]|-[ceE].+|--(?:eval|exec|print|command)(?:=.*)?|-(?:eval|Command)", re.S)
_VALUED = ("-W", "-X", "-I", "-C", "-l", "-L", "--require", "--import", "--loader")  # options of interpreters
_STARTS_COMMANDS = re.compile(
    r"system|popen|spawn|exec|process|fork|eval|compile|shell|pty|ctypes|importlib|import_module|__|getattr|modules"
    r"|\bos\b|posix|`|\bqx\b|%x|\brun\b|\bopen\b.*\||\bcmd\b|\bsh\b|passthru|proc_open|:!",
    re.I | re.S,
)  # words without which code in an interpreter starts no program
_AWK = frozenset(["awk", "gawk", "mawk", "nawk"])
_AWK_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_AWK_RUNS = re.compile(r"\bsystem\s*\(|\bprintf?\b[^;}\n]*(?<!\|)\|(?!\|)|\|&?\s*getline|@\w")
_SED_RUNS = re.compile(
    r"(?:^|[;{}\n!\d$/])\s*e(?:\s|;|$)|s(?P<mark>[^\w\s])(?:\\.|(?!(?P=mark)).)*(?P=mark)(?:\\.|(?!(?P=mark)).)*(?P=mark)"
    r"[gpIiMm\d]*e",
    re.S,
)
_CLIENT_RUNS = re.compile(r"\\!|\bsystem\b|\.shell\b|\bto\s+program\b|^!|^\s*(?:shell|python|pipe)\b", re.I)


def can_hide_commands(call: ShellCall, *, is_interpreter: bool) -> bool:
    """True if the program may run commands that stand in its code or in the values of its options (S-07)."""
    name, args = call.name, call.args
    code = " ".join(args)
    if name in _AWK:
        has_quoted_pattern = re.search(r'/[^/"]*"[^/"]*/', code)
        return UNKNOWN in code or _AWK_RUNS.search(code if has_quoted_pattern else _AWK_TEXT.sub("", code)) is not None
    if name in ("sed", "gsed"):
        return any(_SED_RUNS.search(word) for word in args)
    if name in ("psql", "mysql", "mariadb", "sqlite3"):
        return any(_CLIENT_RUNS.search(text) for text in (*args, call.stdin or ""))
    if is_interpreter:
        return _has_code_with_commands(call)
    names = COMMAND_OPTIONS.get(name, "")
    options = read(args, names)
    values = options.list_values(*names.split())
    if name in ("ssh", "scp", "sftp"):  # of the settings that follow -o a few are commands
        settings = (
            value for value in options.list_values("o") if _SSH_COMMAND.match(value) or value.startswith(UNKNOWN)
        )
        values = [*options.list_values("S", "D"), *settings]
    commands = [word for word in args if re.match(r"\+[^\d/]", word)] if "cmd" in names.split() else []
    return bool(commands) or any(not _PLAIN_HELPER.fullmatch(value) for value in values)


def _has_code_with_commands(call: ShellCall) -> bool:
    """True if the code that an interpreter gets by an option, or by its input instead of a script, may run commands."""
    code = call.stdin or ""
    for at, word in enumerate(call.args):
        if _CODE_OPTION.fullmatch(word):
            code = " ".join(call.args[at:])
            break
        if word == "-m" or (word[:1] != "-" and "".join(call.args[max(0, at - 1) : at]) not in _VALUED):
            return False  # a module or a script
    is_shell = call.name in ("pwsh", "powershell")
    return bool(code) and (is_shell or UNKNOWN in code or _STARTS_COMMANDS.search(code) is not None)


def unwrap_call(call: ShellCall) -> Meanings | None:
    """Return the commands and scripts that a program runs. None for a program that runs no other."""
    name, args = call.name, call.args
    if name in SHELLS:
        return _unwrap_shell(call)
    if name in _PREFIXES:
        return _unwrap_prefix(call)
    if name in RUNNERS and (not RUNNERS[name] or args[:1] == (RUNNERS[name],)):
        options = read(args[bool(RUNNERS[name]) :], "p package c call from with python", until_word=True)
        return [*map(Script, options.list_values("c", "call")), NestedCommand(options.operands)]
    match name:
        case "eval":
            return _unwrap_text(" ".join(args))
        case "trap":
            return _unwrap_text(" ".join(read(args, until_word=True).operands[:1]))
        case "alias" if values := [word.partition("=")[2] for word in args if "=" in word]:
            return [_RENAMES, *map(Script, values)]
        case "hash" | "enable" if any(word[:1] == "-" and {"p", "f"} & {*word} for word in args):
            return [_RENAMES]
        case "source" | ".":
            return _unwrap_script(call, args[0]) if args else []
        case "su" | "runuser" | "sg" | "script":
            return _unwrap_text_option(call)
        case "at" | "batch" if call.stdin is not None:
            return _unwrap_input(call)
        case "xargs" | "parallel":
            return _spread(call)
        case "find":
            return _find(args)
        case "fd" | "fdfind":
            at = next((n for n, word in enumerate(args) if word in ("-x", "-X", "--exec", "--exec-batch")), len(args))
            words = [each.replace("{}", UNKNOWN) for each in args[at + 1 :]]
            return [NestedCommand((*words, UNKNOWN))] if at < len(args) else []
    return None


def _unwrap_prefix(call: ShellCall) -> Meanings:
    if power := _POWERS.get(call.name):
        yield Rating("high", power)
    options = read(call.args, _PREFIXES[call.name], until_word=True)
    command_words = options.operands[call.name in _WITH_OPERAND :]
    yield from _rate_unsure(call.args[: len(call.args) - len(command_words)])
    match call.name:
        case "time" | "strace" | "ltrace" if options.has("o", "output"):
            yield Rating("medium", "writes what it measures into a file")
        case "env" if texts := options.list_values("S", "split-string"):
            yield from map(Script, texts)
        case "env" if not command_words:
            yield Rating("medium", "shows the environment, which may hold secrets")
        case "flock" if command_words[:1] in (("-c",), ("--command",)):
            command_words = ("sh", *command_words)
        case "watch" | "entr":
            yield Script(" ".join(command_words))
            return
        case _:
            pass
    if command_words:
        cwd = next(iter(options.list_values("C", "chdir") if call.name == "env" else ()), None)
        yield NestedCommand(command_words[1:] if command_words[0] in ("{", "-") else command_words, call.stdin, cwd)
    elif call.stdin is not None and call.name in _POWERS:
        yield from _unwrap_input(call)


def _rate_unsure(words: tuple[str, ...]) -> Meanings:
    """Without quotes an unknown word may be several, and so name the program."""
    if any(UNKNOWN in word for word in words):
        yield Rating("high", "which program runs is not known before it does", unseen=True, hides_commands=True)


def _unwrap_text_option(call: ShellCall) -> Meanings:
    options = read(call.args, "c command s shell g G u user group")
    yield Rating("high", _POWERS[call.name]) if call.name in _POWERS else Rating("medium", "starts a shell")
    for text in options.list_values("c", "command", "session-command"):
        yield from _unwrap_text(text)
    if call.name == "runuser" and options.has("u", "user"):
        yield NestedCommand(options.operands)
    elif call.stdin is not None and not options.has("c", "command"):
        yield from _unwrap_input(call)


def _unwrap_shell(call: ShellCall) -> Meanings:
    """bash, sh and their kin: -c text, a script's name, or what is piped in."""
    args = tuple(word for at, word in enumerate(call.args) if word[:1] != "+" or "-c" in call.args[:at])
    options = read(args, "O o rcfile init-file", until_word=True)
    for path in options.list_values("rcfile", "init-file"):
        yield from _unwrap_script(call, path)
    if options.has("version", "help"):
        return
    if "c" in options.flags:
        yield from _unwrap_text(options.operands[0]) if options.operands else ()
    elif options.operands and "s" not in options.flags:
        yield from _unwrap_script(call, options.operands[0])
    elif call.stdin is not None:
        yield from _unwrap_input(call)
    else:
        yield Rating("medium", "starts a shell")


def _unwrap_text(text: str) -> Meanings:
    if UNKNOWN in text:
        yield Rating("high", "a shell gets a text that is not known before it runs", unseen=True, hides_commands=True)
    yield Script(text)


def _unwrap_input(call: ShellCall) -> Meanings:
    if UNKNOWN in (call.stdin or ""):
        reason = f"{call.name} runs the text that is piped into it, which no person has seen"
        yield Rating("high", reason, unseen=True, hides_commands=True)
    yield Script(call.stdin or "")


def _unwrap_script(call: ShellCall, path: str) -> Meanings:
    if path in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0") and call.stdin is not None:
        yield from _unwrap_input(call)
    elif UNKNOWN in path:
        # One whole unknown word may be `<(…)`: then the commands are made here, and no file holds them.
        made_here = path == UNKNOWN
        yield Rating("high", "runs a script that is not known before it runs", unseen=True, hides_commands=made_here)
    else:
        yield Rating("medium", "runs a script whose content is not part of the command", unseen=True)


def _spread(call: ShellCall) -> Meanings:
    valued = "a d E I L n P s j S arg-file delimiter eof replace max-lines max-args max-procs max-chars jobs"
    options = read(call.args, valued, until_word=True)
    words, text = options.operands or ("echo",), call.stdin
    yield from _rate_unsure(call.args[: len(call.args) - len(options.operands)])
    arguments = tuple(text.split()) if text and UNKNOWN not in text and not options.has("a", "arg-file") else (UNKNOWN,)
    if text and options.has("0", "null", "d", "delimiter"):
        arguments = (text.strip("\n"),)
    if call.name == "parallel":
        yield Rating("medium", "starts many commands at once")
        yield Script(" ".join((*options.operands, *arguments)).replace(":::", " "))
    elif marks := options.list_values("I", "replace") or (["{}"] if options.has("i") else []):
        yield from (NestedCommand(tuple(each.replace(marks[0], value) for each in words)) for value in arguments[:8])
    else:
        yield NestedCommand((*words, *arguments))


def _find(args: tuple[str, ...]) -> Meanings:
    args = tuple(word for word in args if word not in ("-H", "-L", "-P"))
    first = next((at for at, word in enumerate(args) if word[:1] in ("-", "(", "!", ")")), len(args))
    tests = args[first:]
    narrowed = any(word in ("-name", "-iname", "-path", "-regex", "-mtime", "-newer", "-empty") for word in tests)
    for start in args[:first] or (".",):
        inside = start.rstrip("/") == "." or start[:1] not in "/~."
        target = UNKNOWN if narrowed and inside else f"{start}/{UNKNOWN if start[:1] in '/~' else '*'}"
        for at, word in enumerate(tests):
            if word == "-delete":
                yield Rating("high", "deletes every file that matches, in all directories below")
                yield NestedCommand(("rm", "-r", target))
            elif word in ("-exec", "-execdir", "-ok", "-okdir"):
                words = tests[at + 1 :]
                end = next((n for n, each in enumerate(words) if each in (";", "+")), len(words))
                yield NestedCommand(tuple(each.replace("{}", target) for each in words[:end]))
