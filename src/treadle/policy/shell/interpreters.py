"""Interpreters and editors that run code given as an argument or piped in, and what such code would do.

The code is not parsed: it is searched for the calls that delete, start programs or open connections, and the texts in
it are judged as commands where it starts programs. Running code is never harmless, so the floor is medium.
"""

import re

from treadle.policy.shell.arguments import read
from treadle.policy.shell.model import UNKNOWN, Code, Effects, Found, Script, ShellCall, names
from treadle.policy.shell.places import deleting, reading, resolve, writing
from treadle.policy.shell.wrappers import Rule

_LANGUAGES: dict[str, tuple[str, str]] = {
    "python": ("c", "m W X c"),
    "perl": ("e E", "e E I M m i_"),
    "ruby": ("e", "e I r C"),
    "node": ("e p eval print", "e p r eval print require import"),
    "php": ("r B R E", "r B R E d f c"),
    "lua": ("e", "e l"),
    "deno": ("", ""),
    "bun": ("e eval", "e eval"),
    "Rscript": ("e", "e"),
    "R": ("e", "e f"),
    "julia": ("e E", "e E L"),
    "tclsh": ("", ""),
    "osascript": ("e", "e l"),
    "pwsh": ("c Command EncodedCommand", "c Command EncodedCommand File"),
    "groovy": ("e", "e"),
    "elixir": ("e eval", "e eval r"),
    "erl": ("eval", "eval"),
    "scala": ("e", "e"),
    "ghci": ("e", "e"),
    "guile": ("c", "c"),
    "expect": ("c", "c"),
    "jshell": ("", ""),
    "irb": ("", ""),
    "ipython": ("c", "c m"),
}
_ALIASES = {
    "nodejs": "node",
    "powershell": "pwsh",
    "luajit": "lua",
    "pypy": "python",
    "pypy3": "python",
    "ts-node": "node",
    "tsx": "node",
}
_STRING = re.compile(r"'''(.*?)'''|\"\"\"(.*?)\"\"\"|'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\"|`([^`]*)`", re.S)
_LIST = re.compile(r"\[([^\[\]]*)\]|\(([^()]*)\)")
_STARTS = re.compile(
    r"\b(system|popen|subprocess|Popen|spawn\w*|exec\w*|child_process|passthru|shell_exec|proc_open|pty|qx|IO\.popen|Open3|backtick"
    r"|do shell script|shell-command|run|ProcessBuilder|Runtime|os\.startfile|Start-Process|Invoke-Expression|iex"
    r"|shell)\b|`|%x"
)
_HIDES = re.compile(
    r"\b(b64decode|base64|fromhex|unhexlify|atob|pack\s*\(|decode64|codecs\.decode|from_base64|marshal\.loads|EncodedCommand"
    r"|fromCharCode|zlib\.decompress|__import__|getattr\s*\(|chr\s*\()",
    re.I,
)
_RUNS_TEXT = re.compile(r"\b(exec|eval|compile|Function|instance_eval|class_eval|loadstring|load|system|popen|iex)\b")
_DELETES = re.compile(
    r"rmtree|rm_rf|rm_r\b|remove_dir|rmSync|rmdirSync|\brm\s*\(|\.rm\(|unlink|removedirs|remove_entry|remove_tree|File\.delete"
    r"|os\.remove|rimraf|Remove-Item|remove_dir_all|deleteFile|\.rmdir\("
    r"|\bremove(Sync)?\s*\("
)
_TREES = re.compile(r"rmtree|rm_r|remove_dir|rmSync|rmdirSync|recursive|removedirs|remove_tree|rimraf|-Recurse")
_HOMES = re.compile(
    r"expanduser|Path\.home|homedir|Dir\.home|\$ENV\{HOME\}|environ\[.HOME|ENV\[.HOME|process\.env\.HOME|os\.sep|/\s*\*|\s[/~]\s*$"
)
_FORKS = re.compile(r"\bfork\b")
_LOOPS = re.compile(r"\b(while|for|loop|until|forever)\b|\bfork\b.*\bfork\b", re.S)
_CONNECTS = re.compile(
    r"\b(socket|urllib|requests|http\.client|httpx|fetch|Net::HTTP|LWP|XMLHttpRequest|net\.connect|IO::Socket|fsockopen)\b"
)
_DUPLICATES = re.compile(r"\bdup2?\b|STDIN|stdin.*sock|pty\.spawn|/bin/(ba|z|da)?sh\b.*-i")
_WRITES = re.compile(
    r"open\s*\(|write_text|write_bytes|writeFile|File\.write|file_put_contents|appendFile|createWriteStream|>\s*[\"']"
)
_ENVIRONMENT = re.compile(
    r"os\.environ\b(?!\s*[\[.])|process\.env\b(?!\.\w)|%ENV\b|ENV\.(each|to_h|inspect)|getenv\(\)"
)
_MODULES_THAT_READ = (
    "json.tool",
    "py_compile",
    "tokenize",
    "ast",
    "calendar",
    "site",
    "sysconfig",
    "platform",
    "dis",
    "this",
)


