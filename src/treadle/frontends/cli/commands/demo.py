"""`treadle demo`: shows that a run survives a kill. A real run in a child process is killed with SIGKILL at the worst
moment, when an edit is on disk and its outcome not yet in the log, and resumed. Only the model is a script. It works on
a small project with a failing test; making the fix twice would do harm: `total / n / n` is no mean."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import click

from treadle.adapters.sandbox.supervisor.removal import remove_tree
from treadle.base.process_folders import make_folder_prefix
from treadle.errors import TreadleError
from treadle.frontends.cli.demo_project import RIGHT, SOURCE, WRONG, make_project, test_command, write_script
from treadle.frontends.cli.lazy import asyncio, dialogue, e
from treadle.frontends.cli.terminal import Terminal, is_terminal
from treadle.frontends.presentation.styled import Span, join_spans

PATIENCE_S = 60.0
OWN_MODEL = """\
Use it with your model, in your project:

  export OPENAI_API_KEY=…                     (or ANTHROPIC_API_KEY …; or start Ollama or LM Studio)
  treadle run "Why does the build fail?"
  treadle resume last                         (after a crash, a reboot, a kill -9)
"""

INTRODUCTION = """\
Treadle demo: a project with a failing test, in a temporary folder.
The model is a script, so no key is needed. Everything else is real: the loop, the log, the files,
the commands, and the kill -9."""
QUESTION = """\
  The process is gone, in the middle of edit_file: the file is changed on disk, but the log only
  has the intent. Was the edit made? Made again it would divide twice."""
FIRST_WORDS = (
    "This is the demo: a small project with a failing test, in a temporary folder. The model is a script and needs no "
    "key; everything else is real. Try F2 to see what changed, and /undo; Ctrl-C twice leaves."
)
TASK = "A test fails. Find out why and fix it."


@click.command("demo")
@click.option("--keep", is_flag=True, help="Keep the folder with the project and the log.")
def demo(keep: bool) -> None:
    """See a run killed in the middle and resumed; needs no key.

    A real loop repairs a small project in a temporary folder. Only the model is a script. On a terminal the app opens
    with it first, and the kill is offered when you leave it."""
    folder = Path(tempfile.mkdtemp(prefix="treadle-demo-" if keep else f"{make_folder_prefix()}demo-")).resolve()
    demonstration = Demo(folder, Terminal())
    try:
        if not is_terminal(sys.stdin, sys.stdout) or os.environ.get("TERM") == "dumb" or demonstration.open_app():
            demonstration.play(keep)
    finally:
        demonstration.end_child()
        if not keep:
            remove_tree(str(folder))  # the view of a command leaves a folder without access rights


class Demo:
    def __init__(self, folder: Path, terminal: Terminal) -> None:
        self._folder, self._terminal = folder, terminal
        self._project, self._script = folder / "project", folder / "demo.toml"
        self._watched = sys.stdout.isatty()
        self._child: subprocess.Popen[bytes] | None = None

    def open_app(self) -> bool:
        """Run the app on the same project, with the same script. Return True if the user then wants to see the kill."""
        from treadle.frontends.cli.open_app import AppArguments, run_app

        place = self._folder / "app"
        place.mkdir()
        make_project(place / "project")
        _make_script(place / "demo.toml", watched=True)
        for name in [name for name in os.environ if name.startswith("TREADLE_")]:
            del os.environ[name]
        os.environ["TREADLE_HOME"] = str(place / "home")
        arguments = AppArguments(TASK, model=f"scripted:{place / 'demo.toml'}", mode="ask")
        run_app(arguments, str(place / "project"), FIRST_WORDS)
        question = "See the same run killed with kill -9 in the middle, and resumed? [y]es · [n]o: "
        return asyncio.run(dialogue.ask_yes_or_no(question))

    def play(self, keep: bool) -> None:
        make_project(self._project)
        _make_script(self._script, watched=self._watched)
        self._terminal.write_line(INTRODUCTION)
        self._run_and_kill()
        self._show_command("treadle resume last")
        if (code := self._start(["resume", "last"]).wait()) != 0:
            raise TreadleError(f"the resumed run ended with exit code {code}")
        self._prove()
        self._terminal.write_line()
        self._terminal.write_line(OWN_MODEL)
        if keep:
            home = self._folder / "home"
            self._terminal.write_line(f"Kept: {self._folder}. Look at the log: TREADLE_HOME={home} treadle show last")

    def _run_and_kill(self) -> None:
        self._show_command(f'treadle run "{TASK}" --model scripted:demo.toml --auto-approve-commands')
        model = f"scripted:{self._script}"
        arguments = ["run", TASK, "--model", model, "--root", str(self._project), "--auto-approve-commands"]
        # The edit is held after it was made, so that the kill strikes between the effect and its record.
        child = self._start(arguments, TREADLE_FAULTS=f"delay@tool.edit_after={PATIENCE_S:g}")
        deadline = time.monotonic() + PATIENCE_S
        while RIGHT not in self._read_source():
            if child.poll() is not None or time.monotonic() > deadline:
                raise TreadleError(f"the demo's run ended before its edit (exit code {child.poll()})")
            time.sleep(0.02)
        if self._watched:
            time.sleep(0.6)  # the edit stands there, unfinished
        child.send_signal(signal.SIGKILL)
        child.wait()
        self._terminal.write_line("\n" if self._watched else "")  # below the line that the child left unfinished
        self._terminal.write_line(f"  kill -9 {child.pid}", "bold", "red")
        self._terminal.write_line(QUESTION)

    def _prove(self) -> None:
        """Nothing is claimed that was not looked at: the log, the file, and the project's own tests."""
        from treadle.library.agent import Agent

        async def read_events() -> "list[e.Envelope]":
            async with Agent(self._folder / "home" / "treadle.db") as agent:
                return await agent.chat((await agent.chats(limit=1))[0].summary.chat).events()

        events = asyncio.run(read_events())
        facts = [envelope.data for envelope in events]
        completions = Counter(each.call for each in facts if isinstance(each, e.ExecutionComplete))
        starts = Counter(each.call for each in facts if isinstance(each, e.ExecutionStart))
        edits = sum(isinstance(each, e.ExecutionStart) and each.name == "edit_file" for each in facts)
        tests = subprocess.run(test_command(), shell=True, cwd=self._project, capture_output=True, timeout=PATIENCE_S)
        workers = sorted({envelope.epoch for envelope in events if envelope.epoch})
        has_one_each = starts == completions and set(completions.values()) == {1} and len(workers) > 1
        source = self._read_source()
        is_complete = any(isinstance(each, e.RunEnd) and each.reason == "task_complete" for each in facts)
        checks = {
            f"{len(completions)} calls by {len(workers)} processes, each begun once and with one result": has_one_each,
            "the edit was made once": edits == 1 and source.count(RIGHT) == 1 and WRONG not in source,
            "the run is complete in the log": is_complete,
            f"{test_command()} passes": tests.returncode == 0,
        }
        self._terminal.write_line()
        self._terminal.write_line("Checked in the log and on disk:")
        for text, holds in checks.items():
            mark = Span("✓", ("green",)) if holds else Span("✗", ("red",))
            self._terminal.write_line(join_spans("  ", mark, f" {text}"))
        if not all(checks.values()):
            raise TreadleError("the demo did not keep its promise; please report this")

    def _start(self, arguments: list[str], **environment: str) -> subprocess.Popen[bytes]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("TREADLE_")}
        env |= {"TREADLE_HOME": str(self._folder / "home")} | environment
        self._child = subprocess.Popen([sys.executable, "-m", "treadle", *arguments], env=env, cwd=self._project)
        return self._child

    def end_child(self) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.kill()
            self._child.wait()

    def _read_source(self) -> str:
        return (self._project / SOURCE).read_text(encoding="utf-8")

    def _show_command(self, command: str) -> None:
        self._terminal.write_line()
        self._terminal.write_line(f"$ {command}", "bold", "cyan")


def _make_script(path: Path, *, watched: bool) -> None:
    """Write the script; it speaks as slowly as a model only if someone watches."""
    delay, wait = ("0.02", "0.4") if watched else ("0.0", "0.0")
    write_script(path, "kill.toml", FIXED=json.dumps(RIGHT.strip()), DELAY=delay, WAIT=wait)
