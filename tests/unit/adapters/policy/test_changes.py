"""The policy asks about some sets of changes, depending on the mode (S-06, S-07, S-16)."""

import pytest
from msgspec.structs import replace

from tests.unit.adapters.policy.kit import SPECS, Judge, allow, ask, call, deny
from treadle.adapters.policy.changes import MOST_BYTES, MOST_FILES, ChangeSet, find_concerns
from treadle.adapters.policy.standard import StandardPolicy
from treadle.ports.policy import Verdict
from treadle.ports.toolset import Rehearsal
from treadle.protocol.files import DiffStat, FileChange, FileState, StateKind, Uncaptured, make_file_change
from treadle.protocol.options import ChatOptions, Mode


def state(mode: int = 0o644, digest: str = "d", kind: StateKind = "file", size: int = 1, target: str = "") -> FileState:
    return FileState(kind, mode, digest, size, target)


def build_creation(path: str, mode: int = 0o644, *, ignored: bool = False, **more: object) -> FileChange:
    return make_file_change(path, None, state(mode, **more), DiffStat(), ignored=ignored)  # type: ignore[arg-type]


def build_deletion(path: str, mode: int = 0o644, digest: str = "d", *, ignored: bool = False) -> FileChange:
    return make_file_change(path, state(mode, digest), None, DiffStat(), ignored=ignored)


def build_modification(path: str, old_mode: int = 0o644, new_mode: int = 0o644) -> FileChange:
    return make_file_change(path, state(old_mode, "a"), state(new_mode, "b"), DiffStat())


PLAIN = (build_creation("src/a.py"), build_modification("b.py"), build_deletion("old.py"))
RAISING: dict[str, tuple[FileChange, ...]] = {
    "sensitive": (build_creation(".env"),),
    "unrecoverable": (build_deletion("notes.txt"),),
    "many": tuple(build_creation(f"f{number}") for number in range(MOST_FILES + 1)),
    "outside_link": (build_creation("out", kind="link", target="../x"),),
    "executable": (build_creation("run.sh", 0o755),),
    "repository": (build_deletion(".git/HEAD"),),
}
LOST = ("notes.txt",)


@pytest.mark.parametrize("kind", RAISING)
def test_each_kind_is_raised_by_itself(kind: str) -> None:  # S-16
    (raised,) = find_concerns(ChangeSet(RAISING[kind], LOST), {}, ())
    assert raised.kind == kind
    assert raised.reason
    assert find_concerns(ChangeSet(PLAIN), {}, ()) == ()


@pytest.mark.parametrize(
    ("mode", "plain", "always", "other_verdict"),
    [
        ("read-only", "discard", "discard", "discard"),
        ("confirm", "ask", "ask", "ask"),
        ("review", "ask", "ask", "ask"),
        ("ask", "allow", "ask", "ask"),
        ("auto-edit", "allow", "ask", "allow"),
        ("autopilot", "allow", "ask", "allow"),
    ],
)
async def test_modes(mode: Mode, plain: str, always: str, other_verdict: str) -> None:  # S-07
    """`confirm` gets here only with a command that looks harmless."""
    judge = Judge(mode=mode)
    assert await judge.changing(command="ls") == "allow", "an empty effect"
    assert await judge.changing(*PLAIN, command="ls") == plain
    for kind, files in RAISING.items():
        expected = always if kind in ("sensitive", "repository") else other_verdict
        assert await judge.changing(*files, command="ls", unrecoverable=LOST) == expected, kind
    ruled = Judge(mode=mode, rules=(ask("src/**", "edit_file"),))
    assert await ruled.changing(*PLAIN, command="ls") == always
    assert await Judge(mode=mode, rules=(deny("src/**", "edit_file"),)).changing(*PLAIN, command="ls") == "deny"


