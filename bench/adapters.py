"""Measures our adapters beside the vendors' SDKs: the same bytes to both, each in a process of its own."""

from collections.abc import Callable, Mapping, Sequence

from bench.contest import Scenario
from bench.environments import python_of, versions
from bench.figures import show
from bench.measure import Results, Session
from bench.processes import Failed
from bench.providers import FULL, OURS, PROVIDERS, QUICK, TARGET, Provider
from bench.streams import chunk_bytes

Comparisons = Mapping[str, Results]
"""By provider."""


def compare(url: str, quick: bool, say: Callable[[str], None], failures: list[str]) -> Comparisons:
    """The figures of every adapter and, unless it must be quick, of its SDK. Adds to `failures` what could not be
    measured."""
    return {each.name: _compare_one(each, url, quick, say, failures) for each in PROVIDERS}


def _compare_one(provider: Provider, url: str, quick: bool, say: Callable[[str], None], failures: list[str]) -> Results:
    session = Session(f"{url}/{provider.name}{provider.suffix}", quick, lambda line: say(f"{provider.title}, {line}"))
    for contestant in (OURS,) if quick else (OURS, provider.sdk):
        try:
            python = python_of(contestant)
        except Failed as error:
            session.failures.append(f"skipped: {error}")
            continue
        for scenario in _scenarios(provider):
            session.measure(scenario, contestant, python)
    failures.extend(failure for failure in session.failures if failure not in failures)
    return session.results


def _scenarios(provider: Provider) -> tuple[Scenario, Scenario]:
    """Many chunks in a read, and one in each."""
    sized = [{**each, "read_bytes": chunk_bytes(provider.name, each["big"])} for each in (FULL, QUICK)]
    return Scenario("stream", FULL, QUICK), Scenario("alone", sized[0], sized[1])


def comparisons_table(comparisons: Comparisons) -> list[Sequence[str]]:
    """A row for each provider and each way in which its chunks arrive."""
    rows: list[Sequence[str]] = [("provider", "chunks", "Treadle, µs", "SDK, µs", "ratio", f"≥ {TARGET:g}")]
    for key, arrival in (("chunk_us", "many in a read"), ("alone_us", "one in a read")):
        for provider in PROVIDERS:
            values = comparisons.get(provider.name, {}).get(key, {})
            ours, theirs = values.get(OURS.name), values.get(provider.sdk.name)
            if ours is not None:
                rows.append((provider.title, arrival, show(ours), *_beside(ours, theirs)))
    return rows


def _beside(ours: float, theirs: float | None) -> Sequence[str]:
    if theirs is None:
        return "-", "-", "-"
    ratio = theirs / ours
    return show(theirs), show(ratio), "yes" if ratio >= TARGET else "no"


def sdk_versions(comparisons: Comparisons) -> str:
    """The SDKs that were measured."""
    named = {
        provider.sdk.name: versions(provider.sdk)
        for provider in PROVIDERS
        for values in comparisons.get(provider.name, {}).values()
        if provider.sdk.name in values
    }
    return ", ".join(named.values())
