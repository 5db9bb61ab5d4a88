"""Rules about commands (S-07; fault 27): an allow rule covers nothing beside its words, a deny rule all that
may run them."""

import random
import shlex

import pytest

from tests.unit.adapters.policy.kit import Judge, allow, ask, deny
from treadle.adapters.policy.rules import check_rule
from treadle.errors import InvalidInput
from treadle.protocol.files import FileChange, FileState

# -- an allow rule covers its own part alone --------------------------------------------------------------------------


def _build_truncation(path: str) -> FileChange:
    return FileChange(path, "modified", 0, 1, FileState("file", 0o644, "1f2e", 5), FileState("file", 0o644, "3d4c", 0))


@pytest.mark.parametrize(
    "command",
    [
        "make test; : > precious.txt",
        ": > precious.txt; make test",
        "make test && echo x > precious.txt",
        "make test | tee precious.txt",
        "make test; true > precious.txt",
        "make test; > precious.txt",
        "{ make test; } > precious.txt",
        "make test; touch precious.txt",
        "make test; exec > precious.txt",
        "X=1; make test",
        "export X=1; make test",
        "make test & cat x >precious.txt",
        "if make test; then cat x 1<>precious.txt; fi",
        "make test; f() { : > precious.txt; }; f",
        "make test; cat <(ls > precious.txt)",
        "read -a PATH <<< .; make test",
        "read -aPATH <<< .; make test",
        ": {PATH}> /dev/null; make test",
        "ls {PATH}< /dev/null; make test",
        "set -o keyword; make test",
    ],
)
async def test_every_part_is_covered_or_read_only(command: str) -> None:  # S-07: seen with `: > precious.txt`
    judge = Judge(mode="ask", rules=(allow("make *"),))
    assert (
        await judge.changing(_build_truncation("precious.txt"), command=command, unrecoverable=("precious.txt",))
        == "ask"
    )
    assert (
        await judge.changing(_build_truncation("precious.txt"), command="make test", unrecoverable=("precious.txt",))
        == "allow"
    )
    assert await Judge(mode="confirm", rules=(allow("make *"),))(command) == "ask"


@pytest.mark.parametrize(
    "pattern",
    [
        "python3", "bash", "node", "env", "sudo", "xargs", "find", "perl", "ruby", "ssh", "sh", "/usr/bin/python3.12",
        "python3.11 *", "lua5.4", "ssh host *", "sqlite3 app.db *", "vim notes *", "python3 -W ignore *",
        "node -r ./x.js *", "bash -o pipefail *", "python3 -", "bash -s", "uv run *", "npm exec *", "poetry run *",
        "bunx *", "at now", "busybox sh *", "run0 ls", "pkexec ls",
    ],
)  # fmt: skip
async def test_programs_that_run_others_are_refused_as_a_whole(pattern: str) -> None:
    with pytest.raises(InvalidInput):
        check_rule(allow(pattern))
    if pattern not in ("xargs", "find"):  # which only look
        # A rule that an older version has saved covers nothing.
        assert await Judge(rules=(allow(pattern),))(pattern.replace("*", "x")) == "ask"


@pytest.mark.parametrize("pattern", ["python3 gen.py *", "python3 -m pytest *", "node build.js", "ssh host uptime"])
def test_a_script_by_its_name_may_be_allowed(pattern: str) -> None:
    check_rule(allow(pattern))


@pytest.mark.parametrize(
    "command",
    [
        "python3 gen.py <<'E'\nimport os\nE",
        "python3 gen.py <<< 'import os'",
        "cat x | python3 gen.py",
        "echo x | timeout 5 python3 gen.py",
        "python3 gen.py < x",
        "{ python3 gen.py; } < x",
        "while read -r line; do python3 gen.py; done < x",
        "python3 gen.py <(cat x)",
    ],
)
async def test_input_into_an_interpreter_is_not_covered(command: str) -> None:
    rules = (allow("python3 gen.py *"), allow("python3 gen.py"), allow("python3 gen.py <(cat x)"))
    assert await Judge(rules=rules)(command) == "ask"
    assert await Judge(rules=rules)("python3 gen.py") == "allow"
    assert await Judge(rules=rules)("python3 gen.py < /dev/null") == "allow"