def interpreter(call: ShellCall) -> Effects:
    language = language_of(call.name)
    flags, valued = _LANGUAGES[language]
    options = read(call.args, valued, until_word=True)
    texts = options.all(*flags.split()) if flags else []
    if options.has("i") and language in ("perl", "ruby"):
        yield from (found for path in options.rest if (found := writing(path, call.cwd)))
    if texts or (language == "deno" and options.rest[:1] == ("eval",)):
        for text in (*texts, *options.rest[1:2]) if language == "deno" else texts:
            yield Code(language, text)
        return
    if not options.rest and options.has("version", "V", "v", "help", "h"):
        return
    modules = options.all("m") if language in ("python", "ipython") else []
    if modules and modules[0] in _MODULES_THAT_READ:
        return
    if call.stdin is not None and (not options.rest or options.rest[0] in ("-", "/dev/stdin")) and not modules:
        if UNKNOWN in call.stdin:
            yield Found("high", f"{call.name} runs whatever is piped into it, which nobody has seen")
        yield Code(language, call.stdin)
        return
    yield from _file(call, options.rest, language)


def _file(call: ShellCall, rest: tuple[str, ...], language: str) -> Effects:
    yield Found("medium", f"{call.name} runs code that is not part of the command")
    text = call.files.get(resolve(rest[0], call.cwd)) if rest else None
    if text is None:
        return
    if UNKNOWN in text:
        yield Found("high", "runs what the same command has just made or fetched, which nobody has seen")
    yield Code(language, text)


def language_of(name: str) -> str:
    if name in _ALIASES:
        return _ALIASES[name]
    bare = re.sub(r"[\d.]+w?$", "", name)
    return bare if bare in _LANGUAGES else name


def is_interpreter(name: str) -> bool:
    return language_of(name) in _LANGUAGES


def judge_code(code: Code, cwd: str) -> Effects:
    """What code in another language does, as far as its calls and texts show."""
    text = code.text
    if code.language == "awk":
        yield from _awk(text, cwd)
        return
    yield Found("medium", f"runs code in {code.language}")
    strings = [next(part for part in match if part is not None) if any(match) else "" for match in _matches(text)]
    if _FORKS.search(text) and _LOOPS.search(text):
        yield Found("critical", "starts processes without end")
    if _HIDES.search(text) and _RUNS_TEXT.search(text):
        yield Found("high", "runs text that it hides")
    if _CONNECTS.search(text) and (_DUPLICATES.search(text) or _STARTS.search(text)):
        yield Found("high", "gives somebody on the network a program to drive, or sends and starts things")
    if _ENVIRONMENT.search(text):
        yield Found(
            "high" if _CONNECTS.search(text) else "medium", "reads the whole environment, which may hold secrets"
        )
    if found := reading(text):
        yield Found("high", f"{found.reason}"[:120])
    yield from _deletions(text, strings, cwd)
    yield from _starts(text, strings)
    if _WRITES.search(text):
        for each in strings:
            if each.startswith(("/", "~", "..", ".git/", "./.git/")) and (found := writing(each, cwd)):
                yield found


def _matches(text: str) -> list[tuple[str | None, ...]]:
    return [match.groups() for match in _STRING.finditer(text)]


def _deletions(text: str, strings: list[str], cwd: str) -> Effects:
    if not _DELETES.search(text):
        return
    tree = bool(_TREES.search(text))
    yield Found("high" if tree else "medium", "deletes files")
    if tree and _HOMES.search(text):
        yield Found("critical", "deletes a person's own files, or everything")
    for each in strings:
        if each.startswith(("/", "~", "..")) or each == ".":
            yield deleting(each, cwd, recursive=tree)


