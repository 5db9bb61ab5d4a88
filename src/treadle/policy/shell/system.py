"""Programs that act on the machine, on processes and on the network."""

import re

from treadle.policy.shell.arguments import read
from treadle.policy.shell.model import UNKNOWN, Effects, Found, Script, Severity, ShellCall, names
from treadle.policy.shell.places import deleting, resolve, writing
from treadle.policy.shell.wrappers import Rule, shell_input

_FLAT: dict[Severity, dict[str, str]] = {
    "critical": {
        "makes a file system, and what was there is gone": "mkfs mke2fs mkswap mkdosfs newfs format",
        "changes or erases the partitions of a disk": "wipefs blkdiscard sgdisk cfdisk gdisk fdformat",
        "destroys a volume": "lvremove vgremove pvremove",
        "stops the machine": "shutdown reboot halt poweroff",
    },
    "high": {
        "changes who may log in": "useradd userdel usermod adduser deluser groupadd groupdel passwd chpasswd visudo "
        "vipw gpasswd chage newusers",
        "mounts or unmounts file systems": "mount umount losetup swapon swapoff fusermount",
        "changes the running kernel": "insmod rmmod modprobe kexec",
        "changes the firewall or the network": "iptables ip6tables nft ufw firewall-cmd ipset route ifconfig tc pfctl",
        "changes what a program or file may do": "setcap setfacl chattr chcon restorecon setenforce aa-complain",
        "runs something later, when nobody looks": "at batch anacron",
        "kills processes by name": "killall pkill skill",
        "changes the boot or the firmware": "grub-install update-grub efibootmgr flashrom update-initramfs",
        "debugs or changes another process": "ptrace reptyr",
        "drops a database": "dropdb dropuser",
        "reads the screen, keys or clipboard of a person": "xdotool xinput import scrot ydotool",
        "reads or writes a store of secrets": "security secret-tool pass kwallet-query gnome-keyring op vault",
    },
    "medium": {
        "reaches the network": "ping ping6 traceroute dig nslookup host whois nmap telnet ftp lftp tftp httpie http "
        "aria2c w3m lynx links openssl mosh rclone s3cmd mail sendmail mutt arp",
        "runs containers": "docker-compose podman-compose lxc virsh vagrant minikube kind",
        "writes keys or certificates": "ssh-keygen ssh-copy-id ssh-add keytool certbot gpg gpg2",
    },
}


def _flat() -> dict[str, Found]:
    return {
        name: Found(severity, reason)
        for severity, reasons in _FLAT.items()
        for reason, names in reasons.items()
        for name in names.split()
    }


FLAT = _flat()


def flat(call: ShellCall) -> Effects:
    if call.args in (("--version",), ("--help",), ("-V",)):
        return
    yield FLAT[call.name]


def partition(call: ShellCall) -> Effects:
    if not any(word in ("-l", "--list", "print", "-s", "list", "info", "-d") for word in call.args):
        yield Found("critical", "changes or erases the partitions of a disk")


def storage(call: ShellCall) -> Effects:
    bad = re.search(
        r"luksFormat|luksErase|erase|zero-superblock|destroy|--security-erase|format|-w\b|secureErase|labelclear",
        " ".join(call.args),
        re.I,
    )
    if bad:
        yield Found("critical", "erases a disk or a volume")
    else:
        yield Found("medium", "manages disks")


def kill(call: ShellCall) -> Effects:
    words = call.args
    if words[:1] in (("-l",), ("-L",)):
        return
    forced = any(
        re.fullmatch(r"-(9|KILL|SIGKILL)", word) or (word in ("9", "KILL", "SIGKILL") and "-s" in words)
        for word in words
    )
    targets = words[1:] if words and words[0].startswith("-") else words
    if "-1" in targets or targets == ("--", "-1"):
        yield Found("critical", "ends every process it can reach")
    elif forced:
        yield Found("high", "ends a process by force")
    else:
        yield Found("medium", "signals a process")


def service(call: ShellCall) -> Effects:
    verbs = set(call.args)
    if verbs & {"poweroff", "reboot", "halt", "kexec", "rescue", "emergency", "suspend", "hibernate"}:
        yield Found("critical", "stops the machine")
    elif verbs & {
        "status",
        "is-active",
        "is-enabled",
        "list-units",
        "show",
        "cat",
        "list-unit-files",
        "--version",
        "list",
    }:
        return
    else:
        yield Found("high", "starts, stops or changes services of the machine")


def init(call: ShellCall) -> Effects:
    yield Found(
        "critical" if set(call.args) & {"0", "6", "1", "s", "S"} else "high", "changes the state of the machine"
    )


def crontab(call: ShellCall) -> Effects:
    if call.args[-1:] != ("-l",):
        yield Found("high", "changes what runs later, when nobody looks")


def sysctl(call: ShellCall) -> Effects:
    if any("=" in word or word in ("-w", "-p", "--write", "--system") for word in call.args):
        yield Found("high", "changes the running kernel")


def date(call: ShellCall) -> Effects:
    if read(call.args, "d date f r").has("s", "set"):
        yield Found("high", "sets the clock")


def hostname(call: ShellCall) -> Effects:
    if any(not word.startswith("-") for word in call.args):
        yield Found("high", "renames the machine")


def ip(call: ShellCall) -> Effects:
    if any(word in ("add", "del", "delete", "set", "flush", "change", "replace", "exec") for word in call.args):
        yield Found("high", "changes the network")