@pytest.mark.parametrize(
    ("rule", "command", "covered"),
    [
        ("make *", "make --eval='$(shell touch x)' all", False),
        ("make *", "make --ev '$(shell touch x)' all", False),
        ("make *", "make -kE '$(shell touch x)' all", False),
        ("make *", "make -f ../../dev/stdin all", False),
        ("make *", "make all SHELL=./x", False),
        ("make *", "make all 'X:=$(shell touch x)'", False),
        ("make *", "make -C sub -j4 -k all V=1", True),
        ("make -f other.mk *", "make -f other.mk all", True),
        ("make -f other.mk all", "make -f other.mk all", True),
        ("git fetch *", "git fetch --upload-pack='touch x' .", False),
        ("git fetch *", "git fetch --upl 'touch x' .", False),
        ("git fetch *", "git fetch --prune --tags ./other", True),
        ("git rebase *", "git rebase -x 'touch x' main", False),
        ("git commit *", "git commit -c HEAD", True),
        ("pytest *", "pytest -p evil", False),
        ("pytest *", "pytest -qx tests -k config --cov=app", True),
        ("go test *", "go test -exec ./x ./...", False),
        ("go test *", "go test -race -run X ./...", True),
        ("sort *", "sort --compress-program=./x f", False),
        ("sort *", "sort -k 2 f", True),
        ("split *", "split --filter ./x f", False),
        ("tar *", "tar xf a.tar --to-comm=./x", False),
        ("cargo build *", "cargo build --config build.rustc-wrapper=./x", False),
        ("cargo build *", "cargo build --release", True),
    ],
)
async def test_a_star_does_not_stand_for_options_that_bring_code(rule: str, command: str, covered: bool) -> None:
    """S-07: such an option makes any command of the one that was allowed."""
    assert await Judge(rules=(allow(rule),), mode="confirm")(command) == ("allow" if covered else "ask")


async def test_a_makefile_from_a_pipe_is_not_covered() -> None:
    judge = Judge(rules=(allow("make *"),))
    for option in ("-f -", "-f-", "--file=-", "--makefile=/dev/stdin", "-kf-", "-f/dev/fd/0", "-f /proc/self/fd/0"):
        assert await judge(f"cat x | make {option}") == "ask", option
        assert await judge(f"make {option} <<< 'all:; touch x'") == "ask", option
    assert await judge("make -f /dev/fd/3 3<<< 'all:; touch x'") == "ask"
    assert await judge("make OUT=/dev/null") == "allow"
    assert await judge("yes | make install") == "allow"


async def test_a_relative_program_is_that_of_its_folder() -> None:
    judge = Judge("/project", rules=(allow("./run.sh *"), allow("python3 gen.py")))

    async def decision(command: str, **more: object) -> str:
        return (await judge.verdict("run_command", command=command, **more)).decision

    for command in ("./run.sh", "./run.sh --all", ".//./run.sh", "python3 gen.py"):
        assert await decision(command) == "allow", command
        assert await decision(command, cwd=".") == "allow", command
        assert await decision(command, cwd="/project") == "allow", command
        assert await decision(command, cwd="x") == "ask", command
        assert await decision(command, cwd="x/..") == "ask", command
        assert await decision(command, cwd="/elsewhere") == "ask", command
        assert await decision(f"cd x; {command}") == "ask", command
        assert await decision(f"for i in 1 2; do {command}; cd x; done") == "ask", command
    assert await decision("x/../run.sh") == "ask"
    assert await decision("./r[u]n.sh") == "ask"
    verdict = await Judge("/project").verdict("run_command", command="./run.sh a", cwd="x")
    assert [offer.rule.pattern for offer in verdict.offers] == ["./x/run.sh a"]
    ruled_judge = Judge("/project", rules=(verdict.offers[0].rule,))
    assert (await ruled_judge.verdict("run_command", command="./run.sh a", cwd="x")).decision == "allow"
    assert (await ruled_judge.verdict("run_command", command="./run.sh a")).decision == "ask"


