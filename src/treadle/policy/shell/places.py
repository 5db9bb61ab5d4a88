"""What it means to delete, write or read at a place, judged from its name alone: no file is looked at.

Paths are relative to the project ("."), absolute, or below the home ("~"); the project's own place is not known here.
"""

import fnmatch
import posixpath
import re
from collections.abc import Collection

from treadle.file_system import is_below
from treadle.policy.shell.model import UNKNOWN, Found, names, shown

HOME = "/home/~"
_GLOB = re.compile(r"[*?\[]")
_EVERYTHING = re.compile(r"[.*?\[\]!^]*\*[.*?\[\]!^]*|\.?\?+")
_SYSTEM = names(
    """
    /bin /boot /dev /etc /lib /lib32 /lib64 /libx32 /opt /proc /root /run /sbin /srv /sys /usr /var /System
    /Library /Applications /private /nix /snap
    """
)
_TEMPORARY = ("/tmp", "/var/tmp", "/private/tmp", "/dev/shm", "/run/user")
_REGENERABLE = names(
    """
    build dist out target node_modules __pycache__ .pytest_cache .mypy_cache .ruff_cache .tox .nox .venv venv
    coverage htmlcov .coverage .next .nuxt .cache .parcel-cache .turbo .gradle bin obj tmp temp .eggs
    .ipynb_checkpoints cmake-build-debug cmake-build-release _build site .hypothesis .import_linter_cache
    """
)
_PERSONAL = names(
    """
    .ssh .gnupg .config .local .aws .kube .mozilla .thunderbird .password-store Documents Desktop Downloads
    Pictures Music Videos Movies Library
    """
)
_HARMLESS_DEVICES = re.compile(r"/dev/(null|zero|full|random|urandom|tty|stdin|stdout|stderr|ptmx|fd(/.*)?|pts/.*)")
_DISKS = re.compile(
    r"/dev/([shvx]v?d[a-z*?\[]|nvme|mmcblk|r?disk|mapper|md|dm-|loop|ram|zram|k?mem|port|sr|nbd|zd|vg|block|mtd|\*|\?|\[)"
)
_VITAL = re.compile(
    r"/etc/(passwd|shadow|group|gshadow|sudoers|fstab|crypttab|ld\.so\.preload|pam)|/boot(/|$)|/proc/sysrq-trigger"
    r"|/proc/sys/kernel/core_pattern|/proc/[^/]+/mem|/(bin|sbin|usr/bin|usr/sbin|lib|usr/lib)(/[*\ue001].*)?$|/etc(/[*\ue001])?$"
)
_START_FILES = re.compile(
    r"/home/[^/]+/\.(ssh|gnupg|bash|zsh|profile|login|cshrc|tcshrc|kshrc|xinitrc|xprofile|xsession|inputrc|vim|gitconfig"
    r"|npmrc|pypirc|netrc|config/(fish|systemd|autostart|git|environment\.d)|local/bin|cargo/config|pam_environment"
    r"|Library/Launch)"
)
_REPOSITORY = re.compile(r"(^|/)\.git(/|$)")
_EXECUTED = re.compile(
    r"(^|/)(\.husky|\.github/workflows|\.vscode|\.idea|\.circleci)/|(^|/)(\.envrc|\.gitlab-ci\.yml)$"
)
_SECRET = re.compile(
    r"(?:^|[/\s'\"=@:(<,])(?:"
    r"\.ssh(?:/(?!known_hosts|config\b|[\w.-]*\.pub\b)|\s*$|/?['\"])|id_(?:rsa|dsa|ecdsa|ed25519)\b(?!\.pub)"
    r"|\.gnupg\b|\.aws\b|\.kube\b|\.netrc\b|\.git-credentials\b|\.docker/config\.json|\.pgpass\b|\.my\.cnf\b"
    r"|\.npmrc\b|\.pypirc\b|\.config/(?:gh|gcloud|op|hub)\b|\.vault-token\b|\.password-store\b|\.azure\b"
    r"|\.(?:bash|zsh|python|psql|mysql|node_repl)_history\b|\.mozilla\b|Login Data\b|Cookies\b"
    r"|\.terraform\.d/credentials|etc/(?:g?shadow|sudoers|ssl/private|ssh/ssh_host_\w+_key\b(?!\.pub))|proc/[^/\s]+/environ\b|\.env(?:\.(?!example|sample|template|dist|defaults)[\w-]+)?"
    r"(?=$|[\s'\")|;&,<>])|credentials\.json\b|service[-_]account[\w-]*\.json\b|[\w.-]+\.(?:pem|p12|pfx|keystore|jks|kdbx)\b"
    r"|(?:[\w-]+\.)?(?:private|secret|server|tls|ssl|host)[\w-]*\.key\b)"
)
_KNOWN_SECRETS = (
    *(f"{HOME}/{name}" for name in (".ssh/id_rsa", ".ssh/id_ed25519", ".aws/credentials", ".netrc", ".gnupg/x")),
    "/root/.ssh/id_rsa",
    "/home/user/.ssh/id_rsa",
    "/etc/shadow",
    "/proc/self/environ",
    ".env",
)


