"""`python -m bench.dev_server [--rounds N] [--before SRC]`: how soon a dev server listens that a model starts in the
background, on a view and live, beside the same command on the bare project; and how long a command in the foreground
takes, with `--before` also by the sources of an earlier version (the folder `src` of another checkout). The ways take
turns, so that a moment's load weighs on all of them alike. The server is Django's `runserver` if
`python -m scripts.dev_servers` has installed it, else Python's `http.server`. It tells the moment at which it listens,
because its network is not ours."""

import argparse
import asyncio
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from scripts.dev_servers import place

LISTENS = re.compile(r"listens (\d+)")
SERVER = """
import http.server, time
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
print("listens", time.time_ns(), flush=True)
server.serve_forever()
"""
DJANGO = """
import os, sys, time
sys.path.insert(0, "packages")
terminal, sys.stdout, sys.stderr = sys.stdout, open(os.devnull, "w"), open(os.devnull, "w")
from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.servers.basehttp import WSGIServer

settings.configure(DEBUG=True, ROOT_URLCONF="serve", SECRET_KEY="bench", INSTALLED_APPS=["django.contrib.contenttypes"])
urlpatterns = []
activate = WSGIServer.server_activate


def tell(server):
    activate(server)
    print("listens", time.time_ns(), file=terminal, flush=True)


WSGIServer.server_activate = tell
execute_from_command_line([sys.argv[0], "runserver", "--skip-checks", "127.0.0.1:0"])
"""
COMMANDS = ("true", "ls -la", "echo line >> notes.md", "git status --short")
BACKGROUND = {"view": {"background": True}, "live": {"background": True, "live": True}}


def has_django() -> bool:
    return (place() / "django").is_dir()


def make_project(folder: Path) -> Path:
    project = folder / "project"
    for number in range(300):
        file = project / f"d{number // 50}" / f"f{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{number}\n" * 20)
    (project / "serve.py").write_text(DJANGO if has_django() else SERVER)
    (project / ".gitignore").write_text("__pycache__/\npackages/\n")
    if has_django():
        shutil.copytree(place(), project / "packages")
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], cwd=project, check=True)
    return project


def start_plainly(project: Path) -> float:
    """Seconds until the server listens on the bare project."""
    began = time.time_ns()
    line = ["/bin/bash", "-c", f"{sys.executable} -B serve.py"]
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with subprocess.Popen(
        line, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        match = next(filter(None, (LISTENS.search(each.decode()) for each in process.stdout)))
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), 9)
        process.kill()
    return (int(match[1]) - began) / 1e9


async def start_by_model(project: Path, home: Path, arguments: dict[str, bool]) -> float:
    """Seconds from the start of the call until the server listens."""
    from treadle import Agent, ChatOptions
    from treadle.adapters.models.scripted import Call, Say, ScriptedModel
    from treadle.adapters.stores.memory import MemoryStore
    from treadle.protocol import events as e

    start = Call("run_command", command=f"{sys.executable} -B serve.py", **arguments)
    check = Call("check_command", handle="1.0", wait_s=30)
    model = ScriptedModel([start, check, Call("stop_command", handle="1.0"), Say("Done.")])
    options = ChatOptions(mode="ask", interactive=False, summarize=False, verify=False, root=str(project))
    async with Agent(MemoryStore(), model=model, home=home, options=options) as agent:
        events = [event async for event in agent.chat().send("Go.")]
    began = next(event.time_ms for event in events if isinstance(event.data, e.ExecutionStart))
    results = "".join(event.data.result for event in events if isinstance(event.data, e.ExecutionComplete))
    match = LISTENS.search(results)
    if match is None:
        sys.exit(f"the server did not start: {results}")
    return int(match[1]) / 1e9 - began / 1e3


async def time_commands(project: Path, home: Path, rounds: int) -> list[float]:
    """Milliseconds of each round of foreground commands, from the first call to the last result."""
    from treadle import Agent, ChatOptions
    from treadle.adapters.models.scripted import Call, Say, ScriptedModel
    from treadle.adapters.stores.memory import MemoryStore

    calls = [Call("run_command", command=each) for each in COMMANDS]
    options = ChatOptions(mode="ask", interactive=False, summarize=False, verify=False, root=str(project))
    spent: list[float] = []
    for _ in range(rounds + 1):
        model = ScriptedModel([*calls, Say("Done.")])
        async with Agent(MemoryStore(), model=model, home=home, options=options) as agent:
            began = time.perf_counter()
            async for _event in agent.chat().send("Go."):
                pass
            spent.append((time.perf_counter() - began) * 1e3 / len(calls))
    return spent[1:]


def measure_version(sources: str, project: Path, home: Path, rounds: int) -> list[float]:
    """The same as `time_commands`, by a process with these sources."""
    root = str(Path(__file__).parents[1])
    line = [sys.executable, "-m", "bench.dev_server", "--commands", str(project), str(home), "--rounds", str(rounds)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([sources, root])}
    ended = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    spent: list[float] = json.loads(ended.stdout)
    return spent


def report(title: str, figures: dict[str, list[float]], unit: str) -> None:
    print(f"{title:34}{'least':>10}{'median':>10}   ratios, {unit}")
    first = next(iter(figures.values()))
    for name, values in figures.items():
        least, median = min(values), statistics.median(values)
        ratios = f"{least / min(first):8.2f}{median / statistics.median(first):8.2f}"
        print(f"{name:34}{least:10.3f}{median:10.3f}{ratios}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.dev_server", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--before", metavar="SRC", help="the sources of an earlier version")
    parser.add_argument("--commands", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.commands:
        project, home = options.commands
        print(json.dumps(asyncio.run(time_commands(project, home, options.rounds))))
        return 0
    folder = Path(tempfile.mkdtemp(prefix="treadle-bench-", dir="/var/tmp")).resolve()
    try:
        project, home = make_project(folder), folder / "home"
        started: dict[str, list[float]] = {"bare project": [], **{name: [] for name in BACKGROUND}}
        for number in range(options.rounds + 1):
            figures = {"bare project": start_plainly(project)}
            for name, extra in BACKGROUND.items():
                figures[name] = asyncio.run(start_by_model(project, home, extra))
            for name, seconds in figures.items():
                started[name] += [seconds] if number else []  # the first round fills the caches
        server = "Django runserver" if has_django() else "http.server"
        report(f"{server} listens after", started, "s")
        versions = {"before": options.before} if options.before else {}
        versions["now"] = str(Path(__file__).parents[1] / "src")
        spent: dict[str, list[float]] = {name: [] for name in versions}
        for _ in range(options.rounds):
            for name, sources in versions.items():
                spent[name] += measure_version(sources, project, folder / f"home-{name}", 3)
        report("a foreground command takes", spent, "ms")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
