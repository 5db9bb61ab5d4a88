"""The severity of deleting, writing or reading at a path, by its name alone: relative to the project ("."), absolute,
or below the home ("~"). Idioms of destruction, found without any grammar; and variables that make programs obey."""

import posixpath
import re

from treadle.adapters.policy.shell.model import RANK, UNKNOWN, Rating, Severity, mask_unknown
from treadle.chat.carried_variables import can_start_programs

HOME = "/home/~"
_SYSTEM = (
    r"/(?:bin|boot|dev|etc|lib|lib32|lib64|libx32|opt|proc|root|run|sbin|srv|sys|usr|var|System|Library|Applications"
    r"|private|nix|snap)(?:/|$)"
)
_TEMPORARY = r"/(?:tmp|var/tmp|private/tmp|dev/shm|run/user)"
_DISK = r"/dev/(?:[shvx]v?d[a-z*?\[]|nvme|mmcblk|r?disk|mapper|md|dm-|loop|z?ram|k?mem|port|sr|nbd|vg|block|mtd|[*?[])"
_VITAL = (
    r"/etc/(?:passwd|shadow|group|gshadow|sudoers|fstab|crypttab|ld\.so\.preload|pam)|/boot(?:/|$)|/proc/sysrq-trigger"
    r"|/proc/sys/kernel/core_pattern|/proc/[^/]+/mem|/(?:bin|sbin|usr/bin|usr/sbin|lib|usr/lib|etc)(?:/[*\ue001].*)?$|/$"
)
_PERSONAL = (
    r"/home/~/(?:\.ssh|\.gnupg|\.config|\.local|\.aws|\.kube|\.mozilla|\.thunderbird|\.password-store|Documents|Desktop"
    r"|Downloads|Pictures|Music|Videos|Movies|Library)$"
)
_WRITING: tuple[tuple[str, Severity, str], ...] = (
    (r"/dev/(?:null|zero|full|random|urandom|tty|stdin|stdout|stderr|ptmx|fd(?:/.*)?|pts/.*)$", "none", ""),
    (r"/dev/(?:tcp|udp)/", "high", "opens a network connection through {}"),
    (_DISK, "critical", "writes to the device {}"),
    (_VITAL, "critical", "writes to {}, which the system cannot do without"),
    (_TEMPORARY, "medium", "writes to {}, outside the project"),
    (rf"{_SYSTEM}|/home/[^/]+/\.", "high", "writes to {}, a part of the system or a setting"),
    (r"(?:.*/)?\.git(?:/|$)", "high", "writes to {}, which git obeys"),
    (r"/|\.\.", "medium", "writes to {}, which may lie outside the project"),
    (UNKNOWN, "medium", "writes to a place that the command does not name itself"),
)
_GLOB = r"[*?\[\ue001]"
_DELETING: tuple[tuple[str, Severity, Severity, str], ...] = (
    (_TEMPORARY + r"/(?![*?\ue001])", "medium", "medium", "deletes {}"),
    (_TEMPORARY + r"(?:/|$)", "high", "high", "deletes all temporary files in {}"),
    (rf"/(?:{_GLOB}.*)?$", "critical", "critical", "deletes everything"),
    (rf"/home(?:/[^/]*)?$|/home/~/{_GLOB}+$|{_PERSONAL}", "critical", "critical", "deletes {}: personal files"),
    (r"/home/~/", "high", "high", "deletes {} in the home directory"),
    (f"{_VITAL}|{_DISK}", "critical", "critical", "deletes {}, which the system cannot do without"),
    (_SYSTEM, "critical", "high", "deletes {}, a part of the system"),
    (rf"/[^/]+(?:/[^/]+)?$|/.*/{_GLOB}+$", "critical", "medium", "deletes {} and all below it, by an absolute path"),
    (r"/", "high", "medium", "deletes {}, by an absolute path"),
    (r"\.\.(?:/|$)", "critical", "high", "deletes {}, outside the directory it starts in"),
    (r"\.$|[.*?\[\]!^]*\*[.*?\[\]!^]*$|\.?\?+$", "critical", "high", "deletes all in the directory it starts in"),
    (r"(?:.*/)?\.git(?:/|$)", "high", "high", "deletes {}: history that may exist nowhere else"),
    (UNKNOWN, "high", "medium", "deletes what the command does not name itself"),
    (r"", "medium", "medium", "deletes {}"),
)  # severity of the whole tree and of a file alone. The first pattern that fits holds.
_SECRET = re.compile(
    r"(?:^|[/\s'\"=@:(<,])(?:"
    r"\.ssh(?:/(?!known_hosts|config\b|[\w.-]*\.pub\b)|\s*$|/?['\"])|id_(?:rsa|dsa|ecdsa|ed25519)\b(?!\.pub)"
    r"|\.gnupg\b|\.aws\b|\.kube\b|\.netrc\b|\.git-credentials\b|\.docker/config\.json|\.pgpass\b|\.my\.cnf\b"
    r"|\.npmrc\b|\.pypirc\b|\.config/(?:gh|gcloud|op|hub)\b|\.vault-token\b|\.password-store\b|\.azure\b"
    r"|\.(?:bash|zsh|python|psql|mysql|node_repl)_history\b|\.mozilla\b|Login Data\b|Cookies\b"
    r"|etc/(?:g?shadow|sudoers|ssl/private|ssh/ssh_host_\w+_key\b(?!\.pub))|proc/[^/\s]+/environ\b"
    r"|\.env(?:\.(?!example|sample|template|dist|defaults)[\w-]+)?(?=$|[\s'\")|;&,<>])|credentials\.json\b"
    r"|service[-_]account[\w-]*\.json\b|[\w.-]+\.(?:pem|p12|pfx|keystore|jks|kdbx)\b"
    r"|(?:[\w-]+\.)?(?:private|secret|server|tls|ssl|host)[\w-]*\.key\b)"
)


