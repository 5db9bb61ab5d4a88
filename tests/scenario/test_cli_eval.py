"""`treadle eval`: attempts are chats in worlds, checked in the sandbox, killed anywhere and resumed; and compared."""

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.faults.chance import some
from tests.scenario.command_line import CommandLine, end
from treadle import Agent
from treadle.adapters.stores import open_store
from treadle.library.evaluation.attempts import Plan, evaluate
from treadle.library.evaluation.report import Rate, compare
from treadle.library.evaluation.tasks import (
    RESULTS_FILE,
    Result,
    Task,
    append,
    find_missing_programs,
    read_results,
    read_suite,
)
from treadle.library.worlds.home import WorldHome

pytestmark = pytest.mark.thorough(one_of=8)

COUNT = 'call = [{ name = "run_command", args = { command = "echo x >> count" } }]'
WRITE = 'call = [{ name = "write_file", args = { path = "answer", content = "42\\n" } }]'
BAD = 'call = [{ name = "write_file", raw = "{}" }, { name = "fly", args = { to = "x" } }]'
ASKS = 'call = [{ name = "write_file", args = { path = ".env", content = "x" } }]'
DISCARDED = 'call = [{ name = "run_command", args = { command = "echo x > .env" } }]'
DONE = 'text = "Done."\nusage = { input = 100, output = 10 }'


def suite(cli: CommandLine, **turns: list[str]) -> list[str]:
    """A suite of tasks with a scripted model for each; the words of the command line that names them."""
    for name, task_turns in turns.items():
        folder = cli.folder / "suite" / name
        (folder / "start").mkdir(parents=True)
        (folder / "start" / "readme").write_text("Write the answer.\n")
        (folder / "check").mkdir()
        (folder / "check" / ".right").write_text("42\n")
        (folder / "task.toml").write_text('prompt = "Write the answer."\ncheck = "cmp answer .right"\n')
        cli.script("".join(f"[[turn]]\n{turn}\n" for turn in task_turns), f"{name}.toml")
    return [str(cli.folder / "suite"), "--model", f"scripted:{cli.folder}/{{task}}.toml"]


def results(cli: CommandLine) -> list[dict[str, Any]]:
    lines = (cli.project / "eval-results" / "suite" / RESULTS_FILE).read_text().splitlines()
    return [json.loads(line) for line in lines]


def count_writes(cli: CommandLine) -> list[int]:
    """How often each attempt's command wrote, by what was changed in its world."""
    diffs = sorted((cli.project / "eval-results" / "suite" / "attempts").glob("*/*/*/diff"))
    return [diff.read_text().splitlines().count("+x") for diff in diffs]


async def chats(cli: CommandLine) -> int:
    store = open_store(cli.project / "eval-results" / "suite" / "store" / "chats.db")
    try:
        return len(await store.list())
    finally:
        await store.close()


@pytest.mark.thorough(one_of=8)
async def test_attempts_are_checked_counted_and_reported(cli: CommandLine) -> None:
    words = suite(cli, good=[WRITE, DONE], bad=[BAD, ASKS, DONE])
    eval_result = cli("eval", *words, "-n", "2", "--jobs", "2")
    assert eval_result.code == 0, eval_result.err
    rows = results(cli)
    assert sorted((row["task"], row["attempt"], row["solved"]) for row in rows) == [
        ("bad", 1, False),
        ("bad", 2, False),
        ("good", 1, True),
        ("good", 2, True),
    ]
    bad = next(row for row in rows if row["task"] == "bad")
    assert (bad["turns"], bad["tool_errors"], bad["rejected"], bad["approvals"]) == (3, 3, 2, 1)
    assert (bad["input_tokens"], bad["output_tokens"]) >= (100, 10)
    assert "2/4 = 50% (15%–85%)" in eval_result.out  # noqa: RUF001
    folder = cli.project / "eval-results" / "suite"
    assert (folder / "report.txt").read_text().strip() in eval_result.out
    assert ElementTree.parse(folder / "report.svg").getroot().tag.endswith("svg")
    worlds = [path.name for path in (folder / "store" / "worlds").glob("world_*")]
    assert sorted(worlds) == sorted(row["world"] for row in rows), "those of checks are gone"
    assert len(list((folder / "starts").iterdir())) == 2, "attempts at a task share what they begin with"
    assert not (cli.folder / "suite" / "good" / "start" / "answer").exists()
    again = cli("eval", *words, "-n", "2")
    assert again.code == 0
    assert results(cli) == rows  # finished attempts are not made again
    assert await chats(cli) == 4


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize(
    "fault",
    [
        "kill@world.made#2",
        "kill@evaluation.chat_made",
        "kill@tool.write_after",
        "kill@evaluation.chat_ended#2",
        "kill@evaluation.result_known#2",
    ],
)
async def test_killed_anywhere_nothing_is_done_twice(cli: CommandLine, fault: str) -> None:  # D-01
    words = suite(cli, a=[COUNT, WRITE, DONE], b=[COUNT, WRITE, DONE])
    killed = end(cli.start("eval", *words, env={"TREADLE_FAULTS": fault}))
    assert killed.code == -signal.SIGKILL, killed.err
    eval_result = cli("eval", *words)
    assert eval_result.code == 0, eval_result.err
    assert [(row["task"], row["solved"]) for row in results(cli)] == [("a", True), ("b", True)]
    assert count_writes(cli) == [1, 1]
    assert await chats(cli) == 2