@pytest.mark.parametrize("mode", ["review", "ask", "auto-edit", "autopilot"])
async def test_edits_are_judged_by_the_same_rules(mode: Mode) -> None:  # S-16
    judge = Judge(mode=mode)
    for files in (PLAIN, *RAISING.values()):
        rehearsal = Rehearsal("", files, unrecoverable=LOST)
        edit = await judge.review_rehearsed_call(rehearsal, "write_file", path="any")
        assert edit.decision == await judge.changing(*files, unrecoverable=LOST)


async def test_words_that_are_trusted_leave_what_is_sensitive_to_be_asked_for() -> None:
    for options in ({"auto_approve_commands": True}, {"rules": (allow("make all"),)}):
        judge = Judge(mode="ask", **options)  # type: ignore[arg-type]
        assert await judge.changing(*RAISING["many"]) == "allow"
        assert await judge.changing(*RAISING["sensitive"]) == "ask"
    trusting = Judge(mode="ask", auto_approve_sensitive_edits=True)
    assert await trusting.changing(*RAISING["sensitive"]) == "allow"
    assert await trusting.changing(*RAISING["executable"]) == "ask"
    ruled_judge = Judge(mode="ask", rules=(allow(".env", "edit_file"),))
    assert await ruled_judge.changing(*RAISING["sensitive"]) == "allow"


async def test_where_nobody_is_there_changes_are_discarded_and_edits_denied() -> None:  # S-05
    judge = Judge(mode="ask", interactive=False)
    rehearsal = Rehearsal("", RAISING["sensitive"])
    verdict = await judge.review_rehearsed_call(rehearsal, "run_command", command="make all")
    assert verdict.decision == "discard"
    assert ".env" in verdict.reason
    assert "approval" in verdict.reason
    assert (await judge.review_rehearsed_call(rehearsal, "write_file", path=".env")).decision == "deny"
    assert await judge.changing(*PLAIN) == "allow"


async def test_the_card_shows_words_effect_and_reason() -> None:  # S-08
    verdict = await Judge(mode="ask").review_rehearsed_call(
        Rehearsal("A .env +1", RAISING["sensitive"]), "run_command", command="make all"
    )
    assert verdict.decision == "ask"
    assert "make all" in verdict.approval_text
    assert "A .env +1" in verdict.approval_text
    assert "secrets" in verdict.reason


async def test_what_is_only_left_out_is_no_change() -> None:
    fifo_rehearsal = Rehearsal("", uncaptured=(Uncaptured("pipe", "a FIFO"),))
    assert (
        await Judge(mode="ask").review_rehearsed_call(fifo_rehearsal, "run_command", command="mkfifo pipe")
    ).decision == "allow"
    assert (
        await Judge(mode="review").review_rehearsed_call(fifo_rehearsal, "run_command", command="mkfifo pipe")
    ).decision == "ask"


# -- what raises nothing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "files",
    [
        tuple(build_creation(f"node_modules/x/f{number}") for number in range(MOST_FILES + 1)),
        tuple(build_creation(f"target/f{number}", ignored=True) for number in range(MOST_FILES + 1)),
        (
            build_creation(".venv/lib/site-packages/x.pyc"),
            build_creation("node_modules/x/package-lock.json"),
            build_creation("node_modules/.vite/a.js"),
        ),
        (
            build_modification("node_modules/.cache/babel.js"),
            build_modification(".venv/lib/x/RECORD"),
            build_deletion(".venv/bin/tool"),
        ),
        (build_creation("target/debug/build/tool", 0o755, ignored=True),),
        (build_deletion("__pycache__/notes.txt"), build_deletion("dist/notes.txt", ignored=True)),
        (build_deletion("a.sh", 0o755), build_creation("b.sh", 0o755)),
        (build_modification("a.sh", 0o755, 0o755), build_modification("b.sh", 0o755, 0o644)),
        (build_creation("in", kind="link", target="a.py"), build_creation("sub/up", kind="link", target="../a.py")),
        (build_creation(".git/index"), build_deletion(".git/ORIG_HEAD"), build_creation(".git/objects/aa/bb", 0o444)),
        (build_creation("folder", 0o755, kind="directory"), build_creation("a", size=MOST_BYTES)),
    ],
)
def test_no_concern(files: tuple[FileChange, ...]) -> None:
    lost_paths = ("__pycache__/notes.txt", "dist/notes.txt")
    assert find_concerns(ChangeSet(files, lost_paths), {}, ()) == ()


