"""Hooks that are real programs, and the one place where they are asked (E-03)."""

import json
import logging
from pathlib import Path

import msgspec
import pytest

from tests.unit.adapters.tools.builtin.diagnostics.kit import Bubble, bwrap, program
from treadle import Agent, ScriptedModel
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.hooks import FILE, CommandHooks, FunctionHooks, Hook, ProjectHooks, When
from treadle.adapters.workspace.root import Root
from treadle.base.types import CallKey, ChatId
from treadle.errors import ConfigError
from treadle.library.config import load
from treadle.ports.hooks import Chain, Hooks
from treadle.ports.toolset import Invocation, Outcome
from treadle.protocol.content import ResultsEntry
from treadle.protocol.events import FilesChanged
from treadle.protocol.options import ChatOptions
from treadle.protocol.tools import ToolSpec

SPEC = ToolSpec("write_file")
ENV = {"PATH": "/usr/bin:/bin", "OPENAI_API_KEY": "sk-secret"}


def invocation(root: Path) -> Invocation:
    return Invocation(ChatId("c_1"), CallKey("1.0"), "write_file", {"path": "a"}, options=ChatOptions(root=str(root)))


def hooks(command: str | Path, moment: When = "before", **more: object) -> CommandHooks:
    return CommandHooks([Hook(moment, str(command), **more)], ENV)  # type: ignore[arg-type]


# -- before -----------------------------------------------------------------------------------------------------------


async def test_a_hook_sees_the_call(tmp_path: Path) -> None:
    body = (
        f"json.dump([json.load(sys.stdin), os.getcwd(), sorted(os.environ)], open({str(tmp_path / 'seen')!r}, 'w'))\n"
    )
    project = tmp_path / "project"
    project.mkdir()
    assert await hooks(program(tmp_path, "guard", body)).before_call(SPEC, invocation(project)) == ""
    payload, cwd, names = json.loads((tmp_path / "seen").read_text())
    assert payload == {
        "when": "before",
        "chat": "c_1",
        "call": "1.0",
        "tool": "write_file",
        "arguments": {"path": "a"},
        "root": str(project),
        "mode": "auto-edit",
    }
    assert cwd == str(project)
    assert "OPENAI_API_KEY" not in names  # M-13


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("exit 0", ""),
        ("cat > /dev/null", ""),
        ("echo '{}'", ""),
        ("echo not today >&2; exit 2", "This call was refused by a hook of the user: not today"),
        ("exit 2", "This call was refused by a hook of the user: no reason was given"),
        ("""echo '{"block": "never"}'""", "This call was refused by a hook of the user: never"),
    ],
)
async def test_it_answers_by_how_it_ends(tmp_path: Path, body: str, reason: str) -> None:
    assert await hooks(body).before_call(SPEC, invocation(tmp_path)) == reason


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("echo oh >&2; exit 1", "failed with exit code 1: oh"),
        ("kill -9 $$", "failed with exit code -9"),
        ("/no/such/program", "failed with exit code 127"),
        ("echo fine", "printed what is no answer"),
        ("""echo '{"block": 1}'""", "printed what is no answer"),
        ("""echo '{"allow": true}'""", "printed what is no answer"),
    ],
)
async def test_one_that_fails_refuses(tmp_path: Path, body: str, expected: str) -> None:
    reason = await hooks(body).before_call(SPEC, invocation(tmp_path))
    assert expected in reason
    assert "not carried out" in reason


async def test_one_that_hangs_refuses(tmp_path: Path) -> None:
    reason = await hooks("sleep 600", timeout_s=0.3).before_call(SPEC, invocation(tmp_path))
    assert "took longer than 0.3 seconds" in reason


async def test_one_that_never_reads_is_given_a_megabyte_all_the_same(tmp_path: Path) -> None:
    big = msgspec.structs.replace(invocation(tmp_path), arguments={"content": "x" * 1_000_000})
    assert await hooks("exit 0").before_call(SPEC, big) == ""


async def test_it_is_asked_about_its_tools_only(tmp_path: Path) -> None:
    guard = hooks("exit 2", tools=("run_command",))
    assert await guard.before_call(SPEC, invocation(tmp_path)) == ""
    assert await guard.before_call(ToolSpec("run_command"), invocation(tmp_path)) != ""
    assert await hooks("exit 2", moment="after").before_call(SPEC, invocation(tmp_path)) == ""