@pytest.mark.thorough(one_of=8)
async def test_what_ended_in_an_error_is_made_again_if_told(cli: CommandLine) -> None:
    words = suite(cli, a=[COUNT, 'fail = { kind = "auth", message = "wrong key" }'])
    failed = cli("eval", *words)
    assert failed.code == 1
    assert "every attempt ended in an error; the first: " in failed.err
    assert [(row["ended"], row["solved"]) for row in results(cli)] == [("error", False)]
    assert "wrong key" in results(cli)[0]["error"]
    cli.script(f"[[turn]]\n{COUNT}\n[[turn]]\n{WRITE}\n[[turn]]\n{DONE}\n", "a.toml")
    assert len(results(cli)) == 1
    assert cli("eval", *words, "--retry-errors").code == 0
    [attempt] = read_results(cli.project / "eval-results" / "suite")
    assert attempt.solved
    assert count_writes(cli) == [1]  # from the beginning


@pytest.mark.thorough(one_of=8)
async def test_a_model_that_never_answered_solves_nothing(cli: CommandLine) -> None:  # E-07
    words = suite(cli, a=['fail = { kind = "auth", message = "wrong key" }'], b=[DISCARDED, DONE])
    (cli.folder / "suite" / "a" / "task.toml").write_text('prompt = "Keep it as it is."\ncheck = "true"\n')
    assert cli("eval", *words).code == 0
    unanswered, discarded = results(cli)
    assert (unanswered["task"], unanswered["ended"], unanswered["solved"]) == ("a", "error", False)
    assert (discarded["task"], discarded["approvals"]) == ("b", 1)


def test_a_check_cannot_reach_out_of_its_copy(cli: CommandLine) -> None:
    words = suite(cli, a=[WRITE, DONE])
    task = cli.folder / "suite" / "a" / "task.toml"
    marker = cli.folder / "suite" / "marker"
    task.write_text(f"prompt = 'x'\ncheck = 'echo x > {marker}; cmp answer .right'\n")
    eval_result = cli("eval", *words)
    assert eval_result.code == 0, eval_result.err
    assert results(cli)[0]["solved"]
    if "without a sandbox" not in eval_result.err:
        assert not marker.exists()


