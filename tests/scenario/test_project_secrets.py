"""Secret files of a project are hidden from commands and asked about before a tool reads them (S-18, fault 36)."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.scenario.kit import Stage, of, play, types
from tests.trees import tree
from tests.unit.adapters.sandbox.grounds import missing
from treadle import Chat
from treadle.adapters.models.scripted import Call, Say
from treadle.protocol import events as e

SECRET = "hunter2-is-the-password"
KEY = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\n-----END OPENSSH PRIVATE KEY-----\n"
HIDDEN = {
    ".env": f"DB={SECRET}\n",
    "api/.env.production": f"DB={SECRET}\n",
    "deploy/id_ed25519": KEY,
    "deploy/server.pem": KEY,
    ".netrc": f"machine x password {SECRET}\n",
    ".npmrc": f"//registry/:_authToken={SECRET}\n",
    "credentials.json": f'{{"client_secret": "{SECRET}"}}\n',
}
OPEN = {
    ".env.example": "DB=fill-me-in\n",
    "ca.pem": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
    "deploy/id_ed25519.pub": "ssh-ed25519 AAAA me\n",
    "uv.lock": "version = 1\n",
    "keys.py": "PRIVATE = 1\n",
    "credentials.yml": "provider: vault\n",
}

pytestmark = pytest.mark.skipif(bool(missing("view")), reason=missing("view") or "")


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    from treadle.adapters.stores.sqlite import SqliteStore

    new_stage = Stage(SqliteStore(tmp_path / "home/treadle.db"))
    yield new_stage
    await new_stage.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    for name, text in (HIDDEN | OPEN).items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    (project / ".gitignore").write_text("\n".join(HIDDEN) + "\n")
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "1"]):
        subprocess.run(["git", *words], cwd=project, check=True)
    return project


def chat_of(stage: Stage, root: Path, *steps: object, **options: object) -> Chat:
    agent = stage.agent([*steps, Say("Done.")], builtin=True)  # type: ignore[list-item]
    return agent.chat(root=str(root), **{"mode": "ask", "interactive": True, **options})  # type: ignore[arg-type]


def ran(command: str, **more: object) -> Call:
    return Call("run_command", command=command, **more)


async def texts(chat: Chat) -> list[str]:
    events = await play(chat.send("Go."))
    assert "permission.requested" not in types(events), of(events, e.PermissionRequested)
    return [completion.result or completion.error for completion in of(events, e.ExecutionComplete)]


@pytest.mark.parametrize("mode", ["ask", "autopilot"])
async def test_commands_see_empty_files_and_the_rest_as_it_is(stage: Stage, root: Path, mode: str) -> None:
    old_tree = tree(root)
    everything = "find . -name .git -prune -o -type f -print0 | xargs -0 cat; git status --short; echo end"
    (output,) = await texts(chat_of(stage, root, ran(everything), mode=mode))
    assert SECRET not in output
    for text in OPEN.values():
        assert text.strip() in output
    assert output.index("end") > 0
    assert "M " not in output  # nothing that git tracks was hidden
    assert tree(root) == old_tree


async def test_a_hidden_file_is_no_part_of_a_commands_effect(stage: Stage, root: Path) -> None:
    old_tree = tree(root)
    command = "echo new > new.txt; python3 -c \"open('.e' + 'nv', 'w').write('x')\"; rm -rf api; true"
    chat = chat_of(stage, root, ran(command))
    events = await play(chat.send("Go."))
    (completion,) = of(events, e.ExecutionComplete)
    assert ".env" not in "".join(file.path for change in of(events, e.FilesChanged) for file in change.files)
    assert (root / "new.txt").read_text() == "new\n", completion
    (root / "new.txt").unlink()
    assert tree(root) == old_tree


@pytest.mark.parametrize("command", ["cat .env", "set -a; . ./.env; env", "cd api && cat .env.production"])
async def test_a_command_that_names_one_asks_and_an_approval_shows_it_once(
    stage: Stage, root: Path, command: str
) -> None:
    indirect_read = ran("python3 -c \"print(open('.e' + 'nv').read())\"")
    cwd = {"cwd": "api"} if command.startswith("cd") else {}
    line = command.removeprefix("cd api && ")
    chat = chat_of(stage, root, ran(line, **cwd), indirect_read)
    await play(chat.send("Go."))
    (action,) = await chat.actions()
    assert "may hold secrets" in action.reason
    assert SECRET not in action.text
    events = await play(chat.approve(action))
    first, second = of(events, e.ExecutionComplete)
    assert "DB=" in first.result  # the value itself may be redacted by its name
    assert SECRET not in second.result


async def test_an_approval_to_read_one_does_not_approve_the_effect(stage: Stage, root: Path) -> None:
    (root / "only-copy.txt").write_text("in no commit\n")
    chat = chat_of(stage, root, ran("cat .env; rm only-copy.txt"))
    await play(chat.send("Go."))
    (action,) = await chat.actions()
    assert "may hold secrets" in action.reason
    await play(chat.approve(action))
    assert (root / "only-copy.txt").exists()  # S-16
    (again,) = await chat.actions()
    assert "it removes or overwrites only-copy.txt" in again.reason
    events = await play(chat.approve(again))
    (completion,) = of(events, e.ExecutionComplete)
    assert "DB=" in completion.result
    assert not (root / "only-copy.txt").exists()


async def test_one_approval_is_enough_for_an_edit_with_its_diff(stage: Stage, root: Path) -> None:
    chat = chat_of(stage, root, Call("edit_file", path=".env", old_str="DB=", new_str="URL="))
    await play(chat.send("Go."))
    (action,) = await chat.actions()
    assert "URL=" in action.text
    await play(chat.approve(action))
    assert (root / ".env").read_text() == f"URL={SECRET}\n"


@pytest.mark.thorough(one_of=8)
async def test_one_approval_lets_a_test_suite_read_it(stage: Stage, root: Path) -> None:
    suite = ran("python3 -c \"import sys; sys.exit(not open('.e' + 'nv').read())\"")
    chat = chat_of(stage, root, suite, Call("read_file", path=".env"), suite)
    await play(chat.send("Go."))
    failed = [envelope.data for envelope in await chat.events() if isinstance(envelope.data, e.ExecutionComplete)]
    assert "empty for this command, because they may hold secrets: .env" in failed[0].error
    (action,) = await chat.actions()
    (offer,) = action.offers
    events = await play(chat.approve(action, rule=offer.rule))
    assert [completion.success for completion in of(events, e.ExecutionComplete)] == [True, True]


@pytest.mark.parametrize(
    "call",
    [
        Call("read_file", path=".env"),
        Call("read_file", path="link"),
        Call("grep_search", pattern="DB", path=".env"),
        Call("edit_file", path=".env", old_str="DB=hunter3", new_str="DB=x"),
        ran("cat .env"),
    ],
)
async def test_without_a_person_nothing_is_read(stage: Stage, root: Path, call: Call) -> None:
    (root / "link").symlink_to(".env")
    chat = chat_of(stage, root, call, interactive=False)
    (output,) = await texts(chat)
    assert SECRET not in output
    assert "needs a person's approval" in output
    assert "treadle rules add --allow /.env --tool read_file" in output


async def test_a_search_leaves_them_out_and_says_so(stage: Stage, root: Path) -> None:
    (root / "plain.txt").write_text(f"{SECRET[:7]} elsewhere\n")
    (root / ".gitignore").unlink()
    (output,) = await texts(chat_of(stage, root, Call("grep_search", pattern=SECRET[:7])))
    assert "1 match in 1 file" in output
    assert "plain.txt" in output
    assert SECRET not in output
    assert "[not searched, because it may hold secrets: .env]" in output


async def test_what_the_model_wrote_itself_is_not_hidden_from_it(stage: Stage, root: Path) -> None:
    (root / ".env").unlink()
    write = Call("write_file", path=".env", content="DB=local\n")
    chat = chat_of(stage, root, write, ran("cat .env"), auto_approve_sensitive_edits=True)
    _, output = await texts(chat)
    assert "DB=local" in output
