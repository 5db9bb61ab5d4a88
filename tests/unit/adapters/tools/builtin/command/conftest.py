from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.adapters.tools.builtin.command.commanding import Bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    command_bench = Bench(tmp_path)
    yield command_bench
    await command_bench.commands.close()