# -- after ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("exit 0", "done"),
        ("""echo '{"append": "and now test"}'""", "done\nand now test"),
        ("""echo '{"result": "other"}'""", "other"),
        ("""echo '{"result": ""}'""", ""),
        ("exit 7", "done\n[The hook `exit 7` failed with exit code 7.]"),
        ("exit 2", "done\n[The hook `exit 2` failed with exit code 2.]"),
    ],
)
async def test_the_result_can_be_reworded(tmp_path: Path, body: str, text: str) -> None:
    outcome = await hooks(body, "after").after_call(SPEC, invocation(tmp_path), Outcome("done", summary="ok"))
    assert (outcome.text, outcome.summary, outcome.success) == (text, "ok", True)


async def test_a_hook_behind_a_call_sees_its_result(tmp_path: Path) -> None:
    body = f"json.dump(json.load(sys.stdin), open({str(tmp_path / 'seen')!r}, 'w'))\n"
    after_hooks = hooks(program(tmp_path, "look", body), "after")
    await after_hooks.after_call(SPEC, invocation(tmp_path), Outcome("no", success=False, summary="s"))
    payload = json.loads((tmp_path / "seen").read_text())
    assert (payload["when"], payload["success"], payload["result"], payload["summary"]) == ("after", False, "no", "s")


# -- in the loop ------------------------------------------------------------------------------------------------------


async def run(tmp_path: Path, hook: Hooks | list[Hooks]) -> list[str]:
    steps = [Call("write_file", path="a.txt", content="a"), Say("Done.")]
    async with Agent(model=ScriptedModel(steps), hooks=hook) as agent:
        chat = agent.chat(root=str(tmp_path), verify=False)
        await chat.ask("go")
        history = (await chat.state()).history
    return [result.text for entry in history if isinstance(entry, ResultsEntry) for result in entry.results]


async def test_a_refused_call_does_not_run_and_the_model_knows_why(tmp_path: Path) -> None:
    assert await run(tmp_path, hooks("echo frozen >&2; exit 2")) == [
        "This call was refused by a hook of the user: frozen"
    ]
    assert not (tmp_path / "a.txt").exists()


async def test_python_hooks_see_every_call(tmp_path: Path) -> None:
    async def refuse_path(spec: ToolSpec, call: Invocation) -> str:
        return "" if call.arguments["path"] != "b.txt" else "no"

    async def replace_outcome(spec: ToolSpec, call: Invocation, outcome: Outcome) -> Outcome:
        return Outcome(f"{spec.name} said: {outcome.text.splitlines()[0]}")

    [text] = await run(
        tmp_path,
        [FunctionHooks(before_call=refuse_path), FunctionHooks(after_call=replace_outcome, tools=["write_file"])],
    )
    assert text.startswith("write_file said: ")
    assert (tmp_path / "a.txt").read_text() == "a"


async def test_a_python_hook_that_raises_before_a_call_refuses_it(tmp_path: Path) -> None:
    async def raise_error(spec: ToolSpec, call: Invocation) -> str:
        raise RuntimeError("broken")

    [text] = await run(tmp_path, FunctionHooks(before_call=raise_error))
    assert "RuntimeError: broken" in text
    assert not (tmp_path / "a.txt").exists()


async def test_one_that_raises_behind_a_call_is_said_and_the_run_goes_on(tmp_path: Path) -> None:
    async def raise_error(spec: ToolSpec, call: Invocation, outcome: Outcome) -> Outcome:
        raise RuntimeError("broken")

    [text] = await run(tmp_path, FunctionHooks(after_call=raise_error))
    assert text.endswith("[A hook failed after this call: RuntimeError: broken]")
    assert (tmp_path / "a.txt").read_text() == "a"


async def test_the_first_refusal_counts(tmp_path: Path) -> None:
    both = Chain([hooks("exit 0"), hooks("echo one >&2; exit 2"), hooks("echo two >&2; exit 2")])
    assert (await both.before_call(SPEC, invocation(tmp_path))).endswith("one")


@pytest.mark.thorough(one_of=8)
async def test_what_a_program_of_the_user_changes_belongs_to_the_call(tmp_path: Path) -> None:  # S-16, W-10
    root = tmp_path / "project"
    root.mkdir()
    (root / "b.txt").write_text("b\n")
    formats = hooks("tr a A < a.txt > .f && cat .f > a.txt && rm .f && echo x >> b.txt && echo k=v > .env", "after")
    steps = [Call("write_file", path="a.txt", content="a"), Say("Done.")]
    async with Agent(model=ScriptedModel(steps), hooks=formats, home=tmp_path / "home") as agent:
        chat = agent.chat(root=str(root), verify=False)
        await chat.ask("go")
        file_events = [event.data for event in await chat.events() if isinstance(event.data, FilesChanged)]
        [text] = [
            entry.results[0].text
            for entry in (await chat.state()).history
            if isinstance(entry, ResultsEntry) and "hooks of the user" in entry.results[0].text
        ]
        assert (root / "a.txt").read_text() == "A"
        await chat.files.undo()
    assert {file.path for file in file_events[0].files} == {"a.txt", "b.txt", ".env"}
    assert "this would have been asked for: it changes .env" in text
    assert [path.name for path in root.iterdir()] == ["b.txt"]
    assert (root / "b.txt").read_text() == "b\n"


