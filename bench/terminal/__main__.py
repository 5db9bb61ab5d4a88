"""`python -m bench.terminal [--quick] [--no-peers] [--write-docs]`: the terminal app in a pseudo-terminal, beside other
apps. Prints a table; what could not be measured is said below it."""

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.processes import REPOSITORY, Failed, environment, fake_provider, run_command
from bench.report import align, describe_machine, markdown, today
from bench.section import with_section
from bench.startup import TREADLE
from bench.terminal import own
from bench.terminal.peers import PEERS, ROUNDS, Peer, install, script
from bench.terminal.window import Window
from treadle.testing.fake_openai import FakeOpenAI
from treadle.testing.fake_responses import FakeResponses

Figures = dict[str, float]
LABELS = {
    "version_s": ("`--version`, s", 3, 0.06),
    "help_s": ("`--help`, s", 3, 0.06),
    "paint_s": ("first frame, s", 3, 0.4),
    "paint_cpu_s": ("CPU until the first frame, s", 2, 0.5),
    "idle_cpu": ("CPU of the idle app, % of one core", 2, 0.2),
    "ready_s": ("ready for a message, s", 3, None),
    "run10_s": (f"headless run with {ROUNDS} tool rounds, s", 2, None),
    "run10_cpu_s": ("CPU of that run, s", 2, None),
    "run10_mb": ("memory of that run, MB", 0, None),
    "echo_ms": ("key to echo while 200 chunks/s stream in, median, ms", 1, 16),
    "echo_p95_ms": ("the same, p95, ms", 1, 50),
    "echo_p99_ms": ("the same, p99, ms", 1, 50),
    "stream_kb_s": ("written to the terminal while 100 chunks/s stream in, 120 by 40, KB/s", 1, 15),
    "cpu_streaming": ("CPU while 200 chunks/s stream in, of one core", 2, None),
    "long_chat_s": ("a chat of 10,000 events: time until its end is visible, s", 2, None),
    "long_chat_mb": ("memory with that chat, MB", 0, 150),
}
PEERS_FOLDER = REPOSITORY / "bench" / ".venvs" / "terminal"


