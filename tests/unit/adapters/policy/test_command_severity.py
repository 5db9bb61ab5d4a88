"""S-04 and fault 27: commands are rated as what they do, mentions as what they are, and nothing slips by unread."""

import re
import shlex
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.faults.chance import examples
from tests.unit.adapters.policy.command_corpus import BY_EFFECT, HIDDEN, ROWS
from treadle.adapters.policy.command_severity import classify, parse_parts

RANK = {"none": 0, "medium": 1, "high": 2, "critical": 3}

COMMANDS = [row.command for row in ROWS]


def test_a_command_is_rated_by_its_words() -> None:  # S-04, fault 27
    findings = [(row, classify(row.command)) for row in ROWS]
    assert [(row, finding) for row, finding in findings if finding.severity != row.severity] == []
    assert [row for row, finding in findings if bool(finding.reasons) != (row.severity != "none")] == []


def test_every_dangerous_command_has_its_judge() -> None:  # S-04, S-05
    assert len(COMMANDS) == len(set(COMMANDS))
    assert len(COMMANDS) > 1_000
    assert all((row.judge == "words") == (row.severity == "critical") for row in ROWS)
    assert {row.command for row in HIDDEN} <= set(BY_EFFECT)
    assert "none" not in {classify(command).severity for command in BY_EFFECT}


def test_what_only_looks_needs_no_network() -> None:  # S-04
    looking = [row.command for row in ROWS if row.severity == "none" and not row.command.startswith("kubectl")]
    assert [command for command in looking if classify(command).network] == []


def test_the_reasons_for_the_severity_come_first() -> None:
    finding = classify("curl https://example.com; rm -rf /; sudo ls")
    assert finding.reasons[0] == "deletes everything"
    assert "reaches the network" in finding.reasons


@pytest.mark.parametrize(
    "command",
    [
        "curl https://x",
        "git push",
        "git -C sub fetch origin",
        "env A=1 pip install x",
        "python -m pip install x",
        "ls && git clone https://x/y",
        "npm ci",
        "cargo install x",
        "go get x",
        "sudo apt-get install -y x",
        "ssh host",
        "scp a host:b",
        "rsync -a a host:b",
        "docker pull x",
        "bash -c 'wget x'",
        "cat < /dev/tcp/1.2.3.4/80",
        "echo x > /dev/udp/1.2.3.4/80",
    ],
)
def test_words_that_plainly_need_the_network_are_told(command: str) -> None:  # S-04
    assert classify(command).network


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "git status",
        "make test",
        "echo curl https://x",
        "pip list",
        "cargo build",
        "npm test",
        "git clone ../other x",
        "git fetch /srv/x",
        "rsync -a a b",
        "curl --version",
    ],
)
def test_others_are_not(command: str) -> None:  # S-04
    assert not classify(command).network


@pytest.mark.parametrize(
    "command",
    ["for PATH in .; do ls; done", "for LD_PRELOAD in ./x.so; do ls; done", "read PATH <<< .", "export BASH_ENV"],
)
def test_a_variable_that_programs_obey_is_seen_however_it_is_set(command: str) -> None:  # S-04
    assert RANK[classify(command).severity] >= RANK["medium"]


@pytest.mark.parametrize("command", ["echo x > .en?", "echo x > .en[v]", "echo x > $f", "tee .en?", "touch .e{nv,x}"])
def test_a_target_that_is_not_literal_is_no_look(command: str) -> None:  # S-04, S-06
    assert classify(command).severity == "medium"


# ---- properties


@given(st.text(max_size=200))
@example("\ud800")
@example("\x00")
@example("$(")
@example("${")
@example("<<")
@example("<<E")
@example("cat <<''\nx\n\nrm -rf /")
@example("{" * 60)
@example("\ue000" + "0" + "\ue000")
@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_text_gets_an_answer(text: str) -> None:
    assert classify(text).severity in RANK
    parse_parts(text)


_WORDS = (
    "rm -rf / ~ $x ${x} x= if then fi case in esac for do done f() eval sh -c xargs find -exec awk sed sudo git env"
)
_SIGNS = "' \" ` $( ) ( { } , .. ; & < > # \\ $' $(( )) [[ ]] * ? [ ] ! $@ ${x:- <( >( = : && | || $( \ue001 \ue002"
_PIECES = st.sampled_from(
    [*(f"{word} " for word in _WORDS.split()), *_SIGNS.split(), " ", "\n", "\\\n", "<<E\n", "\nE\n", "python -c "]
)


