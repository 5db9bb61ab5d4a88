"""Programs that only look. Most do so whatever they are told; of the others the options are listed with which they
neither write nor run anything. Any other option, and any word that may turn out to be one, makes them more than a look.
"""

import re
from functools import lru_cache

import msgspec

from treadle.policy.shell.arguments import Options, read
from treadle.policy.shell.model import UNKNOWN, ShellCall, names
from treadle.policy.shell.ratings import is_rated
from treadle.policy.shell.settings import setting

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

_WRITERS = ("tee", "sponge", "touch")

_TABLE = """
  base64 base32 : d D =w i decode =wrap
  bat batcat : n p =l =r A plain number =style =paging =color =language
  date : u I R =d =r utc iso-8601 rfc-3339 =date =reference
  declare typeset local readonly : x r p a A g u l
  dmesg <0 : T k w x ctime follow
  export : p
  fd fdfind : =e =t H I =d a g i s F p 0 l L u =E hidden no-ignore type extension exclude max-depth glob
  file : b i L h k s mime mime-type brief dereference
  history <0 :
  getopts :
  hostname <0 : f i I s d A
  iconv : =f =t c s l =from-code =to-code list
  jobs : l p r s n
  journalctl : =u =n f b k =p r x e =o =since =until no-pager
  less more : N R S F X i n E e M
  man : k f
  mapfile readarray : t =d =n =O =s =u
  read : r s =p =t =n =N =d =u e =i =a
  rg : n i l L c o w v F S s U =e =g =t =T =A =B =C =m =M H h u I =j x 0 p files hidden no-ignore =glob =iglob =type
  rg : =type-not count json heading no-heading =context =after-context =before-context line-number files-with-matches
  rg : ignore-case word-regexp fixed-strings =max-count =max-depth =color column only-matching multiline stats =sort
  set : e u x o f v n a b h m p E T C
  shopt : s u q p o
  shuf : e =i =n r z
  sort : b d f g h i n r s u c C z V M R =k =t =S numeric-sort reverse unique =key =field-separator ignore-case check
  sysctl : n a e
  tree : a d f =L =I =P s h D C n p u g i l r t J X noreport dirsfirst prune gitignore
  uniq <1 : c d u i =f =s =w z D count repeated unique ignore-case
  unset : v
  wait : n f
  xxd <1 : =l =s p =c =g u b i
  apt apt-cache : @list @show @search @policy a
  cargo : @version @tree @metadata depth
  docker podman : @ps @images @logs @inspect @version @info @top @stats @port @diff @history a q f n tail follow all
  gh kubectl helm : @status @version @list @get @describe @logs @explain =n =o A all-namespaces =namespace f
  go : @version @env @list m json
  npm : @ls @list @view @outdated g depth json all
  pip pip3 : @list @show @freeze @check outdated format
  systemctl : @status @is-active @is-enabled @list-units @show @cat no-pager all
  terraform : @version @validate @show @output @graph json
"""
"""Programs, how many words they may have at most, and their harmless options; `=` takes a value, `@` is a verb."""

_NAMING = names("declare typeset local readonly export unset read mapfile readarray getopts")
"""Their words are names of variables; in anything else the shell may evaluate a subscript."""
_FIND = names(
    """
    name iname path ipath regex iregex type maxdepth mindepth newer newermt mtime ctime atime mmin cmin amin size print
    print0 printf ls empty perm user group not o or a and prune depth L H P follow xdev mount regextype executable
    readable writable samefile links inum wholename iwholename quit true false nouser nogroup daystart
    """
)
_SED = re.compile(
    r"(?:(?:\d+|\$|/(?:\\.|[^/\\\n])*/I?)(?:,(?:[~+]?\d+|\$|/(?:\\.|[^/\\\n])*/I?))?\s*!?\s*)?"
    r"(?:[pdqQ=DGhHgxnNPlFz]|s([^\w\s\\])(?:\\.|(?!\1)[^\\\n])*\1(?:\\.|(?!\1)[^\\\n])*\1[gpiImM\d]*|[{}])[\s;]*"
)
_AWK = re.compile(r"system|getline|(?<!\|)\|(?!\|)|@|ENVIRON|fflush|close|print.*>|/inet/|include|load", re.S)
_NUMBER = re.compile(r"[-+]?[\d.,:]+[kMGcwb]?")
_VERSIONS = (("-V",), ("-v",), ("-version",), ("version",))


