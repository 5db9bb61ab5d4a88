"""The severity of each program: by the table of ratings, by patterns of its arguments, by the paths that it writes.
Read-only programs are none, unknown ones medium. Scripts that it may run are searched for destructive idioms."""

import re
from functools import lru_cache

import msgspec

from treadle.adapters.policy.shell import model
from treadle.adapters.policy.shell.model import (
    UNKNOWN,
    Meanings,
    Rating,
    Severity,
    ShellCall,
    parse_names,
    parse_table,
    read,
)
from treadle.adapters.policy.shell.places import rate_delete, rate_read, rate_setting, rate_write, resolve, ruin
from treadle.adapters.policy.shell.wrappers import SHELLS, can_hide_commands, unwrap_call

# A severity with its reason, and below it the programs, some only where `~` their words match. `network` is medium, and
# the words need the network. `git` matches from its verb on, `git-options` before it.
_RATED = r"""
critical makes a file system, and what was there is gone
  mkfs mke2fs mkswap mkdosfs newfs format
critical erases a disk, a volume or its partitions
  wipefs blkdiscard sgdisk cfdisk gdisk fdformat lvremove vgremove pvremove
  fdisk parted sfdisk ~ ^(?!.*(?:-l|--list|print|list|-s)\b)
  cryptsetup mdadm zpool zfs hdparm ~ (?i)luksFormat|luksErase|erase|zero-superblock|destroy|labelclear
  nvme badblocks diskutil tune2fs debugfs ~ (?i)erase|destroy|format|-w\b
critical stops the machine
  shutdown reboot halt poweroff
  systemctl loginctl ~ \b(?:poweroff|reboot|halt|kexec|rescue|emergency|suspend|hibernate)\b
  init telinit ~ ^[016sS]$
critical ends every process it can reach
  kill ~ ^(?:-\S+\s+)?(?:--\s+)?-1$
critical asks rm to delete / as well
  rm ~ --no-preserve-root
high changes who may log in
  useradd userdel usermod adduser deluser groupadd groupdel passwd chpasswd visudo vipw gpasswd chage newusers
high mounts or unmounts file systems
  mount umount losetup swapon swapoff fusermount
high changes the running kernel, the boot or the firmware
  insmod rmmod modprobe kexec grub-install update-grub efibootmgr flashrom update-initramfs init telinit
  sysctl ~ =|-w|-p|--system
high changes the firewall, the network, the clock or the name of the machine
  iptables ip6tables nft ufw firewall-cmd ipset route ifconfig tc pfctl
  ip ~ \b(?:add|del|delete|set|flush|change|replace|exec)\b
  date ~ (?:^|\s)(?:-s|--set)
  hostname ~ ^[^-]
high changes what a program or file may do, or who owns it
  setcap setfacl chattr chcon restorecon setenforce aa-complain chown chgrp
  chmod ~ (?:^|\s)[0-7]?[0-7]?[0-7][2367](?:\s|$)|(?:^|\s|,)[ugo]*[oa][ugoa]*[+=]\w*w|(?:^|\s)\+w
  chmod ~ (?:^|\s)0?[2467][0-7]{3}(?:\s|$)|[+=]\w*s
high runs something later, when nobody looks
  at batch anacron crontab
high ends processes by force or by name
  killall pkill skill
  kill ~ ^-(?:9|KILL|SIGKILL)\b|-s\s+(?:9|KILL|SIGKILL)\b
high deletes data for good
  dropdb dropuser shred wipe scrub srm
  mv ~ \s/dev/null$
  journalctl ~ --vacuum
  dmesg ~ -c|-C|--clear
  psql mysql mariadb sqlite3 ~ (?i)\b(?:drop|truncate)\s+(?:database|table|schema|user|role|owned)
  psql mysql mariadb sqlite3 ~ (?i)\bdelete\s+from\s+\w+\s*(?:;|$)|\\!|\.shell\b
  redis-cli mongo mongosh ~ (?i)\bflush(?:all|db)\b|dropDatabase
  apt apt-get ~ ^purge
high reads the screen, keys, clipboard or secrets of a person
  xdotool xinput import scrot ydotool security secret-tool pass kwallet-query gnome-keyring op vault
high starts, stops or changes services of the machine
  systemctl service launchctl rc-service initctl loginctl
high gives a name another meaning
  alias hash enable
high gives somebody on the network a program to drive
  nc ncat netcat ~ (?:^|\s)-\w*[ec]\b|--(?:sh-)?exec
  socat ~ (?i)\b(?:EXEC|SYSTEM|SHELL)[:=]
high shows it to the world or changes who may
  twine
  npm pnpm yarn bun cargo gem poetry pdm uv hatch ~ ^(?:publish|unpublish|deprecate|push|yank|owner|login|token)\b
  docker podman helm ~ ^(?:push|login)\b
high changes or destroys what others may use
  ansible ansible-playbook
  docker podman kubectl helm ~ \b(?:rm|rmi|kill|prune|delete|drain|cordon|destroy|apply|uninstall|rollback)\b
  terraform tofu pulumi heroku fly vercel ~ \b(?:rm|remove|delete|destroy|apply|up|deploy)\b
  aws gcloud az gsutil gh ~ \b(?:rm|rb|delete\S*|terminate\S*|purge|release|secret)\b
high the container gets rights over the machine
  docker podman ~ --privileged|--cap-add|--pid[= ]host|--net(?:work)?[= ]host|docker\.sock|--device|--security-opt
  docker podman ~ (?:-v|--volume|source|src)[= ]?(?:/|~|/(?:etc|root|home|var|usr|boot|dev|proc|sys)[^:,]*)[:,]
high sets what git obeys or runs
  git git-options ~ (?:-c|^config.*)\s*\b(?i:core\.|\S*(?:alias|pager|editor|include|filter|url|tool)\b)
  git ~ ^config\b.*--(?:global|system)
high overwrites or deletes on the remote
  git ~ ^push\b.*\s(?:-f|--for\S*|--de\S*|-d|--m\S*|--pru\S*|[+:]\S+)(?:\s|$)
high throws work or history away that exists nowhere else
  git ~ ^reset\b.*\s--(?:h|me|k)|^clean\b|^restore\b(?!.*\s(?:-S|--staged))
  git ~ ^(?:checkout|switch)\b.*\s(?:-f|--for\S{0,2}|--di\S*|--|\.)(?:\s|$)
  git ~ ^branch\b.*\s(?:-D|-d\s+-f|-f\s+-d)|^stash\s+(?:drop|clear)|^rm\b(?!.*--cached).*\s-\w*r
  git ~ ^reflog\s+(?:expire|delete)|^gc\b.*--pru\w*=|^prune\b|^worktree\b.*\s(?:-f|--for)
  git ~ ^(?:filter-branch|filter-repo|replace|fast-import|update-ref|symbolic-ref)\b
medium runs code, settings or packages of the project
  make gmake cmake ninja meson bazel just task rake tox nox pytest jest vitest mocha phpunit rspec ctest tsc webpack
  vite rollup esbuild eslint prettier ruff black mypy pyright pylint clang clang++ gcc g++ cc c++ rustc javac java mvn
  gradle pre-commit coverage npm pnpm yarn bun pip pip3 pipx uv poetry pdm hatch conda gem bundle cargo go composer apt
  apt-get yum dnf zypper pacman apk brew snap nix dpkg rpm deno dotnet rustup nvm pyenv npx bunx uvx pnpx gdb lldb
  python python3 node ruby perl php
medium changes, moves, deletes or unpacks files
  mv cp ln install rename ditto rsync rm rmdir unlink rimraf trash truncate dd sed gsed patch fallocate mkfifo mknod
  split csplit chmod tar gtar bsdtar unzip zip gunzip gzip xz bzip2 7z cpio unxz zstd
medium edits files, or runs commands of an editor or a terminal
  vim vi nvim view ex ed red emacs nano pico less more man tmux screen xterm
medium runs or changes things outside the project
  docker podman kubectl helm terraform tofu pulumi aws gcloud az gsutil gh heroku fly vercel docker-compose vagrant ssh
  psql mysql mariadb sqlite3 redis-cli mongo mongosh duckdb kill strace ltrace valgrind unshare proxychains torsocks
medium runs or prepares commands by words that the shell evaluates
  let compgen complete bind fc declare typeset local readonly read mapfile readarray printf test [ [[ unset getopts
  wait jobs history
medium shows the environment, which may hold secrets
  printenv export set
medium looks, but with an option or a word that may write or run something
  find fd rg sort uniq tree xxd date hostname journalctl dmesg
network reaches the network
  ssh curl wget nc ncat netcat socat scp sftp telnet ftp lftp tftp http httpie aria2c w3m lynx mosh rclone s3cmd mail
  sendmail mutt ping ping6 traceroute dig nslookup host whois nmap twine
  pip pip3 pipx ~ ^(?:install|download|wheel|search|upgrade|run)\b
  python python3 ~ ^-m\s+pip\s+(?:install|download|wheel)\b
  npm pnpm yarn bun ~ ^(?:install|i|ci|add|update|upgrade|publish|audit|view|outdated|dlx|create|init)\b
  npx bunx uvx pnpx ~ ^(?!--no-install).
  uv poetry pdm pipenv hatch ~ ^(?:sync|lock|add|install|update|publish|pip\s+(?:install|compile|sync))\b
  cargo ~ ^(?:install|fetch|update|publish|search|add)\b
  go ~ ^(?:get|install|mod\s+(?:download|tidy))\b
  apt apt-get yum dnf zypper apk brew snap ~ ^(?:-\S+\s+)*(?:install|update|upgrade|search|add|dist-upgrade)\b
  pacman ~ ^-S
  gem bundle composer conda mamba ~ ^(?:install|update|add|create|require|push)\b
  rustup nvm pyenv ~ ^(?:install|update|toolchain|self)\b
  docker podman ~ ^(?:pull|push|login|run|build|compose\s+(?:pull|up|build))\b
  kubectl helm terraform tofu pulumi aws gcloud az gsutil gh heroku fly vercel ~ ^(?!-?-?version|--help|fmt|validate).
  rsync ~ (?:^|\s)\S+:\S*|rsync://
  git ~ ^(?:clone|fetch|pull|push|ls-remote|send-email|svn)\b(?!.*\s(?:\.{0,2}/|\.(?:\s|$)|file:))
  git ~ ^submodule\s+(?:update|add)|^remote\s+(?:update|show|prune)
"""