# -- a deny rule covers what may run ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("git tag *", "git -C . tag two"),
        ("git tag *", "git --no-pager tag three"),
        ("git tag *", "G=git; $G tag four"),
        ("git tag *", "G=git; ${G} tag four"),
        ("git tag *", 'A=gi; B="${A}t"; "$B" tag five'),
        ("git tag *", "export G='git tag'; $G six"),
        ("git tag *", "for g in git; do $g tag seven; done"),
        ("git tag *", "git --git-dir .git --work-tree=. -C x tag"),
        ("git tag *", "git --shallow-file x tag"),
        ("git tag *", "git submodule --quiet foreach --recursive 'git tag x'"),
        ("git tag *", "git bisect run git tag x"),
        ("git tag *", "git rebase -ix 'git tag x' main"),
        ("git tag *", "git filter-branch --tree-filter 'git tag x'"),
        ("git tag", "git -p tag"),
        ("npm publish *", "npm --prefix web publish"),
        ("npm run build", "npm run --silent build"),
        ("docker run *", "docker --context far run x"),
        ("docker compose up *", "docker compose -f other.yml up -d"),
        ("kubectl delete *", "kubectl -n prod delete pod x"),
        ("kubectl delete pod *", "kubectl delete -n prod pod x"),
        ("cargo publish *", "cargo +nightly --config x publish"),
        ("make deploy *", "make -C sub deploy"),
        ("make deploy *", "make -j 4 V=1 deploy"),
        ("make deploy", "make -l 2.5 clean deploy"),
        ("make deploy", "make deploy clean"),
        ("pip install *", "pip --index-url u install x"),
        ("pip install *", "python3 -m pip install x"),
        ("pip install *", "pip3.12 install x"),
        ("terraform apply *", "terraform -chdir=x apply"),
        ("frob apply *", "frob --where x apply"),
        ("git push --force *", "git push origin main --force"),
        ("git -C /x tag", "git -C /x tag"),
        ("rm -rf *", "rm -f -r x"),
        ("rm -rf *", "rm -vfr x"),
        ("rm -rf *", "rm -fR x"),
        ("rm -rf *", "rm --recursive --force x"),
        ("git push --force *", "git push -f origin main"),
        ("git tag *", "/usr/lib/git-core/git-tag x"),
        ("git tag *", "shopt -s expand_aliases; alias t='git tag'\nt x"),
        ("./deploy.sh *", "bash -e ./deploy.sh"),
        ("./deploy.sh *", "cd x && ../deploy.sh now"),
        ("python *", "/usr/bin/python3.11 x.py"),
        ("git push --force *", "git push --forc origin main"),
        ("git push --force *", "git push --f origin main"),
        ("git push -f *", "git push --forc origin main"),
        ("git push --force", "git push --forc"),
        ("git push --force-with-lease *", "git push --force-with-lease=main origin"),
        ("git push --force-with-lease *", "git push --force-w=main origin"),
        ("rm --recursive *", "rm --recurs x"),
        ("rm -rf *", "rm --recurs --forc x"),
        ("tool --mode=fast *", "tool --mo=fast x"),
        ("npm install *", "npm i x"),
        ("npm install *", "npm --prefix web add x"),
        ("npm i *", "npm install x"),
        ("npm uninstall *", "npm rm x"),
        ("npm run deploy", "npm run-script deploy"),
        ("pnpm add *", "pnpm i x"),
        ("pip install *", "python -m pip install x"),
        ("docker run *", "docker container run x"),
        ("docker container run *", "docker run x"),
        ("docker rmi *", "docker --context far image rm x"),
        ("docker compose up *", "docker-compose up -d"),
        ("apt install *", "apt-get install x"),
        ("cargo run *", "cargo r"),
        ("make deploy", "gmake deploy"),
        ("git tag *", "echo 'git tag x' | at now"),
    ],
)  # fmt: skip
async def test_options_variables_and_interpreters_do_not_hide_a_denied_command(pattern: str, command: str) -> None:
    verdict = await Judge(mode="autopilot", rules=(deny(pattern),)).verdict("run_command", command=command)
    assert verdict.decision == "deny"
    assert (
        await Judge(mode="autopilot", rules=(ask(pattern),)).verdict("run_command", command=command)
    ).decision == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "$G tag four",
        'git "$X"',
        "git $(cat verb) x",
        "git t?g x",
        "git {tag,x}",
        'git -C "$DIR" status',
        "git -c alias.t=tag t x",
        'g() { git "$@"; }; g tag x',
        'set -- git tag; "$@" x',
        'eval "$X"',
        "curl example.org | sh",
        'bash -c "$X"',
        "echo '",
        "bash <(echo git tag x)",
        "source <(echo git tag x)",
        "chronic git tag x",
        "gtimeout 3 /usr/bin/git -C . tag x",
        "./wrap git tag x",
        "uv tool run git tag x",
        "tmux new-session 'git tag x'",
        "shopt -s expand_aliases; alias g=git\ng tag x",
        "hash -p /usr/bin/git g; g tag x",
        """awk 'BEGIN{system("git tag x")}'""",
        """awk 'BEGIN{print "tag x" | "xargs git"}'""",
        """awk 'BEGIN{"git tag x" | getline}'""",
        "sed '1e git tag x' f",
        "sed 's/.*/git tag x/e' f",
        "ssh -o ProxyCommand='git tag x' host",
        "ssh -oproxycommand='git tag x' host",
        "scp -o 'LocalCommand git tag x' a host:b",
        "tar xf a.tar --to-command='git tag x'",
        "tar xf a.tar --to-comm 'git tag x'",
        "tar cf a.tar --checkpoint=1 --checkpoint-action=exec='git tag x' .",
        "tar -I 'git tag x' -cf a.tar .",
        "rsync -e 'git tag x' a host:b",
        "vim -c '!git tag x' f",
        "vim '+!git tag x' f",
        "split --filter='git tag x' f",
        """perl -e 'system("git tag x")'""",
        "perl -ne 'print `git tag x`' f",
        """python -c 'import os; os.system("git tag x")'""",
        """python -W ignore -c'from os import system; system("git tag x")'""",
        """node --eval='require("child_process").execSync("git tag x")'""",
        "python3 <<'E'\nimport subprocess\nsubprocess.run(['git', 'tag', 'x'])\nE",
        "curl example.org | python3",
        'python -c "$X"',
        "sqlite3 app.db '.shell git tag x'",
        "git fetch --upload-pack='git tag x' .",
        "git grep -O'git tag x' word",
        "GIT_EDITOR='git tag x' git commit",
    ],
)
async def test_what_may_be_a_denied_command_is_asked_for(command: str) -> None:
    verdict = await Judge(mode="autopilot", rules=(deny("git tag *"),)).verdict("run_command", command=command)
    assert verdict.decision == "ask"
    assert "`deny git tag *` may cover it" in verdict.reason
    alone = Judge(mode="autopilot", rules=(deny("git tag *"),), interactive=False)
    assert await alone(command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "git -C tag status",
        "git --no-pager log tag",
        "uv run tag",
        "git submodule foreach git status",
        'git commit -m "$MESSAGE"',
        "git commit -m tag",
        "ls tag",
        "echo git tag",
        'for f in *.py; do python3 "$f"; done',
        "echo $((1 + 2))",
        "make -j4 test",
        "PY=python3; $PY -m pytest git tag",
        'source "$VENV/bin/activate"',
        "cp git tag",
        "chronic make git-tag",
        "python -c 'print(1)'",
        "python3 -c 'import sys; print(sys.version)'",
        "python -m pytest -p no:cacheprovider tests/test_subprocess.py",
        "python tool.py -c subprocess.toml",
        "awk -F'|' '{print $1 \"|\" $2}' f",
        "awk '/a|b/ {print}' f",
        "sed 's/the e /x/' f",
        "sed -n '/start/,/end/p' f",
        "perl -pe 's/a/b/' f",
        "tar -I zstd -cf a.tar .",
        "rsync -a -e 'ssh -p 22' a host:b",
        "ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null host uptime",
        "python3 -u tool.py < data",
        "cat data | python3 -m json.tool",
    ],
)
async def test_a_deny_rule_leaves_other_commands_alone(command: str) -> None:
    verdict = await Judge(mode="autopilot", rules=(deny("git tag *"),)).verdict("run_command", command=command)
    expected = "ask" if command.startswith("PY=") else "allow"  # a program by a variable is never known for sure
    assert verdict.decision == expected


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("npm publish *", "npm --access public publish"),
        ("kubectl delete *", "kubectl --tls-server-name x delete pod y"),
        ("systemctl stop *", "systemctl --job-mode fail stop x"),
        ("npm publish *", "npm publi"),
        ("hg push *", "hg pus"),
        ("npm publish *", "git -c core.editor='npm publish' commit"),
    ],
)
async def test_an_option_that_may_take_a_value_is_asked_about(pattern: str, command: str) -> None:  # S-07
    """Not every option of every program is listed: the next word may be its value, or the name of another command."""
    assert await Judge(mode="autopilot", rules=(deny(pattern),))(command) == "ask"


