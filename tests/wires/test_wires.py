"""Every case of every server is played against its adapter over a real connection (M-01 to M-11)."""

import asyncio

import pytest

from tests.wires.case import BY_HAND, Case, all_cases, check, play

CASES = all_cases()


@pytest.mark.parametrize(("model", "case"), [pytest.param(model, case, id=case.name) for model, case in CASES])
def test_case(model: str, case: Case) -> None:
    check(case, asyncio.run(play(model, case)))


def test_names_are_unique_and_sources_are_public() -> None:
    names = [case.name for _, case in CASES]
    assert sorted(set(names)) == sorted(names)
    assert all(case.source == BY_HAND or case.source.startswith("https://") for _, case in CASES)
    assert not any(case.see and case.source != BY_HAND for _, case in CASES)


def test_each_case_expects_something() -> None:
    assert all(case.answer or case.error for _, case in CASES)