def _starts(text: str, strings: list[str]) -> Effects:
    if not _STARTS.search(text):
        return
    if not strings or re.search(r"[\"'`]\s*[+.]\s*[\w\"'$`]|\.join|%\s*\(|\.format|f[\"']|#\{|\$\{|\$\w", text):
        yield Found("high", "starts programs whose names it puts together")
    for each in strings:
        yield Script(_unescape(each))
    for match in _LIST.finditer(text):
        inner = match[1] or match[2] or ""
        words = [next((part for part in groups if part is not None), "") for groups in _matches(inner)]
        if len(words) > 1:
            yield Script(" ".join(words))
    if len(strings) > 1:
        yield Script("".join(strings))
        yield Script(" ".join(strings))


def _unescape(text: str) -> str:
    return re.sub(r"\\x([0-9a-fA-F]{2})", lambda m: chr(int(m[1], 16)), text).replace("\\n", "\n").replace("\\", "")


def _awk(text: str, cwd: str) -> Effects:
    strings = re.findall(r'"((?:\\.|[^"\\])*)"', text)
    if re.search(r"\bsystem\s*\(|\|\s*(getline|&|\")|\"\s*\|\s*getline|\|\s*\w+\s*(;|}|$)", text):
        literal = re.search(r'system\s*\(\s*"(?:\\.|[^"\\])*"\s*\)|\|\s*"|"\s*\|\s*getline', text)
        yield Found("medium" if literal else "high", "awk runs a command")
        for each in (*strings, "".join(strings)):
            yield Script(each)
    for match in re.finditer(r'>>?\s*"([^"]+)"', text):
        if found := writing(match[1], cwd):
            yield found
    if re.search(r"@load|ENVIRON\b(?!\[)|/inet/", text):
        yield Found("high", "awk reaches beyond its input")
    if found := reading(" ".join(strings)):
        yield found


def editor(call: ShellCall) -> Effects:
    """vim and its kin: commands come with -c, +, --cmd, -S, or through stdin for ex and ed."""
    commands = []
    for at, word in enumerate(call.args):
        if word in ("-c", "--cmd", "-e") and at + 1 < len(call.args):
            commands.append(call.args[at + 1])
        elif word.startswith("+") and len(word) > 1:
            commands.append(word[1:])
        elif word in ("-S", "-s", "-u"):
            yield Found("medium", "the editor runs a script")
    if call.name in ("ed", "ex", "red") and call.stdin is not None:
        commands += call.stdin.split("\n")
    if call.name not in ("less", "more", "man", "most"):
        yield Found("medium", "edits files")
    for text in commands:
        yield from _editor_command(text)


def _editor_command(text: str) -> Effects:
    for match in re.finditer(
        r"(?:^|[|:\d%,$.\s])(?:silent!?\s+)?(?:!|r\s*!|w\s*!|read\s*!|terminal|term|ter|sh(?:ell)?\b)\s*([^|\n]*)", text
    ):
        yield Found("high", "the editor runs a command")
        yield Script(match[1])
    if re.search(
        r"system\s*\(|py3?(thon3?)?\b|perl\b|lua\b|ruby\b|job_start|execute\b|exe\b|luafile|source\b|so\b", text
    ):
        yield Found("high", "the editor runs code")
        yield Code("vim", text)


def emacs(call: ShellCall) -> Effects:
    yield Found("medium", "edits files or runs code")
    for text in read(call.args, "eval f l funcall load script execute").all("eval", "execute"):
        yield Code("emacs", text)


def man(call: ShellCall) -> Effects:
    for text in read(call.args, "P H pager html C").all("P", "pager", "H", "html"):
        if text not in ("cat", "less", "more"):
            yield Found("high", "man runs a command")
        yield Script(text)


RULES: dict[str, Rule] = {
    **dict.fromkeys((*_LANGUAGES, *_ALIASES, "python3", "python2", "ruby3", "php8", "lua5.4"), interpreter),
    **dict.fromkeys(
        names("vim vi nvim view ex ed red rvim gvim vimdiff nano pico less more most"),
        editor,
    ),
    **dict.fromkeys(("emacs", "emacsclient"), emacs),
    "man": man,
}