@lru_cache(maxsize=1)
def _parse_ratings() -> dict[str, list[tuple[str, Rating]]]:
    table: dict[str, list[tuple[str, Rating]]] = {}
    rating = Rating("none", "")
    for line in _RATED.strip().splitlines():
        listed, _, pattern = line.partition(" ~ ")
        if not line.startswith(" "):
            severity, _, reason = line.partition(" ")
            network = severity == "network"
            rating = Rating(msgspec.convert("medium" if network else severity, Severity), reason, network)
            continue
        for name in listed.split():
            table.setdefault(name, []).append((pattern, rating))
    return table


def find_ratings(call: ShellCall) -> list[Rating]:
    line = call.line
    return [
        rating for pattern, rating in _parse_ratings().get(call.name, ()) if not pattern or re.search(pattern, line)
    ]


def is_rated(name: str) -> bool:
    return name in _parse_ratings()


_ALWAYS = parse_names(
    """
    ls dir vdir cat echo pwd head tail wc cut tr grep egrep fgrep zcat diff cmp comm stat du df whoami id uname which
    type whereis basename dirname realpath readlink true false : sleep seq expr nl od hexdump md5sum sha1sum sha224sum
    sha256sum sha384sum sha512sum b2sum cksum sum fold fmt paste join tac rev ps free uptime nproc arch groups tty
    locale jq cal factor getconf lscpu lsblk lsusb lspci vmstat users w who last clear stty expand unexpand tsort numfmt
    yes whatis help cd pushd popd dirs exit return break continue fg bg disown umask ulimit shift times logout suspend
    caller exa eza lsd pgrep pidof pstree getent logname hostid strings readelf column look mktemp shellcheck
    tee sponge touch mkdir
    """
)  # the last four write only files that they name, like a redirection: the caller judges the places
FILE_WRITERS = parse_names(
    "tee sponge touch mkdir mktemp"
)  # those of them that write files: to look is not all that they do
_WRITERS = ("tee", "sponge", "touch")
_HARMLESS_OPTIONS = parse_table(
    """
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
)  # by program; `=` takes a value
_NAMING = parse_names(
    "declare typeset local readonly export unset read"
)  # of variables; else a subscript may be evaluated
_FIND = parse_names(
    """
    name iname path ipath regex iregex type maxdepth mindepth newer mtime mmin size print print0 ls empty perm user not
    o or a and prune depth L H P follow xdev executable quit
    """
)
_SED = re.compile(r"(?:[\d,$!]*[pdqGh=][;\s]*)+|(?:/[^/\\]*/,?)+[pd]|s/[^/\\]*/[^/\\]*/[gIp\d]*")
_NUMBER = re.compile(r"[-+]?[\d.,:]+[kMGcwb]?")


def is_read_only_call(call: ShellCall) -> bool:
    name, args = call.name, call.args
    if name in _ALWAYS:
        return name not in _WRITERS or not re.search(rf"[*?\[{UNKNOWN}]", "".join(args))
    if args in (("--version",), ("--help",), ("-V",)):
        return is_rated(name)
    if name in _HARMLESS_OPTIONS:
        return has_known_options(args) and _has_harmless_options(call)
    match name:
        case "printf":
            return bool(args) and not args[0].startswith(("-", UNKNOWN))
        case "test" | "[" | "[[":
            return not any(word in ("-v", "-R") for word in args)
        case "find":
            tests = [word[1:] for word in args if word.startswith("-") and not _NUMBER.fullmatch(word)]
            return has_known_options(args) and set(tests) <= _FIND
        case "sed" | "gsed":
            words = args[1:] if args[:1] == ("-n",) else args
            plain = has_known_options(args) and not any(word.startswith("-") for word in words)
            return plain and _SED.fullmatch("".join(words[:1])) is not None
        case "command":
            return args[:1] in (("-v",), ("-V",))
    return False


def has_known_options(args: tuple[str, ...]) -> bool:
    """No word before `--` may turn out to be an option."""
    return not any(UNKNOWN in word for word in (args[: args.index("--")] if "--" in args else args))


def _has_harmless_options(call: ShellCall) -> bool:
    words = _HARMLESS_OPTIONS[call.name].split()
    safe = {word.lstrip("=") for word in words}
    options = read(call.args, " ".join(word[1:] for word in words if word[0] == "="))
    operands = options.operands
    if not all(flag in safe or _NUMBER.fullmatch(flag) for flag in options.flags):
        return False
    if call.name in _NAMING:
        names_of_variables = (*operands, *(options.list_values("a") if call.name == "read" else ()))
        harmless = [
            re.fullmatch(r"[A-Za-z_]\w*", name) and not rate_setting(name, UNKNOWN) for name in names_of_variables
        ]
        return all(harmless) and (bool(operands) or call.name in ("read", "unset"))  # else it shows the environment
    match call.name:
        case "date":
            return all(word.startswith("+") for word in operands)
        case "set":  # else it shows the environment, or words set variables
            return bool(call.args) and "keyword" not in call.args
        case "uniq":
            return len(operands) < 2
    return True


_INTERPRETER = re.compile(
    r"(?:python|perl|ruby|node|nodejs|php|lua|luajit|deno|bun|Rscript|R|julia|tclsh|osascript|pwsh|powershell|groovy|elixir"
    r"|erl|scala|ghci|guile|expect|jshell|irb|ipython|pypy|ts-node|tsx|awk|gawk|mawk|nawk)[\d.]*"
)
_CODE = parse_names("-c -e -E -r -p -eval --eval -Command eval --exec")
_READS_CODE = parse_names("ssh at batch ed ex psql mysql sqlite3 make gdb parallel vim nvim mail")
_SYSTEM_PLACES = re.compile(r"(?:/usr(?:/local)?|/opt/homebrew|/run/current-system/sw)?/s?bin/[^/]+|/usr/lib/\w+/\w+")
_OUTPUT = re.compile(r"(?:^|\s)(?:-o|-O|--output(?:-document)?|--cookie-jar|--dump-header|of)(?:=|\s+|(?=/))(\S+)")
_ALL_WRITTEN = parse_names("tee sponge truncate touch mkdir mkfifo mknod fallocate shred mv")
_LAST_WRITTEN = parse_names("cp ln install rsync scp ditto")
_MENTIONS = SHELLS | parse_names(
    "echo printf : true false test [ [[ ls stat file mkdir touch rm rmdir chmod chown du cd basename dirname realpath"
    " find fd ln trap env timeout nice nohup command exec time eval sudo xargs"
)  # programs whose words are not files that they read; those that run others are judged by what they run
_PATTERN_FIRST = parse_names("grep egrep fgrep zgrep rg sed awk gawk jq perl")


def parse_program_name(name: str) -> tuple[str, bool]:
    """A program's name without its place, and whether it is the one that everybody knows by that name."""
    if "/" not in name:
        return name, True
    clean = re.sub(r"/(?:[^/]+/\.\.)?/*", "/", name)
    return name.rstrip("/").rsplit("/", 1)[-1], _SYSTEM_PLACES.fullmatch(clean) is not None


def is_known(name: str) -> bool:
    bare = ShellCall(name, ("x",))
    has_rating = is_rated(name) or name.startswith("mkfs.") or _INTERPRETER.fullmatch(name) is not None
    return has_rating or is_read_only_call(bare) or unwrap_call(bare) is not None


def judge(call: ShellCall) -> Meanings:
    name = "mkfs" if call.name.startswith("mkfs.") else call.name
    if name != name.lower() and not is_known(name) and is_known(name.lower()):  # some file systems know no capitals
        yield Rating("medium", f"{name} is a program that is not known here")
        name = name.lower()
    call = msgspec.structs.replace(call, name=name)
    yield from _rate_secrets(call)
    looks = is_read_only_call(call)
    if not looks or name in _ALL_WRITTEN:
        yield from _rate_places(call)
    if name == "git":
        git_ratings = list(_rate_git(call))
        yield from git_ratings
        yield from _rate_words(call) if git_ratings else ()
        return
    inner = unwrap_call(call)
    yield from inner or ()
    rated = find_ratings(call) if call.args not in (("--version",), ("--help",)) else []
    if looks:
        yield from (Rating("none", each.reason, network=True) for each in rated if each.network)
        return
    yield from rated
    if can_hide_commands(call, is_interpreter=_INTERPRETER.fullmatch(name) is not None):
        yield Rating("none", "", hides_commands=True)
    if _INTERPRETER.fullmatch(name):
        yield from _rate_interpreter(call)
    elif not rated and inner is None:
        yield Rating("medium", f"{name or 'it'} is a program that is not known here")
    if inner is None:
        yield from _rate_words(call)


def _rate_interpreter(call: ShellCall) -> Meanings:
    """Rate an interpreter. Code is not parsed: running it is medium, and high if the code is not in the text."""
    yield Rating("medium", f"{call.name} runs code", unseen=True)
    at = next((n for n, word in enumerate(call.args) if word in _CODE or not word.startswith("-")), None)
    code_arguments = call.args[at : at + 2 if call.args[at] in _CODE else at + 1] if at is not None else ()
    if any(UNKNOWN in word for word in code_arguments):
        yield Rating("high", f"{call.name} runs code that is not known before it does", unseen=True)
    if call.stdin is not None and (not code_arguments or code_arguments == ("-",)):
        if UNKNOWN in call.stdin:
            reason = f"{call.name} runs the text that is piped into it, which no person has seen"
            yield Rating("high", reason, unseen=True)
        yield from ruin(call.stdin)


def _rate_words(call: ShellCall) -> Meanings:
    """Any of its words may be a command, in an option or in code."""
    if call.name not in ("rm", "mv", "cp", "chmod"):
        attached = " ".join(word[2:] for word in call.args if word[:1] == "-" and " " in word)
        yield from ruin(f"{call.line} ; {attached}" if attached else call.line)
    if call.name in _READS_CODE and call.stdin is not None:
        yield from ruin(call.stdin)


def _rate_places(call: ShellCall) -> Meanings:
    options = read(call.args, "t target-directory" if call.name in ("cp", "mv", "install", "ln") else "")
    written_paths = list(options.operands if call.name in _ALL_WRITTEN else ())
    if call.name in _LAST_WRITTEN and len(options.operands) > 1:
        written_paths = [options.operands[-1]]
    written_paths += options.list_values("t", "target-directory")
    if call.name in ("sed", "gsed", "perl") and any(re.match(r"-[a-zA-Z]*i|--in-place", word) for word in call.args):
        written_paths += call.args
    written_paths += _OUTPUT.findall(call.line)
    for place in written_paths:
        if ":" not in place.split("/")[0] and (rating := rate_write(place, call.cwd)):
            yield rating
    yield from _rate_deletion(call, options.operands, options.has("R", "r", "recursive"))


def _rate_deletion(call: ShellCall, operands: tuple[str, ...], recursive: bool) -> Meanings:
    match call.name:
        case "rm" | "unlink" | "grm" | "rimraf" | "trash" | "srm":
            unsure = any(word.startswith(UNKNOWN) for word in call.args)  # it may be an option
            for word in filter(None, operands):
                top = resolve(word.replace(UNKNOWN, ""), call.cwd) == "/" and bool(word.strip(UNKNOWN))
                yield rate_delete(word, call.cwd, recursive=recursive or call.name == "rimraf" or (unsure and top))
        case "mv" | "chmod" | "chown" | "chgrp":
            for word in operands[:-1] if call.name == "mv" else operands[1:] if recursive else ():
                rating = rate_delete(word, call.cwd, recursive=True)
                if rating.severity == "critical" and not resolve(word, call.cwd).startswith((".", "*")):
                    yield Rating("critical", rating.reason.replace("deletes", "moves or changes", 1))
            written = [rate_write(word, call.cwd) for word in operands[1:]] if call.name != "mv" else []
            if any(each is not None and each.severity != "medium" for each in written):
                yield Rating("high", "changes the permissions of a part of the system")
        case "rsync" if any(word.startswith("--del") for word in call.args) and operands:
            if resolve(operands[-1], call.cwd) != "." and ":" not in operands[-1]:
                yield rate_delete(operands[-1], call.cwd, recursive=True)
            yield Rating("high", "deletes what the other side does not have")
        case _:
            pass


def _rate_secrets(call: ShellCall) -> Meanings:
    if call.name in _MENTIONS:
        return
    words = call.args
    if call.name in _PATTERN_FIRST:
        first = next((n for n, word in enumerate(words) if not word.startswith("-")), len(words))
        words = (*words[:first], *words[first + 1 :])
    for word in words if call.name != "git" else call.line.split(" "):
        for each in (word, word.partition("=")[2]):
            if each and (rating := rate_read(each.replace(UNKNOWN, "x"), call.cwd)):
                yield rating


# -- git: which of its commands only look ------------------------------------------------------------------------------
_GIT_LOOKING = parse_names(
    """
    status log diff show rev-parse ls-files ls-tree blame shortlog describe cat-file reflog grep rev-list merge-base
    show-ref check-ignore branch tag stash remote config worktree clean
    """
)
_GIT_SAFE = parse_names(
    """
    oneline n p u s z a r v vv l i w c b q E F S L m o t stat graph all grep author since until follow pretty format
    decorate name-only name-status cached staged numstat shortstat patch no-patch short branch porcelain show-current
    list contains merged sort tags abbrev-ref show-toplevel git-dir verify quiet max-count reverse no-merges
    first-parent color no-color diff-filter untracked-files ignored others exclude-standard modified date unified
    count always dirty get get-all show-origin dry-run line-number ignore-case
    """
)
_GIT_VALUED = "n S G L e sort format grep author since until max-count contains merged get get-all"
_GIT_VERBS: dict[str, tuple[str, str, str]] = {
    "branch": ("", "list l contains merged a r", "u m c"),
    "tag": ("", "l list contains n", "a s u v"),
    "stash": (r"(?:list|show)\b.*", "", ""),
    "remote": (r"|get-url\b.*", "", ""),
    "config": (r"\S+", "get get-all l list show-origin", ""),
    "worktree": (r"list\b.*", "", ""),
    "clean": (r"(?!)", "n dry-run", ""),
    "reflog": (r"(?!expire|delete).*", "", ""),
}  # commands that look only with these words or these options, and never with the last ones
_GIT_FILTERS = "setup env-filter tree-filter index-filter parent-filter msg-filter commit-filter tag-name-filter"
_GIT_SCRIPTS = {"rebase": "x exec", "difftool": "x extcmd", "filter-branch": _GIT_FILTERS}  # a shell runs their values
_GIT_HELPERS = parse_table(
    """
    fetch pull : upload-pack
    clone : u upload-pack c config
    push archive : receive-pack exec
    ls-remote : upload-pack exec
    grep : O open-files-in-pager
    """
)  # options that name a program: a pager, or the other end of a transfer


def _rate_git(call: ShellCall) -> Meanings:
    options = read(call.args, "C c git-dir work-tree namespace exec-path super-prefix config-env", until_word=True)
    global_options = call.args[: len(call.args) - len(options.operands)]
    if _is_read_only_git(global_options, options.operands):
        return
    all_ratings = find_ratings(ShellCall("git", options.operands))
    option_ratings = find_ratings(ShellCall("git-options", global_options))
    all_ratings += option_ratings
    helper_options = _GIT_HELPERS.get("".join(options.operands[:1]), "")
    if option_ratings or read(options.operands[1:], helper_options).list_values(*helper_options.split()):
        yield Rating("none", "", hides_commands=True)
    yield from all_ratings or [Rating("medium", f"changes the repository (git {' '.join(options.operands[:1])})")]
    yield from _find_git_commands(options.operands)


def _find_git_commands(words: tuple[str, ...]) -> Meanings:
    """The commands among the words, which git runs."""
    verb, arguments = "".join(words[:1]), words[1:]
    match read(arguments, until_word=True).operands:
        case ("foreach", *rest) if verb == "submodule":
            yield model.Script(" ".join(read(rest, until_word=True).operands))
        case ("run", *rest) if verb == "bisect":
            yield model.NestedCommand(tuple(rest))
        case _ if names_of_options := _GIT_SCRIPTS.get(verb):
            yield from map(model.Script, read(arguments, names_of_options).list_values(*names_of_options.split()))


def _is_read_only_git(global_options: tuple[str, ...], operands: tuple[str, ...]) -> bool:
    known_options = set(read(global_options, "C").flags) <= {"C", "no-pager", "P", "version", "help"}
    if not known_options or UNKNOWN in "".join(global_options):
        return False
    if not operands:
        return True
    verb, options = operands[0], read(operands[1:], _GIT_VALUED)
    has_known_flags = all(flag in _GIT_SAFE or re.fullmatch(r"[-\d.,]+", flag) for flag in options.flags)
    if verb not in _GIT_LOOKING or not has_known_flags or not has_known_options(operands[1:]):
        return False
    words, options_wanted, options_barred = _GIT_VERBS.get(verb, (".*", "", ""))
    flags = frozenset(options.flags)
    fits = re.fullmatch(words, " ".join(options.operands), re.S) is not None or bool(
        flags & parse_names(options_wanted)
    )
    return fits and not flags & parse_names(options_barred)