@given(st.lists(_PIECES, max_size=25).map("".join))
@settings(max_examples=examples(500), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_heap_of_shell_gets_an_answer(text: str) -> None:
    assert classify(text).severity in RANK


@pytest.mark.thorough(one_of=8)
def test_wrapping_never_lowers_the_severity() -> None:
    for command in COMMANDS:
        finding = classify(command)
        if any("cannot be read" in reason for reason in finding.reasons):
            continue  # an incomplete text cannot be put into another
        quoted = shlex.quote(command)
        for wrapped in (
            f"bash -c {quoted}",
            f"eval {quoted}",
            f"env X=1 sh -c {quoted}",
            f"({command}\n)",
            f"{{ {command}\n}}",
            f"true && {{ {command}\n}}",
            f"if true; then {command}\nfi",
            f"f() {{ {command}\n}}; f",
            f'echo "$({command}\n)"',
            f"echo {quoted} | sh",
            f"bash <<'THE_END'\n{command}\nTHE_END\n",
        ):
            assert RANK[classify(wrapped).severity] >= RANK[finding.severity], wrapped


_NO_PROGRAM_FIRST = re.compile(
    r"\w+\+?=|[!{#<>\[]|(if|while|until|for|case|function|select|declare|export|readonly|local)\b"
)


@pytest.mark.thorough(one_of=8)
def test_a_prefix_never_lowers_the_severity_of_a_program() -> None:
    for command in COMMANDS:
        piped = re.search(r"[(|]", command)  # the output of a wrapped program is not followed
        if _NO_PROGRAM_FIRST.match(command) or piped or not parse_parts(command) or not parse_parts(command)[0].program:
            continue
        severity = classify(command).severity
        for prefix in ("env X=1", "nohup", "timeout 5", "command", "true &&", "true;", "time", "nice"):
            assert RANK[classify(f"{prefix} {command}").severity] >= RANK[severity], f"{prefix} {command}"


@given(st.lists(st.sampled_from(COMMANDS), min_size=2, max_size=4))
@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_highest_of_all_parts_wins(commands: list[str]) -> None:
    together = "\n".join(f"bash -c {shlex.quote(command)}" for command in commands)
    assert RANK[classify(together).severity] >= max(RANK[classify(command).severity] for command in commands)


# ---- bounds


def _nest_command(depth: int) -> str:
    command = "rm -rf /"
    for _ in range(depth):
        command = f"eval {shlex.quote(command)}" if len(command) < 60_000 else f"({command})"
    return command


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5_000 + "ls" + ")" * 5_000,
        "$(" * 2_000 + "ls" + ")" * 2_000,
        "{ " * 2_000 + "ls" + "; }" * 2_000,
        '"$(echo ' * 300 + "x" + ')"' * 300,
        "ls; " * 50_000,
        "x" * 300_000,
        "a=b; " * 10_000,
        "[" * 20_000,
        "`" * 20_001,
        "f() { f | f; }; " * 3_000,
        _nest_command(12),
    ],
    ids=lambda text: text[:12],
)
def test_too_much_is_high_at_least(text: str) -> None:
    assert RANK[classify(text).severity] >= RANK["high"]


def test_what_hides_behind_a_limit_is_still_seen() -> None:
    assert classify("(" * 500 + "rm -rf /" + ")" * 500).severity == "critical"
    assert classify("ls; " * 50_000 + "rm -rf /").severity in ("high", "critical")


def test_far_characters_do_not_end_the_process() -> None:
    """The grammar's scanner reads outside its tables for them; in a process of its own, in case it does again."""
    code = (
        "from treadle.adapters.policy.command_severity import classify\n"
        "for far in '\\u65e5\\U0001f600\\U000def9f\\U0010ffff':\n"
        "    for text in ('{%s', 'a{%s5', '$%s', '${%s}', '[%s', '%s=', '%s()', '<<%s', '#%s', 'ls %s', '(%s'):\n"
        "        classify(text % far)\n"
        "assert classify('ls \\u65e5\\u672c').severity == 'none'\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_parser_is_loaded_only_when_a_command_is_judged() -> None:
    code = "import sys, treadle.adapters.policy.command_severity; sys.exit('tree_sitter' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
