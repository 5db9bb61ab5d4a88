"""The content of rules, and the place where they are kept (S-07, S-09)."""

import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from tests.unit.adapters.policy.kit import Judge, allow
from treadle.adapters.policy.command_rules import find_rule_allowing_part
from treadle.adapters.policy.command_severity import parse_parts
from treadle.adapters.policy.rules import RuleBook, check_rule
from treadle.adapters.policy.standard import StandardPolicy
from treadle.errors import ConfigError, InvalidInput, NotFound
from treadle.protocol.permissions import Rule
from treadle.testing.clock import ManualClock
from treadle.testing.faults import InjectedFault, faults


@pytest.mark.parametrize(
    "pattern",
    ["python *", "bash *", "/bin/sh *", "node *", "python -c *", "python -m *", "sudo *", "sudo ls", "env *",
     "xargs rm", "find . -exec rm {} +", "git -c x=y log", "git *", "*", "ma*e", "make * test", "make te*",
     "'unended", "  "],
)  # fmt: skip
def test_what_no_allow_rule_may_say(pattern: str) -> None:
    with pytest.raises(InvalidInput):
        check_rule(allow(pattern))


@pytest.mark.parametrize("pattern", ["make test", "python tools/gen.py *", "git status *", "npm run build", "ls *"])
def test_what_an_allow_rule_may_say(pattern: str) -> None:
    check_rule(allow(pattern))


def test_a_deny_rule_may_say_more() -> None:
    for pattern in ("sudo *", "python *", "*", ""):
        check_rule(Rule("deny", "run_command", pattern))
    with pytest.raises(InvalidInput):
        check_rule(allow(""))
    with pytest.raises(InvalidInput):
        check_rule(allow("", "write_file"))
    check_rule(allow("", "deploy"))


def test_words_are_compared_as_a_shell_reads_them() -> None:
    for pattern, command, is_allowed in (
        ("echo 'a b' *", "echo 'a b' c", True),
        ("echo a b", "echo 'a b'", False),
        ("make *", "make", True),
    ):
        assert bool(find_rule_allowing_part([allow(pattern)], parse_parts(command)[0])) == is_allowed