def kinds(*files: FileChange, lost_paths: tuple[str, ...] = ()) -> list[str]:
    return [each.kind for each in find_concerns(ChangeSet(files, lost_paths), {}, ())]


def test_programs_among_installed_packages() -> None:  # S-23
    assert kinds(build_creation(".venv/bin/python", kind="link", target="/usr/bin/python3")) == ["installed"]
    assert kinds(build_creation(".venv/lib/x.pth")) == ["installed"]
    assert kinds(build_creation("venv/bin/activate", ignored=True)) == ["installed"]
    assert kinds(build_modification("node_modules/x/index.js")) == ["installed"]
    assert kinds(build_modification("node_modules/x/package.json")) == ["installed"], "it names the file that is loaded"
    assert kinds(build_creation("app/node_modules/x/index.js")) == ["installed"], "it is found before the one above"
    assert kinds(build_creation("node_modules/x", kind="link", target="../evil")) == ["installed"]
    assert kinds(build_creation(".venv/lib/site-packages/lib/__init__.py")) == ["installed"], (
        "it is found before lib.py"
    )
    assert kinds(build_creation(".venv/lib/site-packages/sitecustomize/__init__.py")) == ["installed"]
    assert kinds(build_creation(".venv/lib/site-packages/lib", kind="link", target="../../../../evil")) == ["installed"]
    assert kinds(build_creation(".venv/lib/site-packages/x.dist-info/entry_points.txt")) == ["installed"]
    assert kinds(build_creation("venv-3.12/bin/python", ignored=True)) == ["installed"]
    assert kinds(build_modification(".terraform/providers/x/terraform-provider-x", 0o755, 0o755)) == ["installed"]
    assert kinds(build_creation("environment/bin/x", ignored=True)) == []
    assert kinds(build_modification(".venv/lib/python3/site-packages/x.py")) == ["installed"]


async def test_an_install_is_asked_for_once() -> None:  # S-23
    files = (build_creation(".venv/bin/tool", 0o755), build_creation(".venv/lib/x.pth"))
    spec, policy = SPECS["run_command"], StandardPolicy()
    options = ChatOptions(mode="ask", interactive=True)
    plain = call("run_command", command="pip install x")
    reached = replace(plain, reaches=True, network=("pypi",))
    for invocation, decision in ((plain, "ask"), (reached, "allow")):
        verdict = await policy.judge(spec, invocation, options, Rehearsal("", files), Verdict("review"))
        assert verdict.decision == decision
    sensitive = Rehearsal("", (*files, build_creation(".env")))
    assert (await policy.judge(spec, reached, options, sensitive, Verdict("review"))).decision == "ask"


def test_new_hidden_files_are_asked_for() -> None:  # S-06
    assert kinds(build_creation(".frobrc")) == ["sensitive"]
    assert kinds(build_creation("sub/.frob/settings.json")) == ["sensitive"]
    assert (
        kinds(build_modification(".frobrc"), build_modification("sub/.frob/settings.json"), build_deletion(".other"))
        == []
    )
    assert (
        kinds(
            build_creation(".gitignore"),
            build_creation(".editorconfig"),
            build_creation(".changeset/a.md"),
            build_creation("a/.gitkeep"),
        )
        == []
    )
    reports = (".eslintcache", ".coverage.host.17.XyZ", ".phpunit.result.cache", ".nyc_output/4f.json")
    settings = (".ruff.toml", "app/.yamllint", ".codecov.yml", ".slugignore", ".shellcheckrc")
    assert kinds(*map(build_creation, (*reports, *settings))) == []
    assert kinds(build_creation(".nyc_output/run.js")) == ["sensitive"]
    assert kinds(build_creation(".tools/ignore")) == ["sensitive"]
    assert (
        kinds(
            build_creation(".github/ISSUE_TEMPLATE/bug.md"),
            build_creation(".env.example"),
            build_creation(".mypy_cache/x"),
        )
        == []
    )
    assert find_concerns(ChangeSet((build_creation(".frobrc"),)), {".frobrc": True}, ()) == ()


