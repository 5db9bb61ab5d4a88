"""Two servers and three workers on one PostgreSQL, killed and paused while chats run: a small trial of what
`python -m bench.reliability` does at length (A-10, D-03, faults 4 and 14)."""

from pathlib import Path

import pytest

from bench.reliability.trial import Trial, run
from tests.homes import seed


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_every_chat_ends_and_nothing_happens_twice(postgres: str, tmp_path: Path) -> None:
    outcome = run(tmp_path, postgres, seed, Trial(chats=6, seconds=4.0, lease_s=2.0, seed=1, concurrency=4))
    assert outcome.found.problems == []
    assert outcome.found.ended == {"done": 6}
    assert outcome.done["killed"] > 0
