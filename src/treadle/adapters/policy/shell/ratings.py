"""The table of programs: a severity with its reason, and below it the programs, some only where `~` their words match.

`network` is medium and says that the words need the network. `git` matches from its verb on, `git-options` before it.
"""

import re
from functools import lru_cache

import msgspec

from treadle.adapters.policy.shell.model import Rating, Severity, ShellCall

_TABLE = r"""
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
  git ~ ^push\b.*\s(?:-f|--force\S*|--delete|-d|--mirror|--prune|[+:]\S+)(?:\s|$)
high throws work or history away that exists nowhere else
  git ~ ^reset\b.*\s--(?:hard|merge|keep)|^clean\b|^restore\b(?!.*\s(?:-S|--staged))
  git ~ ^(?:checkout|switch)\b.*\s(?:-f|--force|--discard-changes|--|\.)(?:\s|$)
  git ~ ^branch\b.*\s(?:-D|-d\s+-f|-f\s+-d)|^stash\s+(?:drop|clear)|^rm\b(?!.*--cached).*\s-\w*r
  git ~ ^reflog\s+(?:expire|delete)|^gc\b.*--prune=|^prune\b|^worktree\b.*\s(?:-f|--force)
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
def _ratings() -> dict[str, list[tuple[str, Rating]]]:
    table: dict[str, list[tuple[str, Rating]]] = {}
    rating = Rating("none", "")
    for line in _TABLE.strip().splitlines():
        listed, _, pattern = line.partition(" ~ ")
        if not line.startswith(" "):
            severity, _, reason = line.partition(" ")
            network = severity == "network"
            rating = Rating(msgspec.convert("medium" if network else severity, Severity), reason, network)
            continue
        for name in listed.split():
            table.setdefault(name, []).append((pattern, rating))
    return table


def ratings(call: ShellCall) -> list[Rating]:
    line = call.line
    return [rating for pattern, rating in _ratings().get(call.name, ()) if not pattern or re.search(pattern, line)]


def is_rated(name: str) -> bool:
    return name in _ratings()