def test_what_git_loses_is_said() -> None:  # S-23
    (raised,) = find_concerns(
        ChangeSet((build_modification(".git/packed-refs"),), history=("drops a", "hides b")), {}, ()
    )
    assert (raised.kind, raised.reason) == ("repository", "it drops a; it hides b")


def test_many_bytes_and_links_by_absolute_paths() -> None:
    assert kinds(build_creation("a", size=MOST_BYTES), build_creation("b")) == ["many"]
    assert kinds(build_creation("sub/a", kind="link", target="/etc/passwd")) == ["outside_link"]
    assert kinds(build_creation("sub/a", kind="link", target="../../x")) == ["outside_link"]
    assert kinds(build_modification("tool", 0o644, 0o755)) == ["executable"]
    assert kinds(build_deletion(".env"), build_deletion("sub/.github/workflows/ci.yml")) == ["sensitive"]


def test_who_writes_what_is_ignored_does_not_hide_by_it() -> None:
    assert kinds(build_deletion("notes.txt", ignored=True), lost_paths=LOST) == []
    assert kinds(build_creation(".gitignore"), build_deletion("notes.txt", ignored=True), lost_paths=LOST) == [
        "unrecoverable"
    ]
    assert kinds(
        build_creation("src/CACHEDIR.TAG"), build_deletion("src/notes.txt"), lost_paths=("src/notes.txt",)
    ) == ["unrecoverable"]


def test_own_patterns_hold_in_caches_too() -> None:
    files = (build_creation("node_modules/x/secret.sql"),)
    assert [each.kind for each in find_concerns(ChangeSet(files), {"*.sql": False}, ())] == ["sensitive"]


def test_locks_of_build_output_pin_nothing() -> None:
    lock = build_creation("target/debug/x.lock", ignored=True)
    assert find_concerns(ChangeSet((lock,)), {}, ()) == ()
    assert [each.kind for each in find_concerns(ChangeSet((build_creation("Cargo.lock"),)), {}, ())] == ["sensitive"]
    assert find_concerns(ChangeSet((lock, build_modification(".gitignore"))), {}, ()) != ()
    assert find_concerns(ChangeSet((build_creation(".env", ignored=True),)), {}, ()) != ()


async def test_a_rule_answers_for_words_that_are_rated_as_nothing() -> None:  # S-07
    effect = Rehearsal("", RAISING["executable"])
    verdict = await Judge(mode="ask").review_rehearsed_call(effect, "run_command", command="touch run.sh")
    assert verdict.decision == "ask"
    (offer,) = verdict.offers
    assert (
        await Judge(mode="ask", rules=(offer.rule,)).changing(*RAISING["executable"], command="touch run.sh") == "allow"
    )
    assert await Judge(mode="confirm")("touch run.sh") == "ask", "it does more than look"


@pytest.mark.parametrize(
    ("path", "target", "leaves"),
    [
        ("x", "d/up/../outside", True),  # `d/up` may be a link to `..`
        ("d/up", "..", False),
        ("d/up", "./../a", False),
        ("d/up", "../..", True),
        ("x", "..", True),
        ("x", "/etc", True),
        ("x", "a/./b", False),
    ],
)
def test_links_that_leave_the_project(path: str, target: str, leaves: bool) -> None:  # S-16
    assert kinds(build_creation(path, kind="link", target=target)) == (["outside_link"] if leaves else [])


def test_a_sensitive_file_that_gives_way_to_a_folder() -> None:  # S-06
    folder = FileState("directory", 0o755)
    file = make_file_change("AGENTS.md", FileState("file", 0o644, "d", 1), folder, DiffStat())
    assert kinds(file) == ["sensitive"]