@pytest.mark.parametrize(
    ("pattern", "command"),
    [("git push --force *", "git push --forc origin"), ("npm install *", "npm i"), ("make *", "gmake")],
)
async def test_an_allow_rule_knows_no_abbreviations_and_no_synonyms(pattern: str, command: str) -> None:  # S-07
    assert await Judge(rules=(allow(pattern),), mode="confirm")(command) == "ask"


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("git push --force *", "git push --follow-tags"),
        ("npm install *", "npm run i"),
        ("docker rm *", "docker image rm x"),
    ],
)
async def test_a_deny_rule_leaves_similar_commands_alone(pattern: str, command: str) -> None:
    assert await Judge(mode="autopilot", rules=(deny(pattern),), network="all")(command) == "allow"


async def test_a_rule_for_a_git_command_does_not_allow_the_commands_that_it_runs() -> None:  # S-07
    judge = Judge(rules=(allow("git submodule *"), allow("git bisect *")))
    assert await judge("git submodule update") == "allow"
    assert await judge("git submodule foreach touch x") == "ask"
    assert await judge("git bisect run sh x") == "ask"


async def test_a_denied_command_is_not_typed_into_a_shell_either() -> None:
    judge = Judge(mode="autopilot", rules=(deny("git tag *"),))
    assert (await judge.verdict("send_input", handle="1.0", text="git -P tag x\n")).decision == "deny"
    assert (await judge.verdict("send_input", handle="1.0", text="print('git tag')\n")).decision == "allow"