class Harmless(msgspec.Struct, frozen=True):
    options: frozenset[str]
    valued: str
    verbs: tuple[str, ...]
    most: int


@lru_cache(maxsize=1)
def _table() -> dict[str, Harmless]:
    found: dict[str, Harmless] = {}
    for line in _TABLE.strip().splitlines():
        listed, _, options = line.partition(":")
        most = next((int(word[1:]) for word in listed.split() if word[0] == "<"), 99)
        words = options.split()
        safe = frozenset(word.lstrip("=") for word in words)
        valued = " ".join(word[1:] for word in words if word[0] == "=")
        verbs = tuple(word[1:] for word in words if word[0] == "@")
        for name in listed.split():
            more = found.get(name, Harmless(frozenset(), "", (), most))
            found[name] = Harmless(safe | more.options, f"{valued} {more.valued}", verbs, most)
    return found


def only_looks(call: ShellCall) -> bool:
    name, args = call.name, call.args
    if name in _ALWAYS:
        return name not in _WRITERS or not re.search(rf"[*?\[{UNKNOWN}]", "".join(args))
    if args in (("--version",), ("--help",)):
        return is_rated(name)
    if (harmless := _table().get(name)) is not None:
        return args in _VERSIONS or _within(call, harmless)
    match name:
        case "printf":
            return bool(args) and not args[0].startswith(("-", UNKNOWN))
        case "test" | "[" | "[[":
            return not any(word in ("-v", "-R") for word in args)
        case "find":
            return _literal(args) and _find(args)
        case "sed" | "gsed":
            return _literal(args) and _sed(args)
        case "awk" | "gawk" | "mawk" | "nawk":
            return _awk(read(args, "F v field-separator", until_word=True))
        case "command":
            return args[:1] in (("-v",), ("-V",))
        case "crontab" | "kill":
            return args[:1] in (("-l",), ("-L",))
        case "python" | "python3" | "node" | "ruby" | "perl" | "java" | "gcc" | "make":
            json = name.startswith("python") and args[:2] == ("-m", "json.tool") and len(args) < 4 and _literal(args)
            return args in _VERSIONS or json
    return False


def _within(call: ShellCall, harmless: Harmless) -> bool:
    options = read(call.args, harmless.valued)
    rest = options.rest
    if harmless.verbs and (rest[:1] == () or rest[0] not in harmless.verbs):
        return False
    flags = all(flag in harmless.options or _NUMBER.fullmatch(flag) for flag in options.flags)
    if not flags or not _literal(call.args) or len(rest) > harmless.most:
        return False
    if call.name in _NAMING:
        variables = rest[call.name == "getopts" :]
        named = all(re.fullmatch(r"[A-Za-z_]\w*", word) and not setting(word, UNKNOWN) for word in variables)
        return named and (bool(rest) or call.name not in ("declare", "typeset", "export"))  # shows the environment
    match call.name:
        case "date":
            return all(word.startswith("+") for word in rest)
        case "less" | "more" | "man":
            return not any(word.startswith("+") for word in rest)
        case "sysctl":
            return not any("=" in word for word in rest)
        case "set":
            return bool(call.args)  # else it shows the environment
    return True


def _literal(args: tuple[str, ...]) -> bool:
    """No word before `--` may turn out to be an option."""
    return not any(UNKNOWN in word for word in (args[: args.index("--")] if "--" in args else args))


def _find(args: tuple[str, ...]) -> bool:
    """What it executes is judged by itself."""
    executed = False
    for word in args:
        if word.startswith("-") and len(word) > 1 and not executed and not _NUMBER.fullmatch(word):
            executed = word in ("-exec", "-execdir", "-ok", "-okdir")
            if not executed and word[1:] not in _FIND:
                return False
        executed = executed and word not in (";", "+")
    return True


def _sed(args: tuple[str, ...]) -> bool:
    options = read(args, "e expression")
    if not set(options.flags) <= names("n E r s u z e expression quiet"):
        return False
    scripts = options.all("e", "expression") or list(options.rest[:1])
    return bool(scripts) and all(_sed_script(text.lstrip(" ;\n")) for text in scripts)


def _sed_script(text: str) -> bool:
    at = 0
    while at < len(text):
        match = _SED.match(text, at)
        if match is None:
            return False
        at = match.end()
    return True


def _awk(options: Options) -> bool:
    safe = set(options.flags) <= {"F", "v", "field-separator"} and bool(options.rest)
    return safe and UNKNOWN not in options.rest[0] and not _AWK.search(options.rest[0])
