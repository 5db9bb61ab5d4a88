from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.scenario.mcp_servers.kit import Kit


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[Kit]:
    made = Kit(tmp_path)
    yield made
    await made.close()