async def test_a_long_command_is_compared_to_its_end() -> None:
    judge = Judge(mode="autopilot", rules=(deny("git tag *"), deny("frob x")))
    assert await judge("git " + "-P " * 3_000 + "tag x") == "deny"
    assert await judge("frob " + "-a b " * 1_500 + "x") == "deny"


# -- for random compound commands, an allow verdict means that each part is covered -----------------------------------

_COVERED = ("make test", "make -k all", "cargo test --all", "./run.sh fast", "timeout 9 make x", "python3 gen.py a")
_HARMLESS = (
    "ls",
    "cat a.txt",
    "echo hi",
    "pwd",
    "git status",
    "grep -r x .",
    "true",
    "wc -l < a.txt",
    "ls 2>/dev/null",
)
_BARRED = (
    ": > a.txt", "rm a.txt", "touch b", "tee b < a.txt", "echo x >> a.txt", "python3 other.py", "bash", "sh x.sh",
    "sudo make test", "env A=1 make test", "A=1 make test", "make test > out", "cargo run", "./other.sh", "$X",
    "make $X", "A=2", "export PATH=.", "python3 gen.py a < in.txt", "cp a b", "git commit -m x", "xargs make test",
    "eval make", "node -e 1", "npm install", "source x", "exec > log", "mkdir d", "make test 2> err", "echo x >| a.txt",
    "echo x &> a.txt", "cat a >> b", "dd of=x", "truncate -s 0 a.txt", "sed -i d a.txt", "sort -o a.txt a.txt",
)  # fmt: skip
_JOINTS = ("{} ; {}", "{} && {}", "{} || {}", "{} | {}", "{}\n{}", "{} & {}", "( {} ; {} )", "{{ {} ; {} ; }}",
           "if {}; then {}; fi", "while {}; do {}; break; done", "case x in x) {} ;; *) {} ;; esac", "! {} ; {}",
           "for i in 1 2; do {}; {}; done")  # fmt: skip