# -- the user's file --------------------------------------------------------------------------------------------------


def load_hooks(home: Path, text: str) -> tuple[Hook, ...]:
    (home / "config.toml").write_text(text)
    return load({"TREADLE_HOME": str(home)}).hooks


def test_hooks_are_read_from_the_users_file(tmp_path: Path) -> None:
    read = load_hooks(tmp_path, '[[hooks]]\nwhen = "before"\ncommand = "guard"\ntools = ["a"]\ntimeout_s = 5\n')
    assert read == (Hook("before", "guard", ("a",), 5.0),)
    assert load_hooks(tmp_path, "") == ()


@pytest.mark.parametrize(
    "text",
    [
        '[[hooks]]\nwhen = "during"\ncommand = "x"\n',
        '[[hooks]]\nwhen = "before"\n',
        '[[hooks]]\nwhen = "before"\ncommand = "x"\ntool = "misspelt"\n',
        "hooks = 7\n",
    ],
)
def test_a_hook_that_cannot_be_understood_is_an_error(tmp_path: Path, text: str) -> None:
    """A guard that is misspelt must not be passed over."""
    with pytest.raises(ConfigError, match=r"config\.toml"):
        load_hooks(tmp_path, text)


# -- a project's file -------------------------------------------------------------------------------------------------


def brings(root: Path, command: str) -> bytes:
    (root / ".treadle").mkdir(exist_ok=True)
    (root / FILE).write_text(f'[[hooks]]\nwhen = "before"\ncommand = """{command}"""\n')
    return (root / FILE).read_bytes()


def of_project(trusted: set[bytes], *, sandbox: bool = True) -> ProjectHooks:
    context = ToolContext(Root, MemoryStore(), sandbox_of=(lambda _level: Bubble()) if sandbox else None, env=ENV)
    return ProjectHooks(context, lambda _path, data: data in trusted)


async def test_a_projects_hooks_do_not_exist_without_trust(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """S-09, fault 28."""
    brings(tmp_path, "touch ran; exit 2")
    with caplog.at_level(logging.WARNING, "treadle"):
        guard = of_project(set())
        for _ in range(2):
            assert await guard.before_call(SPEC, invocation(tmp_path)) == ""
    assert not (tmp_path / "ran").exists()
    assert len([record for record in caplog.records if "not trusted" in record.message]) == 1


async def test_trusted_ones_run_only_in_a_sandbox(tmp_path: Path) -> None:
    trusted = {brings(tmp_path, f"touch {tmp_path}/ran; exit 2")}
    reason = await of_project(trusted, sandbox=False).before_call(SPEC, invocation(tmp_path))
    assert "run only in a sandbox" in reason
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(not bwrap(), reason="bubblewrap does not work here")
async def test_in_the_sandbox_they_may_refuse_and_touch_nothing(tmp_path: Path) -> None:
    trusted = {brings(tmp_path, "touch ran || { echo read-only >&2; exit 2; }")}
    reason = await of_project(trusted).before_call(SPEC, invocation(tmp_path))
    assert "read-only" in reason
    assert not (tmp_path / "ran").exists()


async def test_changed_content_is_trusted_no_more(tmp_path: Path) -> None:
    trusted = {brings(tmp_path, "exit 2")}
    brings(tmp_path, "touch ran; exit 2")
    assert await of_project(trusted).before_call(SPEC, invocation(tmp_path)) == ""


async def test_trusted_ones_that_cannot_be_read_stop_everything(tmp_path: Path) -> None:
    (tmp_path / ".treadle").mkdir()
    (tmp_path / FILE).write_text("[[hooks]]\nwhen = 7\n")
    reason = await of_project({(tmp_path / FILE).read_bytes()}).before_call(SPEC, invocation(tmp_path))
    assert "cannot be read" in reason


async def test_a_project_without_hooks_costs_nothing(tmp_path: Path) -> None:
    guard = of_project(set())
    assert await guard.before_call(SPEC, invocation(tmp_path)) == ""
    assert await guard.after_call(SPEC, invocation(tmp_path), Outcome("x")) == Outcome("x")
