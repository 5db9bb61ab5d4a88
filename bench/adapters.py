"""Measures our adapters beside the vendors' SDKs: the same bytes to both, each in a process of its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bench.contest import Contestant, Parameters
from bench.environments import python_of, versions
from bench.figures import show
from bench.measure import Results
from bench.processes import Failed, run_contestant
from bench.providers import ADAPTERS, FULL, OURS, PROVIDERS, QUICK, TARGET, TIMES, Provider
from bench.streams import chunk_bytes

Comparisons = Mapping[str, Results]
"""By provider."""


def compare(url: str, quick: bool, say: Callable[[str], None], failures: list[str]) -> Comparisons:
    """The figures of every adapter and, unless it must be quick, of its SDK. Adds to `failures` what could not be
    measured."""
    pythons: dict[str, Path] = {}
    for contestant in dict.fromkeys([OURS] if quick else [OURS, *(each.sdk for each in PROVIDERS)]):
        try:
            pythons[contestant.name] = python_of(contestant)
        except Failed as error:
            failures.append(f"skipped: {error}")
            say(failures[-1])
    comparisons: dict[str, Results] = {}
    for provider in PROVIDERS:
        results = comparisons[provider.name] = {}
        measured = [each for each in (OURS, provider.sdk) if each.name in pythons]
        try:
            # In turn, so that both meet the same weather.
            for contestant in measured * (1 if quick else TIMES):
                say(f"{ADAPTERS}: {provider.title}, {contestant.title}")
                for name, parameters in _parts(provider, url, QUICK if quick else FULL):
                    _keep_least(
                        results, contestant, run_contestant(pythons[contestant.name], contestant.file, name, parameters)
                    )
        except Failed as error:
            failures.append(f"{provider.title}: {error}")
            say(failures[-1])
    return comparisons


def _parts(provider: Provider, url: str, parameters: Parameters) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Many chunks in a read, and one in each."""
    setting = {"url": f"{url}/{provider.name}{provider.suffix}", "folder": "", "durable": False, **parameters}
    yield "stream", setting
    yield "alone", {**setting, "read_bytes": chunk_bytes(provider.name, parameters["big"])}


def _keep_least(results: Results, contestant: Contestant, figures: Mapping[str, float]) -> None:
    """Other work on the machine can only add to what something costs."""
    for key, value in figures.items():
        kept = results.setdefault(key, {})
        kept[contestant.name] = min(value, kept.get(contestant.name, value))


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