_RULES = tuple(map(allow, ("make *", "cargo test *", "./run.sh *", "python3 gen.py *")))


def _compound(chance: random.Random, depth: int) -> tuple[str, bool]:
    """A command, and whether each of its parts is covered by `_RULES` or only looks."""
    if not depth:
        pool = chance.choice((_COVERED, _HARMLESS, _COVERED, _HARMLESS, _BARRED))
        return chance.choice(pool), pool is not _BARRED
    (left_part, left_covered), (right, right_covered) = (
        _compound(chance, depth - 1),
        _compound(chance, chance.randrange(depth)),
    )
    joint = chance.choice(_JOINTS)
    if joint == "{} | {}":
        right = f"{{ {right}\n}}"  # so that all of it gets the input, which no rule covers for an interpreter
        right_covered = right_covered and "python3" not in right
    return joint.format(left_part, right), left_covered and right_covered


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("seed", range(6))
async def test_an_allow_verdict_means_that_every_part_is_covered(seed: int) -> None:  # S-07
    chance = random.Random(seed)
    judge = Judge(mode="ask", rules=_RULES)
    allowed = 0
    for _ in range(250):
        command, covered = _compound(chance, chance.randrange(1, 4))
        is_allowed = (
            await judge.changing(_build_truncation("a.txt"), command=command, unrecoverable=("a.txt",)) == "allow"
        )
        assert covered or not is_allowed, (seed, command)
        allowed += is_allowed
    assert allowed > 20  # not because all is asked for


@pytest.mark.parametrize("seed", range(4))
async def test_a_denied_command_never_passes_however_it_is_spelled(seed: int) -> None:  # S-07
    chance = random.Random(seed)
    judge = Judge(mode="autopilot", rules=(deny("git tag *"),))
    for _ in range(150):
        command = _spell_command(chance, ["git", *_git_options(chance), "tag", "v1"])
        for _ in range(chance.randrange(3)):
            harmless = chance.choice(_HARMLESS)
            command = chance.choice(_JOINTS).format(*chance.sample((command, harmless), 2))
        assert await judge(command) in ("deny", "ask"), (seed, command)


def _git_options(chance: random.Random) -> list[str]:
    pool = (["-C", "."], ["--no-pager"], ["--git-dir=.git"], ["--git-dir", ".git"], ["-P"], ["-c", "a.b=c"], ["--bare"])
    return [word for _ in range(chance.randrange(3)) for word in chance.choice(pool)]


def _spell_command(chance: random.Random, words: list[str]) -> str:
    match chance.randrange(7):
        case 0:
            return "/usr/bin/" + shlex.join(words)
        case 1:
            return " ".join(f"'{word}'" for word in words)
        case 2:
            return f"V={words[0]}; $V {shlex.join(words[1:])}"
        case 3:
            return f"bash -c {shlex.quote(shlex.join(words))}"
        case 4:
            return f"env A=1 timeout 5 {shlex.join(words)}"
        case 5:
            at = words.index("tag")
            return f'T=tag; {shlex.join(words[:at])} "$T" v1'
    return shlex.join(words)
