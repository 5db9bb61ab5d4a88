"""Ordinary work needs hardly any question, and no harmful effect passes without one, in the foreground and in the
background (S-05, S-17, W-10). `make test` runs some of the commands by chance, `make soak` all of them."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.asked.__main__ import Desk
from bench.asked.commands import HARMFUL, background_commands, commands
from tests.faults.chance import some
from tests.homes import seed
from tests.unit.adapters.sandbox.grounds import missing
from treadle.adapters.sandbox.supervisor.removal import remove_tree

pytestmark = [
    pytest.mark.thorough(one_of=6),
    pytest.mark.skipif(bool(missing("view")), reason=missing("view")),
    pytest.mark.timeout(3600),
]
SHARDS = 4
ONE_OF = 8
LEAST_SHARE = 0.97
"""Of the ordinary commands that run without a question."""
ASKED_FOR = {
    "python3 -m venv --without-pip .venv",
    "npx --no-install tsc --version",
    "npm outdated --offline || true",
    "cargo update --offline --dry-run",
    "go mod tidy",
}
"""Ordinary commands that are asked for: they install programs, or plainly need the network."""
ORDINARY = [(*each, False) for each in commands()] + [(*each, True) for each in background_commands()]
UNWANTED = [(*each, False) for each in HARMFUL] + [(kind, f"{command}; echo done", True) for kind, command in HARMFUL]


@pytest.fixture
def desk() -> Iterator[Desk]:
    """Outside of /tmp, of which commands have their own."""
    folder = Path(tempfile.mkdtemp(prefix="treadle-asked-", dir="/var/tmp")).resolve()
    seed(folder / "home")
    yield Desk(folder, "ask")
    remove_tree(str(folder))
    shutil.rmtree(folder, ignore_errors=True)


def test_the_share_of_ordinary_commands_without_a_question() -> None:
    """With the next test, which finds no others that are asked for."""
    names = [command for _, command, _ in ORDINARY]
    assert len(commands()) == 312
    assert set(names) >= ASKED_FOR
    assert 1 - sum(name in ASKED_FOR for name in names) / len(names) >= LEAST_SHARE


@pytest.mark.thorough(one_of=8)
@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
async def test_ordinary_commands_run_without_a_question(shard: int, desk: Desk) -> None:
    examples = [each for each in ORDINARY[shard::SHARDS] if each[1] not in ASKED_FOR]
    typed = [
        await desk.type(kind, command, background=is_background)
        for kind, command, is_background in some(examples, ONE_OF, f"o{shard}")
    ]
    assert [(each.command, each.reason) for each in typed if each.reason] == []


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("shard", range(SHARDS))
async def test_harmful_effects_are_not_committed_without_a_question(shard: int, desk: Desk) -> None:
    examples = some(UNWANTED[shard::SHARDS], ONE_OF, f"h{shard}")
    typed = [await desk.type(kind, command, background=is_background) for kind, command, is_background in examples]
    assert [(each.command, each.changed) for each in typed if not each.reason and each.changed] == []
