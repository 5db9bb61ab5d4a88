"""Runs the scenarios and collects their figures. Knows processes and parameters, no presentation."""

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench import startup
from bench.contest import Contestant, Parameters, Scenario
from bench.processes import Failed, Unsound, run_contestant

Figures = dict[str, float]
Results = dict[str, dict[str, float]]
"""By figure, then by contestant."""


class Session:
    """One run of the benchmark against one server."""

    def __init__(self, url: str, quick: bool, say: Callable[[str], None]) -> None:
        self._url = url
        self._quick = quick
        self._say = say
        self.results: Results = {}
        self.failures: list[str] = []

    def measure(self, scenario: Scenario, contestant: Contestant, python: Path) -> None:
        """Measure several times where that is cheap, and keep the median of each figure."""
        parameters = scenario.quick if self._quick else scenario.full
        runs = 1 if self._quick or contestant.kind == "peer" else scenario.processes
        self._say(f"{scenario.name}: {contestant.title}")
        try:
            figures = self._several(runs, scenario.name, parameters, contestant, python)
        except Failed as error:
            self.failures.append(f"{contestant.title}: {error}")
            self._say(f"  {error}")
            return
        for key in figures[0]:
            self.results.setdefault(key, {})[contestant.name] = statistics.median(each[key] for each in figures)

    def _several(
        self, runs: int, name: str, parameters: Parameters, contestant: Contestant, python: Path
    ) -> list[Figures]:
        """What the sound ones of so many runs brought; if none was, why not."""
        sound: list[Figures] = []
        for number in range(runs):
            try:
                sound.append(self._once(name, parameters, contestant, python))
            except Unsound:
                if number == runs - 1 and not sound:
                    raise
        return sound

    def _once(self, name: str, parameters: Parameters, contestant: Contestant, python: Path) -> Figures:
        with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
            if name == "start":
                return startup.start(contestant, python, Path(folder), self._url, parameters["repeats"])
            if name == "commands":
                return startup.commands(Path(folder), parameters["repeats"])
            if name == "headless":
                return startup.headless(Path(folder), self._url, parameters["repeats"])
            figures: Figures = {}
            for part in self._parts(name, parameters, contestant, Path(folder)):
                figures |= run_contestant(python, contestant.file, *part)
                if name == "rounds":
                    figures = share_rounds(figures, durable=bool(part[1]["durable"]))
            if name == "paced":
                require_single_reads(figures)
            return figures

    def _parts(
        self, name: str, parameters: Parameters, contestant: Contestant, folder: Path
    ) -> Iterator[tuple[str, Mapping[str, object]]]:
        """The processes that a scenario takes, one after the other."""
        setting = {"url": self._url, "folder": str(folder), "durable": contestant.stores, **parameters}
        if name == "rounds":
            yield name, {**setting, "durable": False}
            if contestant.journals:
                yield name, {**setting, "durable": True}
        elif name == "resume":
            yield "log", {**setting, "durable": True}
            yield name, {**setting, "durable": True}
        else:
            yield name, setting


def require_single_reads(figures: Figures) -> None:
    """Refuse a paced figure whose chunks came several at a time, unless the contestant itself was too slow for them:
    then its figure is a lower bound, and fair to compare with."""
    if figures["paced_reads"] < 0.9 and figures["paced_busy"] < 0.9:
        raise Unsound(
            f"the machine was too busy for chunks to arrive one by one ({figures['paced_reads']:.2f} reads a chunk); "
            "run paced again when it is quiet"
        )


def share_rounds(figures: Figures, *, durable: bool) -> Figures:
    """The cost of durability is what a round costs more with it than without; of a step, its share in that."""
    if not durable:
        return {"round_ms": figures["round_ms"], "plain_round_ms": figures["round_ms"]}
    durable_ms = figures["round_ms"] - figures["plain_round_ms"]
    steps = figures.get("round_commits")
    return {**figures, "durable_ms": durable_ms, **({"step_ms": durable_ms / steps} if steps else {})}