class Bench:
    def __init__(self, folder: Path, repeats: int) -> None:
        self._folder = folder
        self._repeats = repeats
        self.missing: list[str] = []
        self.figures: dict[str, Figures] = {}

    def tried(self, name: str, what: str, measure: Callable[[], Figures]) -> None:
        print(f"{name}: {what}", flush=True)
        try:
            self.figures.setdefault(name, {}).update(measure())
        except Failed as error:
            self.missing.append(f"{name}, {what}: {error}")

    def treadle(self, url: str, keys: int) -> None:
        place = own.Place(self._folder, url)
        self.tried("Treadle", "command line", lambda: self._commands(TREADLE, place.project, place.settings))
        self.tried("Treadle", "first frame", lambda: own.first_paint(place, self._repeats))
        self.tried("Treadle", "idle", lambda: own.idle(place, 5.0 if self._repeats == 1 else 60.0))
        self.tried("Treadle", "painting", lambda: own.painting(place, 5.0 if self._repeats == 1 else 20.0))
        self.tried("Treadle", "typing", lambda: own.typing(place, keys))
        self.tried("Treadle", "a long chat", lambda: own.memory(place))
        with FakeOpenAI(script(str(place.project))) as fake:
            settings = {**place.settings, "OPENAI_BASE_URL": fake.base_url}
            run = [*TREADLE, "run", "--model", "openai:bench", "Go on."]
            self.tried("Treadle", "headless", lambda: self._headless(run, place.project, settings))

    def peer(self, peer: Peer) -> None:
        try:
            program = install(peer, PEERS_FOLDER / peer.name)
        except Failed as error:
            self.missing.append(str(error))
            return
        folder = self._folder / peer.name
        project, home = folder / "project", folder / "home"
        project.mkdir(parents=True)
        home.mkdir()
        for number in range(ROUNDS):
            (project / f"file-{number}.txt").write_text(f"file {number}\n")
        fake = (FakeResponses if peer.responses else FakeOpenAI)(script(str(project)))
        with fake:
            settings = {"HOME": str(home), "PWD": str(project), "LANG": "C.UTF-8", **peer.settings(home, fake.base_url)}
            self.tried(peer.name, "command line", lambda: self._commands([str(program)], project, settings))
            self.tried(peer.name, "first frame", lambda: self._paint(program, peer, project, settings))
            if peer.headless:
                run = [str(program), *peer.headless]
                self.tried(peer.name, "headless", lambda: self._headless(run, project, settings))
                if (asked := len(fake.requests)) <= ROUNDS:
                    self.missing.append(f"{peer.name}, headless: only {asked} requests in all, so no {ROUNDS} rounds")
            else:
                self.missing.append(f"{peer.name}, headless with tools: it calls no tools")

    def _commands(self, program: Sequence[str], cwd: Path, settings: Mapping[str, str]) -> Figures:
        return {
            f"{name}_s": self._wall([*program, f"--{name}"], cwd, settings)
            for name in ("version", "help")
        }  # fmt: skip

    def _wall(self, command: Sequence[str], cwd: Path, settings: Mapping[str, str]) -> float:
        return statistics.median([run_command(command, cwd, settings).wall_s for _ in range(self._repeats + 1)][1:])

    def _paint(self, program: Path, peer: Peer, cwd: Path, settings: Mapping[str, str]) -> Figures:
        times = []
        for _ in range(self._repeats + 1):
            window = Window([str(program)], cwd, environment(settings))
            try:
                times.append(window.wait(peer.word, 30.0) - window.began)
            finally:
                window.close()
        return {"paint_s": statistics.median(times[1:])}

    def _headless(self, command: Sequence[str], cwd: Path, settings: Mapping[str, str]) -> Figures:
        spent = [run_command(command, cwd, settings) for _ in range(self._repeats + 1)][1:]
        return {
            "run10_s": statistics.median(each.wall_s for each in spent),
            "run10_cpu_s": statistics.median(each.cpu_s for each in spent),
            "run10_mb": statistics.median(each.memory_mb for each in spent),
        }


def table(figures: Mapping[str, Figures]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [("figure", *figures, "target", "reached")]
    for key, (label, digits, target) in LABELS.items():
        cells = [f"{each[key]:.{digits}f}" if key in each else "-" for each in figures.values()]
        value = figures.get("Treadle", {}).get(key)
        mark = "" if target is None or value is None else "yes" if value <= target else "no"
        rows.append((label, *cells, f"≤ {target:g}" if target else "", mark))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.terminal", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run: few repetitions, no peers")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--write-docs", action="store_true", help="into docs/performance.md")
    options = parser.parse_args(arguments)
    machine = describe_machine()
    folder = Path(tempfile.mkdtemp(prefix="treadle-bench-", dir="/var/tmp")).resolve()
    bench = Bench(folder, 1 if options.quick else 10)
    try:
        with fake_provider() as url:
            bench.treadle(url, 20 if options.quick else 500)
        for peer in () if options.quick or options.no_peers else PEERS:
            bench.peer(peer)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(align(table(bench.figures)))
    for each in bench.missing:
        print(f"not measured: {each}")
    if options.write_docs:
        busy = ", busy with other work: wall-clock times are too high" if machine.is_busy else ""
        where = f"{machine.cpu}, {machine.cores} cores, {machine.system}, {machine.python}"
        head = f"Measured on {today()}: {where}, load average {machine.load} before the run{busy}.\n\n"
        missing = "".join(f"- Not measured: {each}.\n" for each in bench.missing)
        page = REPOSITORY / "docs" / "performance.md"
        text = f"{head}{markdown(table(bench.figures))}\n\n{missing}"
        page.write_text(with_section(page.read_text(), "terminal", text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
