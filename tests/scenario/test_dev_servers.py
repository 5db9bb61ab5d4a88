"""Real programs in the background: a dev server that reloads, a watcher, an installer, a program on a terminal (T-05,
W-10, S-19)."""

import asyncio
import json
import shutil
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from scripts.dev_servers import place
from tests.scenario.kit import of, play
from tests.scenario.test_job_views import Scene, begin, check, list_changed_paths, results, wait_for_output
from tests.unit.adapters.tools.builtin.command.viewing import sandbox_with_views
from treadle import Agent
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.ports.commands import Allowance
from treadle.protocol import events as e

SERVER = """
import sys, threading
from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpResponse
from django.urls import path
from django.utils import autoreload
import page

watches = threading.Event()  # the server answers before it knows the files: an edit in between would not be seen

class Reloader(autoreload.StatReloader):
    def snapshot_files(self):
        yield from super().snapshot_files()
        watches.set()

autoreload.StatReloader = Reloader
settings.configure(DEBUG=True, ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="none", INSTALLED_APPS=[])
urlpatterns = [path("", lambda request: HttpResponse(page.TEXT if watches.is_set() else ""))]
execute_from_command_line(sys.argv)
"""


class DevScene(Scene):
    def agent(self, *steps: object) -> Agent:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        model = ScriptedModel([*steps], follow="calls")  # type: ignore[list-item]
        new_agent = Agent(home / "chats.db", model=model, home=home, allowance=Allowance(visible=(str(place()),)))
        self.agents.append(new_agent)
        return new_agent


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[DevScene]:
    sandbox_with_views()
    new_scene = DevScene(tmp_path)
    yield new_scene
    await new_scene.close()


@pytest.fixture
def packages() -> str:
    if not (place() / "installed").exists():
        pytest.skip("`make conformance` installs the dev servers that this needs")
    return f"PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONPATH={place()}"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def wait_until_served(port: int, expected_text: str) -> None:
    def text() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as page:
                return str(page.read().decode())
        except (urllib.error.URLError, OSError):
            return ""

    async with asyncio.timeout(60):
        while await asyncio.to_thread(text) != expected_text:  # noqa: ASYNC110 - a fact of another process
            await asyncio.sleep(0.1)


@pytest.mark.thorough(one_of=8)
async def test_a_dev_server_reloads_what_the_model_edits(scene: DevScene, packages: str) -> None:
    (scene.project / "server.py").write_text(SERVER)
    (scene.project / "page.py").write_text('TEXT = "first"\n')
    port = free_port()
    command = f"{packages} python3 server.py runserver 127.0.0.1:{port}"
    chat, _ = await scene.play(begin(command, live=True), Say("It serves."), mode="autopilot", network=True)
    await wait_until_served(port, "first")
    edit = Call("write_file", path="page.py", content='TEXT = "the second one"\n')
    await scene.again(chat, Call("read_file", path="page.py"), edit, Say("Edited."))
    await wait_until_served(port, "the second one")
    _, events = await scene.again(chat, Call("stop_command", handle="1.0"), Say("Stopped."))
    assert list_changed_paths(events) == []


@pytest.mark.thorough(one_of=8)
async def test_a_watcher_sees_edits(scene: DevScene, packages: str) -> None:
    (scene.project / "src").mkdir()
    (scene.project / "src/a.txt").write_text("first\n")
    command = f"{packages} python3 -m watchfiles 'cat src/a.txt' src"
    chat, _ = await scene.play(begin(command, live=True), Say("It watches."))
    await wait_for_output(chat, "first")
    [job] = await chat.jobs()
    async with asyncio.timeout(60):  # the watcher runs the command before it watches
        while (await job.tail()).text.count("first") < 2:
            (scene.project / "src/b.txt").touch()
            await asyncio.sleep(0.2)
    edit = Call("edit_file", path="src/a.txt", old_text="first", new_text="second")
    await scene.again(chat, Call("read_file", path="src/a.txt"), edit, Say("Edited."))
    await wait_for_output(chat, "second")


@pytest.mark.thorough(one_of=8)
async def test_packages_are_installed_in_the_background(scene: DevScene) -> None:
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    (scene.project / "left").mkdir()
    (scene.project / "left/package.json").write_text(json.dumps({"name": "left", "version": "1.0.0"}))
    package = {"name": "app", "version": "1.0.0", "dependencies": {"left": "file:./left"}}
    (scene.project / "package.json").write_text(json.dumps(package))
    (scene.project / ".gitignore").write_text("node_modules/\n")
    install = begin("npm install --offline --no-audit --no-fund")
    chat, events = await scene.play(install, check(wait_s=120), check(wait_s=120), Say("Installed."), mode="autopilot")
    assert any(
        "package-lock.json, which is sensitive" in request.reason for request in of(events, e.PermissionRequested)
    )
    assert not (scene.project / "package-lock.json").exists()
    events = await play(chat.approve(*await chat.actions()))
    assert "exit 0" in results(events)[0].result
    assert (scene.project / "package-lock.json").exists()
    assert (scene.project / "node_modules/left").is_symlink()


@pytest.mark.thorough(one_of=8)
async def test_a_program_on_a_terminal_changes_files_through_its_view(scene: DevScene) -> None:
    program = begin("python3 -q", pty=True)
    chat, _ = await scene.play(program, Say("It runs."), mode="autopilot")
    await wait_for_output(chat, ">>>")
    [job] = await chat.jobs()
    await job.send("file = open('made', 'w'); file.write('made'); file.close(); print('do' + 'ne')")
    await wait_for_output(chat, "done")
    assert not (scene.project / "made").exists()
    await job.send("exit()")
    _, events = await scene.again(chat, check(wait_s=60), check(wait_s=60), Say("Ended."))
    assert list_changed_paths(events) == [["made"]]
    assert (scene.project / "made").read_text() == "made"
    await play(chat.send("Fine."))