@pytest.mark.thorough(one_of=8)
def test_a_swe_bench_instance(cli: CommandLine) -> None:
    repository = cli.folder / "repos" / "own__thing"
    repository.mkdir(parents=True)

    def git(*words: str) -> str:
        name = ["-c", "user.name=x", "-c", "user.email=x@y"]
        return subprocess.run(["git", *name, *words], cwd=repository, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    (repository / "answer").write_text("41\n")
    git("add", "-A")
    git("commit", "-qm", "first")
    base = git("rev-parse", "HEAD").strip()
    (repository / "answer").write_text("43\n")
    git("commit", "-qam", "later")
    row = {
        "instance_id": "own__thing-1",
        "repo": "own/thing",
        "base_commit": base,
        "problem_statement": "The answer is wrong.",
        "test_patch": "--- /dev/null\n+++ b/right\n@@ -0,0 +1 @@\n+42\n",
        "test_command": "cmp answer right",
    }
    (cli.folder / "set.jsonl").write_text(json.dumps(row) + "\n")
    edit = '{ name = "edit_file", args = { path = "answer", old_str = "41", new_str = "42" } }'
    look = '{ name = "run_command", args = { command = "git log --oneline | wc -l > commits" } }'
    model = cli.script(f"[[turn]]\ncall = [{edit}, {look}]\n[[turn]]\n{DONE}\n")
    words = ["--repos", str(cli.folder / "repos"), "--model", model, "--out", "out"]
    eval_result = cli("eval", str(cli.folder / "set.jsonl"), *words)
    assert eval_result.code == 0, eval_result.err
    [attempt] = read_results(cli.project / "out")
    assert attempt.solved, attempt.check
    [diff] = (cli.project / "out" / "attempts").glob("*/*/*/diff")
    assert "+++ commits\n@@ -0,0 +1 @@\n+1\n" in diff.read_text()  # the copy has no later commits


async def test_without_overlays_an_attempt_works_in_a_copy(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorldHome, "_explain_no_layers", lambda *_: "for a test")
    place, _, model = suite(cli, a=[WRITE, DONE])
    async with Agent(cli.folder / "out" / "store" / "chats.db") as agent:
        [attempt] = await evaluate(agent, read_suite(Path(place)), Plan((model,)), cli.folder / "out")
        assert attempt.solved, attempt
        assert [(each.id, each.how) for each in await agent.worlds.list()] == [(attempt.world, "copy")]


def reference_script(task: Task) -> str:
    """A model that reads what is there and writes the reference solution."""
    assert isinstance(task.start, Path)
    assert task.reference is not None
    files = {str(path.relative_to(task.reference)): path for path in task.reference.rglob("*") if path.is_file()}
    reads = [("read_file", {"path": name}) for name in files if (task.start / name).exists()]
    writes = [("write_file", {"path": name, "content": path.read_bytes().decode()}) for name, path in files.items()]
    removals = [("run_command", {"command": f"rm {name}"}) for name in task.deleted]
    turns = [turn for turn in (reads, writes + removals) if turn]
    turn_tables = ["[[turn]]\n" + "".join(map(format_call, turn)) for turn in turns]
    return "".join([*turn_tables, '[[turn]]\ntext = "Done."\n'])


def format_call(call: tuple[str, dict[str, str]]) -> str:
    name, arguments = call
    return f"[[turn.call]]\nname = {json.dumps(name)}\nraw = {json.dumps(json.dumps(arguments))}\n"


@pytest.mark.thorough(one_of=8)
@pytest.mark.slow
def test_the_references_of_the_own_suite_solve_it(cli: CommandLine) -> None:
    """Six by chance, all in a soak; that each reference passes its check is shown without a run, too."""
    suite_folder, place = Path(__file__).parents[2] / "evals", cli.folder / "evals"
    tasks = some([task for task in read_suite(suite_folder) if not find_missing_programs(task)], 4, "references")
    for task in tasks:
        shutil.copytree(suite_folder / task.name, place / task.name)
        cli.script(reference_script(task), f"{task.name}.toml")
    result = cli("eval", str(place), "--model", f"scripted:{cli.folder}/{{task}}.toml", "--jobs", "4", "--out", "out")
    assert result.code == 0, result.err
    attempts = read_results(cli.project / "out")
    assert len(attempts) == len(tasks)
    assert not [(each.task, each.error, each.check) for each in attempts if not each.solved]


def test_words_that_do_not_go_together(cli: CommandLine) -> None:
    assert cli("eval", "compare", "a").code == 2
    assert "there is no suite" in cli("eval", "nowhere", "--model", "x:y").err
    words = suite(cli, a=[DONE])
    assert "no tag fly" in cli("eval", *words, "--only", "fly").err


def rows(model: str, *solved: tuple[str, bool]) -> list[Result]:
    return [Result(task, model, number, hit, "done", turns=3) for number, (task, hit) in enumerate(solved)]


def test_compare_tells_better_and_worse(tmp_path: Path, cli: CommandLine) -> None:
    old_rows = rows("m", ("a", False), ("b", True), ("c", True), ("old", True))
    new_rows = rows("m", ("a", True), ("b", False), ("c", True))
    for name, attempts in (("A", old_rows), ("B", new_rows)):
        (tmp_path / name).mkdir()
        for each in attempts:
            append(tmp_path / name, each)
    comparison = cli("eval", "compare", str(tmp_path / "A"), str(tmp_path / "B")).out
    assert comparison.strip() == compare(old_rows, new_rows).strip()
    assert "Better: 1 of 3 tasks\n  a: 0/1 → 1/1" in comparison
    assert "Worse: 1 of 3 tasks\n  b: 1/1 → 0/1" in comparison
    assert "Left out: 1 tasks" in comparison


def test_half_a_line_is_no_result(tmp_path: Path) -> None:
    first, second = rows("m", ("a", True), ("b", True))
    append(tmp_path, first)
    with (tmp_path / RESULTS_FILE).open("ab") as file:
        file.write(b'{"task": "x", "mod')
    append(tmp_path, second)
    assert read_results(tmp_path) == [first, second]


def test_wilson() -> None:
    assert [f"{limit:.3f}" for limit in Rate(8, 10).bounds] == ["0.490", "0.943"]
    assert Rate(0, 0).bounds == (0.0, 1.0)
    assert Rate(0, 5).bounds[0] == 0.0
    assert Rate(5, 5).bounds[1] == 1.0