def resolve(word: str, cwd: str = ".") -> str:
    """A path without `.` and `..`, as far as its names alone say; "~" is HOME."""
    word = word.removeprefix("file://")
    if word[:1] not in ("/", "~"):
        word = f"{cwd}/{word}"
    if word[:1] == "~" or word.startswith("/~"):
        word = HOME + word.lstrip("/")[1:]
    path = posixpath.normpath(word)
    path = "/" + path.lstrip("/") if path.startswith("/") else path
    return re.sub(r"^/proc/[^/]+/root(?=/|$)", "", path) or "/"


def _resolve_readings(word: str, cwd: str) -> list[str]:
    empty = word.replace(UNKNOWN, "")
    return [resolve(each, cwd) for each in ((word, empty) if empty and empty != word else (word,))]


def _rate_path(path: str, severity: Severity, reason: str) -> Rating:
    network = path.startswith(("/dev/tcp/", "/dev/udp/"))
    return Rating(severity, reason.format(mask_unknown(path.replace(HOME, "~"))), network)


def rate_delete(word: str, cwd: str = ".", *, recursive: bool) -> Rating:
    ratings = []
    for path in _resolve_readings(word, cwd):
        recursive_severity, alone, reason = next(row[1:] for row in _DELETING if re.match(row[0], path))
        ratings.append(_rate_path(path, recursive_severity if recursive else alone, reason))
    return max(ratings, key=lambda each: RANK[each.severity])


def rate_write(word: str, cwd: str = ".") -> Rating | None:
    """None inside the project: that is what commands are for, and it can be undone."""
    ratings = []
    for path in _resolve_readings(word, cwd):
        row = next((row for row in _WRITING if re.match(row[0], path)), None)
        if row is not None and row[1] != "none":
            ratings.append(_rate_path(path, row[1], row[2]))
    return max(ratings, key=lambda each: RANK[each.severity], default=None)


def rate_read(word: str, cwd: str = ".") -> Rating | None:
    """Rate the reading of a word that names a secret, as a path or inside a longer text. None if it names none."""
    if _SECRET.search(word):
        return Rating("high", f"reads a secret: {mask_unknown(word)[:80]}")
    if word.startswith(("/dev/tcp/", "/dev/udp/")):
        return rate_write(word, cwd)
    if word.startswith("/dev") and re.match(_DISK, resolve(word, cwd)):
        return Rating("high", f"reads the device {mask_unknown(word)[:80]} past all permissions")
    return None