def resolve(word: str, cwd: str = ".") -> str:
    """A path without `.` and `..`, as far as its names alone say; "~" is HOME."""
    if word.startswith("file://"):
        word = word[7:]
    if word[:1] not in ("/", "~"):
        word = f"{cwd}/{word}"
    if word[:1] == "~" or word.startswith("/~"):
        word = HOME + word.lstrip("/")[1:]
    path = posixpath.normpath(word)
    path = "/" + path.lstrip("/") if path.startswith("/") else path
    return re.sub(r"^/proc/[^/]+/root(?=/|$)", "", path) or "/"


def readings(word: str) -> list[str]:
    """What an unknown piece may turn out to be: nothing at all, or some name."""
    if UNKNOWN not in word:
        return [word]
    empty = word.replace(UNKNOWN, "")
    return [word, empty] if empty else [word]


def deleting(word: str, cwd: str = ".", *, recursive: bool) -> Found:
    found = [_deleting(resolve(each, cwd), recursive) for each in readings(word)]
    return max(found, key=lambda each: ("none", "medium", "high", "critical").index(each.severity))


def _deleting(path: str, recursive: bool) -> Found:
    parent, everything = _under(path)
    place = shown(path.replace(HOME, "~"))
    if (everything and parent.startswith("/")) or path == "/":
        what = f"deletes everything below {shown(parent.replace(HOME, '~'))}" if everything else "deletes everything"
        if not _within(parent, _TEMPORARY):
            return Found("critical" if recursive or parent.count("/") < 2 else "high", what)
        return Found("high", what)
    if path.startswith("/"):
        return _deleting_absolute(path, place, recursive)
    if path == ".." or path.startswith("../"):
        return Found("critical" if recursive else "high", f"deletes {place}, outside the directory it starts in")
    return _deleting_relative(path, place, recursive)


def _deleting_absolute(path: str, place: str, recursive: bool) -> Found:
    if _within(path, _TEMPORARY):
        if path in _TEMPORARY:
            return Found("high", f"deletes all temporary files in {place}")
        return Found("medium", f"deletes {place}")
    if path == HOME or (
        recursive and path.startswith(HOME) and path.split("/")[3] in _PERSONAL and path.count("/") == 3
    ):
        return Found("critical", f"deletes {place}, a person's own files")
    if path.startswith(f"{HOME}/"):
        serious = recursive or bool(_START_FILES.match(path))
        return Found("high" if serious else "medium", f"deletes {place} in the home directory")
    if _within(path, _SYSTEM):
        vital = recursive or bool(_VITAL.match(path)) or bool(_DISKS.match(path))
        return Found("critical" if vital else "high", f"deletes {place}, a part of the system")
    if recursive:
        wide = path.count("/") <= 2
        return Found("critical" if wide else "high", f"deletes {place} and all below it, by an absolute path")
    return Found("medium", f"deletes {place}")