# -- the book ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_rules_are_kept_for_their_owner_alone(home: Path) -> None:
    rule = RuleBook(home).add(allow("make test", scope="user"))
    assert rule.id.startswith("r_")
    assert RuleBook(home).list_rules() == (rule,)
    assert stat.S_IMODE((home / "rules.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_project_rules_hold_in_their_project_only(home: Path, tmp_path: Path) -> None:
    one, other_root = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other_root.mkdir()
    (tmp_path / "link").symlink_to(one)
    book = RuleBook(home)
    rule = book.add(allow("make test", scope="project", root=str(tmp_path / "link")))
    assert rule.root == str(one)
    assert book.list_applicable(str(one)) == book.list_applicable(str(tmp_path / "link")) == (rule,)
    assert book.list_applicable(str(other_root)) == ()


def test_the_same_rule_again_moves_its_expiry(home: Path) -> None:
    clock = ManualClock()
    book = RuleBook(home, clock)
    book.add(allow("make test", scope="user", expires_ms=clock.now_ms() + 1_000))
    assert len(book.list_applicable("/x")) == 1
    clock.advance(2)
    assert book.list_applicable("/x") == ()
    book.add(allow("make test", scope="user"))
    assert len(book.list_rules()) == len(book.list_applicable("/x")) == 1


def test_revoked_is_gone_and_known_to_all_at_once(home: Path) -> None:
    one, other_book = RuleBook(home), RuleBook(home)
    rule = one.add(allow("make test", scope="user"))
    assert other_book.list_applicable("/x") == (rule,)
    assert one.revoke(rule.id) == rule
    assert other_book.list_applicable("/x") == ()
    with pytest.raises(NotFound):
        other_book.revoke(rule.id)


def test_a_bad_rule_changes_nothing(home: Path) -> None:
    with pytest.raises(InvalidInput):
        RuleBook(home).add(allow("python *", scope="user"))
    assert not (home / "rules.json").exists()


def _write_rules(home: Path, content: bytes) -> Path:
    home.mkdir()
    (home / "rules.json").write_bytes(content)
    os.chmod(home / "rules.json", 0o600)
    return home


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"rules": [{"effect": "maybe", "tool": "x"}]}', b"\xff"])
async def test_a_damaged_book_allows_nothing(home: Path, content: bytes) -> None:
    book = RuleBook(_write_rules(home, content))
    with pytest.raises(ConfigError, match="damaged"):
        book.list_rules()
    judge = Judge("/x", StandardPolicy(book), mode="autopilot")
    assert await judge("ls") == "deny"


def test_a_damaged_rule_does_not_hide_the_others_from_a_person(home: Path) -> None:
    good = b'{"effect": "deny", "tool": "run_command", "pattern": "git push *", "scope": "user", "id": "r_1"}'
    for bad in (b'{"effect": "maybe", "tool": "x"}', b"7", b'{"effect": "deny", "tool": "x", "expires_ms": 1e99}'):
        (home / "rules.json").unlink(missing_ok=True)
        home.exists() and home.rmdir()
        book = RuleBook(_write_rules(home, b'{"rules": [' + bad + b", " + good + b"]}"))
        rules, damage = book.list_readable()
        assert [rule.pattern for rule in rules] == ["git push *"]
        assert "is damaged" in damage
    home.joinpath("rules.json").write_bytes(b"{")
    assert RuleBook(home).list_readable()[0] == []


@pytest.mark.parametrize("expires_ms", [-1, 863_999_999_999_999_913_600_000, 253_370_764_800_001])
def test_a_time_out_of_range_is_refused(home: Path, expires_ms: int) -> None:
    for times in ({"expires_ms": expires_ms}, {"created_ms": expires_ms}):
        with pytest.raises(InvalidInput, match="can expire until"):
            RuleBook(home).add(allow("make test", scope="user", **times))


async def test_a_book_that_others_can_write_allows_nothing(home: Path) -> None:
    book = RuleBook(home)
    book.add(allow("make test", scope="user"))
    os.chmod(home / "rules.json", 0o666)
    with pytest.raises(ConfigError, match="others"):
        RuleBook(home).list_rules()
    assert await Judge("/x", StandardPolicy(RuleBook(home)))("make test") == "deny"


def test_a_home_inside_the_project_allows_nothing(tmp_path: Path) -> None:  # S-09, law 12
    book = RuleBook(tmp_path / "project" / "home")
    book.add(allow("make test", scope="user"))
    book.add(Rule("deny", "run_command", "git push *", "user"))
    assert [rule.effect for rule in book.list_applicable(str(tmp_path / "project"))] == ["deny"]
    assert len(book.list_applicable(str(tmp_path / "elsewhere"))) == 2


@pytest.mark.parametrize("point", ["home.before_replace:rules.json", "home.after_replace:rules.json"])
def test_a_change_is_made_or_not(home: Path, point: str) -> None:
    book = RuleBook(home)
    first = book.add(allow("make test", scope="user"))
    with faults(f"raise@{point}"), pytest.raises(InjectedFault):
        book.add(allow("make lint", scope="user"))
    rules = RuleBook(home).list_rules()
    assert rules[0] == first
    assert len(rules) == (1 if "before" in point else 2)
    RuleBook(home).add(allow("make docs", scope="user"))


def _add_many(home: Path, number: int) -> None:
    for each in range(20):
        RuleBook(home).add(allow(f"make t{number}-{each}", scope="user"))


def test_several_processes_write_at_once(home: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_add_many, args=(home, number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert len({rule.pattern for rule in RuleBook(home).list_rules()}) == 60


def _as_nobody(home: Path) -> None:
    os.setgid(65534)
    os.setuid(65534)
    rule = RuleBook(home / "own").add(allow("make test", scope="user"))
    assert RuleBook(home / "own").list_applicable("/x") == (rule,)
    try:
        RuleBook(home / "roots").add(allow("make test", scope="user"))
    except ConfigError:
        return
    raise AssertionError("another user's home was written")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")
def test_an_ordinary_user_has_a_book_of_their_own(home: Path) -> None:
    home.mkdir()
    os.chown(home, 65534, 65534)
    for folder in home.parents:
        if folder.stat().st_mode & 0o001 == 0 and folder.name.startswith(("pytest", "test", "popen")):
            folder.chmod(folder.stat().st_mode | 0o001)
    (home / "roots").mkdir(mode=0o700)
    worker = multiprocessing.get_context("fork").Process(target=_as_nobody, args=(home,))
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0
