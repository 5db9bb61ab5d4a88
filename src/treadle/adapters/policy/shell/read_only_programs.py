"""Read-only programs. Most are read-only with any arguments; for a few others, the options are listed with which they
neither write nor run anything. All other uses count as more than reading: on a view that only costs a rehearsal.
"""

import re
from functools import lru_cache

from treadle.adapters.policy.shell.arguments import read
from treadle.adapters.policy.shell.idioms import setting
from treadle.adapters.policy.shell.model import UNKNOWN, ShellCall, names
from treadle.adapters.policy.shell.ratings import is_rated

_ALWAYS = names(
    """
    ls dir vdir cat echo pwd head tail wc cut tr grep egrep fgrep zcat diff cmp comm stat du df whoami id uname which
    type whereis basename dirname realpath readlink true false : sleep seq expr nl od hexdump md5sum sha1sum sha224sum
    sha256sum sha384sum sha512sum b2sum cksum sum fold fmt paste join tac rev ps free uptime nproc arch groups tty
    locale jq cal factor getconf lscpu lsblk lsusb lspci vmstat users w who last clear stty expand unexpand tsort numfmt
    yes whatis help cd pushd popd dirs exit return break continue fg bg disown umask ulimit shift times logout suspend
    caller exa eza lsd pgrep pidof pstree getent logname hostid strings readelf column look mktemp shellcheck
    tee sponge touch mkdir
    """
)
"""The last four write only files that they name, like a redirection: the caller judges the places."""
FILE_WRITERS = names("tee sponge touch mkdir mktemp")
"""Those of them that write files: to look is not all that they do."""
_WRITERS = ("tee", "sponge", "touch")
_TABLE = """
  date : u I R =d utc =date
  declare typeset local readonly : x r p a A g
  export : p
  fd fdfind : =e =t H I =d g i p hidden type extension
  file : b i L k mime mime-type brief
  read : r s =p =t =n =N =d =u e =a
  rg : n i l L c o w v F S s U =e =g =t =T =A =B =C =m H h u I files hidden no-ignore =glob =type count json =context
  set : e u x o f v n E
  sort : b d f g h i n r s u c C z V M R =k =t numeric-sort reverse unique =key
  tree : a d f =L =I
  uniq : c d u i =f =s =w
  unset : v
"""
"""Programs with their harmless options; `=` takes a value."""
_NAMING = names("declare typeset local readonly export unset read")
"""Their words are names of variables; in anything else the shell may evaluate a subscript."""
_FIND = names(
    """
    name iname path ipath regex iregex type maxdepth mindepth newer mtime mmin size print print0 ls empty perm user not
    o or a and prune depth L H P follow xdev executable quit
    """
)
_SED = re.compile(r"(?:[\d,$!]*[pdqGh=][;\s]*)+|(?:/[^/\\]*/,?)+[pd]|s/[^/\\]*/[^/\\]*/[gIp\d]*")
_NUMBER = re.compile(r"[-+]?[\d.,:]+[kMGcwb]?")


@lru_cache(maxsize=1)
def _table() -> dict[str, tuple[frozenset[str], str]]:
    """By program: its options, and those of them with a value."""
    table: dict[str, tuple[frozenset[str], str]] = {}
    for line in _TABLE.strip().splitlines():
        listed, _, options = line.partition(":")
        words = options.split()
        valued = " ".join(word[1:] for word in words if word[0] == "=")
        table |= dict.fromkeys(listed.split(), (frozenset(word.lstrip("=") for word in words), valued))
    return table


def only_looks(call: ShellCall) -> bool:
    name, args = call.name, call.args
    if name in _ALWAYS:
        return name not in _WRITERS or not re.search(rf"[*?\[{UNKNOWN}]", "".join(args))
    if args in (("--version",), ("--help",), ("-V",)):
        return is_rated(name)
    if name in _table():
        return literal(args) and _within(call)
    match name:
        case "printf":
            return bool(args) and not args[0].startswith(("-", UNKNOWN))
        case "test" | "[" | "[[":
            return not any(word in ("-v", "-R") for word in args)
        case "find":
            tests = [word[1:] for word in args if word.startswith("-") and not _NUMBER.fullmatch(word)]
            return literal(args) and set(tests) <= _FIND
        case "sed" | "gsed":
            words = args[1:] if args[:1] == ("-n",) else args
            plain = literal(args) and not any(word.startswith("-") for word in words)
            return plain and _SED.fullmatch("".join(words[:1])) is not None
        case "command":
            return args[:1] in (("-v",), ("-V",))
    return False


def literal(args: tuple[str, ...]) -> bool:
    """No word before `--` may turn out to be an option."""
    return not any(UNKNOWN in word for word in (args[: args.index("--")] if "--" in args else args))


def _within(call: ShellCall) -> bool:
    safe, valued = _table()[call.name]
    options = read(call.args, valued)
    operands = options.operands
    if not all(flag in safe or _NUMBER.fullmatch(flag) for flag in options.flags):
        return False
    if call.name in _NAMING:
        has_valid_names = all(re.fullmatch(r"[A-Za-z_]\w*", word) and not setting(word, UNKNOWN) for word in operands)
        return has_valid_names and (bool(operands) or call.name in ("read", "unset"))  # else it shows the environment
    match call.name:
        case "date":
            return all(word.startswith("+") for word in operands)
        case "set":
            return bool(call.args)  # else it shows the environment
        case "uniq":
            return len(operands) < 2
    return True
