from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.scenario.mcp_servers.kit import PATIENCE_S, Kit
from treadle.adapters.mcp import connection
from treadle.library.mcp_hub import hub


@pytest.fixture(autouse=True)
def patient_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server takes longer to start on a busy machine than the first model call waits for it, which would then be made
    without its tools."""
    monkeypatch.setattr(hub, "WAIT_S", PATIENCE_S)
    monkeypatch.setattr(connection, "CURRENT_S", PATIENCE_S)


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[Kit]:
    new_kit = Kit(tmp_path)
    yield new_kit
    await new_kit.close()
