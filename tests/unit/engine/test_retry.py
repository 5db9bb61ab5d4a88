"""How long to wait before a model call is made again (M-11)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.engine.silence_timeout import RETRIES, delay
from treadle.errors import ModelError, ModelErrorKind

CHANCE = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(("failures", "seconds"), [(0, 2), (1, 4), (2, 8), (3, 16), (4, 30)])
def test_it_doubles_up_to_the_cap(failures: int, seconds: float) -> None:
    assert delay(ModelError("network", "x"), failures, 0.5) == seconds


@given(CHANCE, st.integers(0, RETRIES - 1))
def test_jitter_is_a_quarter(chance: float, failures: int) -> None:
    middle = min(2.0 * 2**failures, 30)
    delay_s = delay(ModelError("overloaded", "x"), failures, chance)
    assert delay_s is not None
    assert 0.75 * middle <= delay_s <= min(1.25 * middle, 30)


def test_jitter_does_not_leave_the_cap() -> None:
    assert delay(ModelError("overloaded", "x"), 4, 0.999) == 30
    assert delay(ModelError("overloaded", "x"), 4, 0.0) == 24


def test_five_retries_and_no_more() -> None:
    assert delay(ModelError("network", "x"), RETRIES - 1, 0.5) is not None
    assert delay(ModelError("network", "x"), RETRIES, 0.5) is None


@pytest.mark.parametrize(("retry_after", "waited"), [(0.0, 0.0), (60.0, 60.0), (120.0, 120.0), (121.0, None)])
def test_the_provider_is_obeyed_within_reason(retry_after: float, waited: float | None) -> None:
    assert delay(ModelError("rate_limit", "x", retry_after=retry_after), 0, 0.5) == waited


@pytest.mark.parametrize("kind", ["auth", "quota", "context_limit", "bad_request", "answer_limit"])
def test_what_asking_again_cannot_help_is_not_asked_again(kind: ModelErrorKind) -> None:
    assert delay(ModelError(kind, "x"), 0, 0.5) is None


def test_waits_for_a_provider_that_is_down_are_limited() -> None:  # M-11
    down = ModelError("overloaded", "x", status=503)
    assert (delay(down, 3, 0.5, 2.0, 16.0), delay(down, 3, 0.5, 2.0, 15.9)) == (16, None)
    assert delay(ModelError("overloaded", "x", retry_after=30.0), 0, 0.5, 2.0, 20.0) is None
    assert delay(ModelError("rate_limit", "x", retry_after=30.0), 0, 0.5, 2.0, 20.0) == 30


def test_a_refused_connection_is_tried_once_more() -> None:
    refused = ModelError("network", "x", unreachable=True)
    assert (delay(refused, 0, 0.5), delay(refused, 1, 0.5)) == (2, None)