def curl(call: ShellCall) -> Effects:
    yield Found("medium", "transfers data over the network")
    options = read(
        call.args, "o d F T H X u K b c e A x w m output data form upload-file config output-dir data-binary proxy"
    )
    for path in options.all("o", "output", "output-dir", "c", "cookie-jar", "D", "dump-header"):
        if path != "-" and (found := writing(path, call.cwd)):
            yield found
    if any(word.startswith("file:") for word in options.rest):
        yield Found("medium", "reads a local file as if it came from the network")


def wget(call: ShellCall) -> Effects:
    yield Found("medium", "transfers data over the network")
    options = read(
        call.args, "O o P e i U t T output-document directory-prefix execute use-askpass post-file body-file header"
    )
    for path in options.all("O", "output-document", "P", "directory-prefix"):
        if path != "-" and (found := writing(path, call.cwd)):
            yield found
    for text in options.all("use-askpass"):
        yield Found("high", "wget runs a program")
        yield Script(text)
    for text in options.all("e", "execute"):
        yield Found("high", f"wget obeys a setting: {text[:60]}")


def netcat(call: ShellCall) -> Effects:
    options = read(call.args, "e c p w s i q exec sh-exec lua-exec")
    if (
        options.has("e", "exec", "sh-exec")
        or (call.name != "nc" and options.has("c"))
        or (options.has("c") and options.all("c"))
    ):
        yield Found("high", "gives somebody on the network a program to drive")
    else:
        yield Found("medium", "talks to the network")
    for text in options.all("e", "c", "exec", "sh-exec"):
        yield Script(text)


def socat(call: ShellCall) -> Effects:
    yield Found("medium", "talks to the network")
    for word in call.args:
        match = re.match(r"(?:EXEC|SYSTEM|SHELL)[:=](.*)", word, re.I | re.S)
        if match:
            yield Found("high", "gives somebody on the network a program to drive")
            yield Script(re.split(r",(?=\w+)", match[1].strip("'\""))[0])
        elif re.match(r"(OPEN|CREATE|FILE|GOPEN):", word, re.I) and (
            found := writing(word.split(":", 1)[1].split(",")[0])
        ):
            yield found


def remote_copy(call: ShellCall) -> Effects:
    yield Found("medium", "copies files, maybe over the network")
    options = read(call.args, "e S F i o P l c rsh rsync-path exclude include filter files-from password-file J")
    for text in options.all("e", "rsh", "rsync-path") if call.name == "rsync" else options.all("S"):
        if not re.match(r"ssh\b(?!.*ProxyCommand)", text):
            yield Found("high", f"{call.name} runs a command")
        yield Script(text)
    for setting in options.all("o") if call.name != "rsync" else ():
        if re.match(r"\s*(proxycommand|localcommand)", setting, re.I):
            yield Found("high", f"{call.name} runs a local command")
            yield Script(setting.partition("=")[2])
    for place in options.rest[-1:]:
        if ":" in place.split("/")[0]:
            continue
        if found := writing(place, call.cwd):
            yield found
        if any(flag.startswith("delete") or flag == "del" for flag in options.flags):
            gone = deleting(place, call.cwd, recursive=True)
            yield (
                gone if resolve(place, call.cwd) != "." else Found("high", "deletes what the other side does not have")
            )


def later(call: ShellCall) -> Effects:
    yield from flat(call)
    if call.stdin is not None and call.stdin != UNKNOWN:
        yield from shell_input(call)


def database(call: ShellCall) -> Effects:
    yield Found("medium", "works on a database")
    text = " ".join((*call.args, call.stdin or ""))
    if re.search(
        r"\b(drop|truncate)\s+(database|table|schema|user|role|owned)?|\bflush(all|db)\b|dropDatabase|\bdelete\s+from\s+\w+\s*(;|$|\"|')",
        text,
        re.I,
    ):
        yield Found("high", "deletes data of a database")
    for match in re.finditer(r"(?:\\!|^\s*!|\.shell|\.system|\bsystem|\bPROGRAM)\s+([^\n]+)", text, re.M):
        yield Found("high", "the database's client runs a command")
        yield Script(match[1].strip("'\""))


RULES: dict[str, Rule] = {
    **dict.fromkeys(FLAT, flat),
    **dict.fromkeys(("at", "batch"), later),
    **dict.fromkeys(("fdisk", "parted", "sfdisk"), partition),
    **dict.fromkeys(
        ("cryptsetup", "mdadm", "zpool", "zfs", "hdparm", "nvme", "badblocks", "diskutil", "tune2fs", "debugfs"),
        storage,
    ),
    **dict.fromkeys(("systemctl", "service", "launchctl", "rc-service", "initctl", "loginctl"), service),
    **dict.fromkeys(("init", "telinit"), init),
    **dict.fromkeys(("curl",), curl),
    **dict.fromkeys(("nc", "ncat", "netcat"), netcat),
    **dict.fromkeys(("rsync", "scp", "sftp"), remote_copy),
    **dict.fromkeys(
        ("psql", "mysql", "mariadb", "sqlite3", "redis-cli", "mongo", "mongosh", "duckdb", "clickhouse-client"),
        database,
    ),
    "crontab": crontab,
    "date": date,
    "hostname": hostname,
    "ip": ip,
    "kill": kill,
    "socat": socat,
    "sysctl": sysctl,
    "wget": wget,
}
NETWORK = names(
    """
    curl wget nc ncat netcat socat ssh scp sftp rsync telnet ftp http httpie openssl mail sendmail lynx aria2c
    """
)
