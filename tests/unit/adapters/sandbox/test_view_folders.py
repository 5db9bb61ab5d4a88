"""Folders of views: made with the command, known beforehand, gone with it even if the command changed them (W-08)."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.adapters.sandbox.grounds import NOBODY, becoming, missing
from treadle.adapters.sandbox.launcher import NoSandbox
from treadle.adapters.sandbox.supervisor import folder as names
from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands
from treadle.adapters.sandbox.supervisor.removal import remove_tree
from treadle.adapters.sandbox.trial_folders import can_make_view
from treadle.base.types import CallKey, ChatId
from treadle.ports.commands import CommandSpec
from treadle.ports.sandbox import Confinement, Sandbox

CHAT = ChatId("c_1")


@pytest.fixture
async def commands(tmp_path: Path) -> AsyncIterator[SupervisedCommands]:
    new_commands = SupervisedCommands(tmp_path / "commands")
    yield new_commands
    await new_commands.close()
    assert not await asyncio.to_thread((tmp_path / "commands").exists)


def job(root: Path, command: str = "true", *, view: bool = True) -> CommandSpec:
    return CommandSpec(("/bin/sh", "-c", command), str(root), dict(os.environ), view=str(root) if view else "")


async def test_the_folder_is_there_when_the_command_starts(commands: SupervisedCommands, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(0o2750)
    view = Path(commands.locate_view(CHAT, CallKey("1.0")))
    command = await commands.start(CHAT, CallKey("1.0"), job(root, f"ls {view}; stat -c %a {view}/upper"))
    await command.wait()
    assert command.read(0, 999).data == b"began\nupper\nwork\n2750\n"
    wall, steady = (view / "began").read_text().split()
    assert int(wall) > int(steady) > 0
    plain = await commands.start(CHAT, CallKey("2.0"), job(root, view=False))
    await plain.wait()
    assert not os.path.isdir(commands.locate_view(CHAT, CallKey("2.0")))  # noqa: ASYNC240


async def test_it_goes_with_what_is_known_of_the_command(commands: SupervisedCommands, tmp_path: Path) -> None:
    view = commands.locate_view(CHAT, CallKey("1.0"))
    shut = f"mkdir -p {view}/upper/a/b; touch {view}/upper/a/b/c; chmod 0 {view}/upper/a/b {view}/upper/a {view}/work"
    command = await commands.start(CHAT, CallKey("1.0"), job(tmp_path, shut))
    await command.wait()
    while not command.durable:  # noqa: ASYNC110 - the last that its supervisor writes
        await asyncio.sleep(0.005)
    await commands.forget(CHAT, CallKey("1.0"))
    assert os.listdir(command.folder) == [names.EXIT]
    assert command.present


async def test_attempts_of_an_open_call_are_not_tidied_away(commands: SupervisedCommands, tmp_path: Path) -> None:
    for key in ("1.0~2", "2.0~2"):
        await commands.start(CHAT, CallKey(key), job(tmp_path, "sleep 1000"))
    await commands.tidy(CHAT, [CallKey("1.0")])
    assert await commands.list_running(CHAT) == ["1.0~2"]


async def test_only_the_first_is_told(commands: SupervisedCommands, tmp_path: Path) -> None:
    command = await commands.start(CHAT, CallKey("1.0"), job(tmp_path))
    first_flags = await asyncio.gather(
        *(asyncio.to_thread(command.is_first_token, f"{number}.0") for number in range(8))
    )
    assert sum(first_flags) == 1
    first = f"{first_flags.index(True)}.0"
    assert await asyncio.to_thread(command.is_first_token, first)
    assert not await asyncio.to_thread(command.is_first_token, "9.0")


async def test_what_was_started_before_the_machine_was_is_not_present(
    commands: SupervisedCommands, tmp_path: Path
) -> None:
    command = await commands.start(CHAT, CallKey("1.0"), job(tmp_path))
    await command.wait()
    assert command.present
    _age(Path(command.folder, names.JOB))
    assert not command.present


def _age(job: Path) -> None:
    job.write_bytes(job.read_bytes().replace(names.read_boot_id().encode(), b"0" * len(names.read_boot_id())))


@pytest.mark.parametrize("user", [None, NOBODY])
def test_removing_what_was_shut_and_deep(tmp_path: Path, user: int | None) -> None:
    if user is not None and os.geteuid() != 0:
        pytest.skip("needs root")
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "kept").touch()
    top = tmp_path / "top"
    top.mkdir()
    tmp_path.chmod(0o777)
    if user is not None:
        os.chown(top, user, user)
    pid = os.fork()
    if pid == 0:
        try:
            if becoming(user):
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            _dig(top, outside)
            remove_tree(str(top))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert not top.exists() or user is not None
    assert not top.exists() or os.listdir(top) == []
    assert (outside / "kept").exists()


def _dig(top: Path, outside: Path) -> None:
    here = os.open(top, os.O_RDONLY)
    for _ in range(600):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    (top / "link").symlink_to(outside)
    os.mkfifo(top / "fifo")
    (top / "shut").mkdir()
    (top / "shut" / "file").touch()
    (top / "shut").chmod(0)


class Broken(NoSandbox):
    """Says that it has views, and has none."""

    views = True

    def wrap(self, argv: object, confinement: Confinement, cwd: str) -> list[str]:
        return ["/bin/sh", "-c", "exit 1"]


def test_a_view_is_tried_and_not_believed(tmp_path: Path) -> None:
    from tests.homes import shared_home
    from treadle.adapters.sandbox.choose import choose

    folder = tmp_path / "folder"
    assert not can_make_view(NoSandbox(), str(tmp_path), str(folder))
    broken: Sandbox = Broken()
    assert not can_make_view(broken, str(tmp_path), str(folder))
    if not missing("view"):
        root = tmp_path / "root"
        root.mkdir()
        assert can_make_view(choose(shared_home()).sandbox, str(root), str(folder))
    assert not folder.exists() or os.listdir(folder) == []