_QUOTES = re.compile(r"[\\'\"]|\$(?=['\"])")
_SEPARATORS = re.compile(rf"\$\{{?IFS\}}?|[,\t\n\[\]{UNKNOWN}]|\$@|\$\w*\*")
_RUIN = (
    (
        r"\brm\b(?=[^;|&]{0,200}(?:\s-\w*[rR]|--recursive))(?:\s+[^\s;|&]+){0,6}\s+"
        r"(?:/|~|\$\{?HOME\}?|\.\.)(?:[/*.\s;&|)}`]|$)",
        "looks as if it deletes everything",
    ),
    (r"\bmkfs(?:\.\w+)?\s", "looks as if it makes a file system"),
    (r"(?:\bof=|>\s*)/dev/(?:[shv]d|nvme|mmcblk|disk|mapper)", "looks as if it writes to a disk"),
    (r"\b(?:shred|wipefs|blkdiscard)\b.{0,200}\s/dev/", "looks as if it erases a disk"),
    (r"([^\s(){}|&;]{1,40})\s*\(\)\s*\{.{0,200}?\1\s*\|\s*\1", "looks like a fork bomb"),
    (r"\bfork\s*(?:\(\))?\s*(?:while|until)\b|(?:\bwhile\b|\bloop\b).{0,40}\bfork\b", "looks like a fork bomb"),
    (r">\s*/etc/(?:passwd|shadow|sudoers)", "looks as if it overwrites the accounts"),
    (r"\bfind\s+(?:/|~|\$HOME)\s.{0,200}-delete", "looks as if it deletes everything"),
    (
        r"\b(?:rmtree|rm_rf|rmSync|removeSync|rimraf)\b[\s(]{0,3}(?:/|~)(?:[\s);]|$)",
        "looks as if it deletes everything",
    ),
    (r"\bRemove-Item\b.{0,80}-Recurse.{0,80}\s[/~](?:\s|$)", "looks as if it deletes everything"),
)
_MOST = 50_000
_LOADED = re.compile(r"PERL5LIB|RUBYLIB|CLASSPATH|NODE_PATH")  # where languages find code by its name
_HARMLESS = ("", "cat", "less", "more", "true", ":", "false", "vim", "nano", "less -R", "vi")
_OBEYED = re.compile(
    r"GIT_\w+|LESS\w*|MAN\w+|TERMINFO\w*|BAT_\w+|S?RANDOM|SECONDS|LINENO|OPTIND|NODE_OPTIONS|PYTHONPATH|PYTHONINSPECT|CC|CXX|LD|AR|SHELL|(?i:https?_proxy|all_proxy)|\w*_(?:INDEX_URL|REGISTRY)"
    r"|npm_config_\w+|PIP_\w+|HOME|DOCKER_HOST|KUBECONFIG|\w+_BASE_URL"
)
_TOOL_PLACES = re.compile(r"/(?:usr|opt|snap|nix)/|/s?bin|~/\.(?:cargo|local|nvm|pyenv|rbenv|npm|deno|bun|rustup)|~/go")


def ruin(text: str) -> list[Rating]:
    """Return the destructive idioms in a text that may be run. A mention counts as the act."""
    plain = _SEPARATORS.sub(" ", _QUOTES.sub("", text[:_MOST]))
    return [Rating("critical", reason) for pattern, reason in _RUIN if re.search(pattern, plain, re.DOTALL)]


def rate_setting(name: str, value: str) -> list[Rating]:
    if name == "PATH":
        places = [place for place in value.split(":") if place != UNKNOWN]
        has_known_places = all(_TOOL_PLACES.match(place) for place in places)
        reason = f"changes where programs are found: {mask_unknown(value)[:80]}"
        return [Rating("medium" if has_known_places else "high", reason)]
    if can_start_programs(name, value) or _LOADED.fullmatch(name):
        harmless = value.strip() in _HARMLESS
        return (
            []
            if harmless
            else [Rating("high", f"sets {name}, by which programs run code", hides_commands=True), *ruin(value)]
        )
    return [Rating("medium", f"sets {name}, which other programs obey")] if _OBEYED.fullmatch(name) else []
