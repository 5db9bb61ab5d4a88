"""The first ten minutes in a real terminal, from an empty home (U-10). Each journey asserts what is on the screen."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forked import SOURCES
from tests.scenario.command_line import NO_LOCAL_SERVER
from tests.scenario.tmux import Terminal, needs_tmux
from treadle.testing.fake_http import FakeResponse, Headers, ThreadedServer, make_json_answer
from treadle.testing.fake_model import Reply
from treadle.testing.fake_ollama import FakeOllama
from treadle.testing.fake_openai import FakeOpenAI

pytestmark = [pytest.mark.thorough(one_of=8), needs_tmux]
EDIT = ("edit_file", {"path": "a.py", "old_str": "1", "new_str": "2"})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.py").write_text("x = 1\n")
    return folder


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A terminal of a user who has nothing yet: no settings, no keys, no chats."""
    user = tmp_path / "user"
    user.mkdir()
    inherited = {name: os.environ[name] for name in ("PATH", "TMPDIR")}
    environment = {**inherited, "HOME": str(user), "PYTHONPATH": SOURCES, **NO_LOCAL_SERVER}
    new_terminal = Terminal(tmp_path, environment, 120, 34)
    yield new_terminal
    new_terminal.close()


def say(terminal: Terminal, text: str) -> None:
    terminal.type(text)
    terminal.wait(text)
    terminal.keys("Enter")


def enter(terminal: Terminal, question: str, text: str) -> None:
    """Answer a prompt of the dialog."""
    terminal.wait(question)
    if text:
        terminal.type(text)
        terminal.wait(text)
    terminal.keys("Enter")


def leave(terminal: Terminal) -> None:
    terminal.quit()
    terminal.wait("ended with 0")


def other_program(method: str, path: str, headers: Headers, body: bytes) -> FakeResponse:
    return make_json_answer(200, {"status": "a development server"})


@pytest.mark.thorough(one_of=8)
def test_first_run_without_a_key(terminal: Terminal, project: Path) -> None:
    with FakeOpenAI([Reply(text="Hello from the server.")]) as fake, ThreadedServer(other_program) as page:
        terminal.environment["LLAMACPP_BASE_URL"] = f"{page.url}/v1"
        terminal.start(cwd=project)
        screen_text = terminal.wait(
            "Welcome to Treadle", "enter a key", "OpenAI", "GitHub Copilot", "try the demo model"
        )
        assert "llama.cpp" not in screen_text  # a program on its port is no model server
        assert "treadle models fetch qwen-coder" in screen_text
        terminal.type("address")
        screen_text = terminal.wait(
            "enter the address of a server", absent_text="try the demo model"
        )  # typing filters all rows
        assert "GitHub Copilot" not in screen_text
        terminal.keys("Enter")
        enter(terminal, "The base URL of the server", fake.url)
        enter(terminal, "Its key", "")
        terminal.wait("custom:fake")
        terminal.keys("Enter")
        terminal.wait("custom:fake", absent_text="Welcome to Treadle")
        say(terminal, "Good morning.")
        terminal.wait("Hello from the server.")
        leave(terminal)


@pytest.mark.thorough(one_of=8)
def test_the_demo_model_needs_nothing(terminal: Terminal, project: Path) -> None:
    terminal.start(cwd=project)
    terminal.wait("Welcome to Treadle")
    terminal.type("demo")
    terminal.wait("try the demo model", absent_text="enter the address")
    terminal.keys("Enter")
    terminal.wait("a small project with a failing test", absent_text="Welcome to Treadle")
    say(terminal, "Fix it.")
    terminal.wait("I'll find out what fails first")
    assert list(project.iterdir()) == [project / "a.py"]


@pytest.mark.thorough(one_of=8)
def test_with_an_openai_key_it_starts_at_once_and_remembers_the_model(terminal: Terminal, project: Path) -> None:
    with FakeOpenAI([Reply(text="Hello from OpenAI."), Reply(text="Hello again.")]) as fake:
        terminal.environment |= {"OPENAI_API_KEY": "sk-0123456789abcdef", "OPENAI_BASE_URL": fake.base_url}
        terminal.start(cwd=project)
        screen_text = terminal.wait("using openai:fake", "OPENAI_API_KEY")
        assert "Welcome" not in screen_text
        say(terminal, "Good morning.")
        terminal.wait("Hello from OpenAI.")
        leave(terminal)
        terminal.close()
        terminal.environment["ANTHROPIC_API_KEY"] = "sk-ant-0123456789abcdef"
        terminal.start(cwd=project)
        terminal.wait("using openai:fake", "used last")
        leave(terminal)
        terminal.close()
        terminal.start("run", "Once more.", cwd=project)
        terminal.wait("using openai:fake (used last)", "Hello from OpenAI.", "ended with 0")


def test_with_a_local_server(terminal: Terminal, project: Path) -> None:
    with FakeOllama([Reply(text="Hello from this machine.")], models=["qwen3-coder:30b"]) as ollama:
        terminal.environment["OLLAMA_HOST"] = ollama.url
        terminal.start(cwd=project)
        terminal.wait("using ollama:qwen3-coder:30b", "Ollama")
        say(terminal, "Good morning.")
        terminal.wait("Hello from this machine.")
        terminal.keys("Escape")
        leave(terminal)


@pytest.mark.thorough(one_of=8)
def test_review_and_undo_a_change(terminal: Terminal, project: Path) -> None:
    with FakeOpenAI([Reply(calls=[EDIT]), Reply(text="All done.")]) as fake:
        terminal.environment |= {"OPENAI_API_KEY": "sk-0123456789abcdef", "OPENAI_BASE_URL": fake.base_url}
        terminal.start(cwd=project)
        terminal.wait("using openai:fake")
        say(terminal, "Set x to two.")
        terminal.wait("All done.", "edit_file a.py", "done · 2 turns")
        assert (project / "a.py").read_text() == "x = 2\n"
        say(terminal, "/review")
        terminal.wait("Changes", "M a.py", "1 + x = 2")
        terminal.keys("Escape")
        terminal.wait("All done.", absent_text="Changes")
        say(terminal, "/undo")
        terminal.wait("undone: 1 change")
        assert (project / "a.py").read_text() == "x = 1\n"
        leave(terminal)


@pytest.mark.thorough(one_of=8)
def test_kill_and_continue(terminal: Terminal, project: Path) -> None:
    """Killed while the model writes its second answer: `--continue` goes on, and the edit is not made twice."""
    replies = [Reply(calls=[EDIT]), Reply(text="It is done. " * 200, chunk_size=4, every_s=0.05), Reply(text="unused")]
    with FakeOpenAI(replies) as fake:
        terminal.environment |= {"OPENAI_API_KEY": "sk-0123456789abcdef", "OPENAI_BASE_URL": fake.base_url}
        terminal.start(cwd=project)
        terminal.wait("using openai:fake")
        say(terminal, "Set x to two.")
        terminal.wait("edit_file a.py", "It is done.")
        os.kill(terminal.pid(), signal.SIGKILL)
        terminal.wait("ended with 137")
        terminal.close()
        terminal.start("--continue", cwd=project)
        terminal.wait("Set x to two.", "edit_file a.py", "Enter")  # the run is cut off, and Enter goes on with it
        terminal.keys("Enter")
        terminal.until(lambda _: len(fake.requests) == 3, "the model is asked again")
        terminal.wait("It is done.")
        assert (project / "a.py").read_text() == "x = 2\n"
        terminal.keys("Escape")
        leave(terminal)