def _deleting_relative(path: str, place: str, recursive: bool) -> Found:
    parent, everything = _under(path)
    if path.startswith(UNKNOWN):
        return Found("high" if recursive else "medium", "deletes what the command does not name itself")
    if path == "." or (everything and parent == "."):
        what = "deletes everything in the directory it starts in"
        return Found("critical" if recursive else "high", what)
    if _REPOSITORY.search(path):
        return Found("high", f"deletes {place}: history that may exist nowhere else")
    names = path.split("/")
    if not recursive:
        return Found("medium", f"deletes {place}")
    if any(name in _REGENERABLE or name.endswith((".egg-info", ".pyc")) for name in names):
        return Found("medium", f"deletes {place} and all below it; by its name it can be made again")
    return Found("high", f"deletes {place} and all below it, which may exist nowhere else")


def _under(path: str) -> tuple[str, bool]:
    """The directory all of whose content a pattern names, and whether it does."""
    names = path.split("/")
    for at, name in enumerate(names):
        whole = bool(_EVERYTHING.fullmatch(name)) or (name == UNKNOWN and at > 0)
        top = at == 1 and names[0] == "" and bool(_GLOB.search(name))
        if whole or top:
            return "/".join(names[:at]) or ("/" if names[0] == "" else "."), True
        if _GLOB.search(name):
            break
    return path, False


def _within(path: str, places: Collection[str]) -> bool:
    return any(is_below(path, place) for place in places)


def writing(word: str, cwd: str = ".") -> Found | None:
    """None inside the project: that is what commands are for, and it can be undone."""
    found = [each for reading in readings(word) if (each := _writing(resolve(reading, cwd)))]
    order = ("none", "medium", "high", "critical")
    return max(found, key=lambda each: order.index(each.severity), default=None)


def _writing(path: str) -> Found | None:
    place = shown(path.replace(HOME, "~"))
    if _HARMLESS_DEVICES.fullmatch(path):
        return None
    if path.startswith(("/dev/tcp/", "/dev/udp/")):
        return Found("high", f"opens a network connection through {place}")
    if _DISKS.match(path):
        return Found("critical", f"writes to the device {place}")
    if _VITAL.match(path) or path == "/":
        return Found("critical", f"writes to {place}, which the system cannot do without")
    if _within(path, _TEMPORARY):
        return Found("medium", f"writes to {place}, outside the project")
    if _within(path, _SYSTEM):
        return Found("high", f"writes to {place}, a part of the system")
    if _START_FILES.match(path) or path.startswith(f"{HOME}/."):
        return Found("high", f"writes to {place}, which other programs obey")
    if _REPOSITORY.search(path):
        return Found("high", f"writes to {place}, which git obeys")
    if path.startswith(("/", "..")):
        return Found("medium", f"writes to {place}, which may lie outside the project")
    if _EXECUTED.search(path):
        return Found("medium", f"writes to {place}, which is executed elsewhere")
    if path.startswith(UNKNOWN):
        return Found("medium", "writes to a place that the command does not name itself")
    return None


def reading(word: str, cwd: str = ".") -> Found | None:
    """Whether a word names a secret, as a path or inside a longer text."""
    if _SECRET.search(word):
        return Found("high", f"reads a secret: {shown(word)[:80]}")
    if _GLOB.search(word) and "/" in word:
        path = resolve(word, cwd)
        if any(fnmatch.fnmatchcase(secret, path) for secret in _KNOWN_SECRETS) and not _everyday(path):
            return Found("high", f"reads secrets by a pattern: {shown(word)[:80]}")
    if _DISKS.match(resolve(word, cwd)) and word.startswith("/"):
        return Found("high", f"reads the device {shown(word)[:80]} past all permissions")
    return None


def _everyday(path: str) -> bool:
    return not path.startswith(("/", "."))
