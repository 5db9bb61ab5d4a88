"""`python -m bench [names…]`: measure, print the tables, and keep the results in bench/results/latest.json."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.adapters import Comparisons, compare, comparisons_table
from bench.contest import CONTESTANTS, SCENARIOS, Contestant, Scenario
from bench.environments import python_of
from bench.measure import Session
from bench.processes import REPOSITORY, Failed, fake_provider, fake_streams
from bench.providers import ADAPTERS
from bench.report import Outcome, align, describe_machine, figures_table, ratios_table, today, write_page

HERE = Path(__file__).parent
TEMPLATE = HERE / "performance.template.md"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    names = options.names
    some = ADAPTERS in names or any(each.name in names for each in SCENARIOS)
    scenarios = [each for each in SCENARIOS if each.name in names or not some]
    contestants = [each for each in CONTESTANTS if each.name in names] or [
        each for each in CONTESTANTS if not (options.quick and each.kind == "peer")
    ]
    machine = describe_machine()
    if machine.is_busy:
        print(
            f"the machine is busy (load {machine.load} on {machine.cores} cores): times by the clock will be too high"
        )
        if options.write_docs:
            print("the page is for figures of a quiet machine; nothing was measured", file=sys.stderr)
            return 1
    with fake_provider() as url:
        session = Session(url, options.quick, _say)
        _measure(session, scenarios, contestants)
    adapters: Comparisons = {}
    if ADAPTERS in names or not names:
        with fake_streams() as url:
            adapters = compare(url, options.quick, _say, session.failures)
    outcome = Outcome(today(), options.quick, machine, session.results, adapters, session.failures)
    _save(outcome, options.json)
    _print(outcome)
    if options.write_docs:
        write_page(outcome, TEMPLATE, REPOSITORY / "docs")
    return 1 if any(not failure.startswith("skipped") for failure in session.failures) else 0


def _say(line: str) -> None:
    print(line, flush=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    known = [*(each.name for each in SCENARIOS), ADAPTERS, *(each.name for each in CONTESTANTS)]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"scenarios and contestants; all by default: {', '.join(known)}")
    parser.add_argument("--quick", action="store_true", help="a smoke run: smaller numbers, no peers")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "latest.json", metavar="FILE")
    parser.add_argument("--write-docs", action="store_true", help="write docs/performance.md and its picture")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"no scenario or contestant is called {', '.join(unknown)}; there are {', '.join(known)}")
    return options


def _measure(session: Session, scenarios: Sequence[Scenario], contestants: Sequence[Contestant]) -> None:
    """Scenario by scenario, so that contestants that are compared run close together in time."""
    pythons: dict[str, Path] = {}
    for contestant in contestants if scenarios else ():
        try:
            pythons[contestant.name] = python_of(contestant)
        except Failed as error:
            session.failures.append(f"skipped: {error}")
            print(f"skipped: {error}")
    for scenario in scenarios:
        for contestant in contestants:
            if contestant.name in pythons and (contestant.kind == "treadle" or not scenario.only_treadle):
                session.measure(scenario, contestant, pythons[contestant.name])


def _save(outcome: Outcome, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(outcome)))


def _print(outcome: Outcome) -> None:
    machine = outcome.machine
    print(f"\n{machine.cpu}, {machine.cores} cores, {machine.python}, load {machine.load} before the run\n")
    if outcome.results:
        print(align(figures_table(outcome.results)), end="\n\n")
        ratios = ratios_table(outcome.results)
        print(align(ratios) if len(ratios) > 1 else "no ratios: Treadle and another were not measured together")
    if outcome.adapters:
        print("\nCPU of an adapter per chunk, beside the vendor's SDK\n")
        print(align(comparisons_table(outcome.adapters)))
    for failure in outcome.failures:
        print(f"not measured: {failure}")


if __name__ == "__main__":
    sys.exit(main())
