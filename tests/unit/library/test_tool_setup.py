"""The surroundings of an Agent's tools: one root for each project, and no files of Treadle's own in sight (S-03)."""

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.homes import seed
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.adapters.workspace.root import Root
from treadle.errors import SandboxError
from treadle.library.tool_setup import ToolSetup
from treadle.ports.sandbox import Confinement, Demand
from treadle.ports.workspace import WorldFiles


def test_a_project_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_paths: list[str] = []

    class Counted(Root):
        def __init__(self, path: str, root_id: str = "", ground: WorldFiles | None = None) -> None:
            opened_paths.append(path)
            super().__init__(path, root_id, ground)

    monkeypatch.setattr("treadle.library.tool_setup.Root", Counted)
    setup = ToolSetup(MemoryStore(), {}, tmp_path / "home")
    root = str(tmp_path)
    for _ in range(3):
        setup.context.workspace_of(root, "")
        setup.context.guarded(root)
        setup.snapshots_of(root, "")
    assert opened_paths == [root]


@pytest.fixture
def folder_outside_tmp() -> Iterator[Path]:
    """Not below /tmp, of which commands have their own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        yield Path(name)


@pytest.mark.parametrize("store_kind", ["memory", "file"])
@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
async def test_kept_files_are_hidden_from_commands(
    store_kind: str, level: Demand, folder_outside_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, project = seed(folder_outside_tmp / "home"), folder_outside_tmp / "project"
    monkeypatch.setattr(tempfile, "tempdir", str(folder_outside_tmp / "tmp"))
    for folder in (project, folder_outside_tmp / "tmp", folder_outside_tmp / "data"):
        folder.mkdir()
    (project / "f").write_text("of this or another chat")
    setup = ToolSetup(
        MemoryStore() if store_kind == "memory" else SqliteStore(folder_outside_tmp / "data/treadle.db"), {}, home
    )
    setup.snapshots_of(str(project), "").capture("c_1/1.0")
    own_folders = [str(folder_outside_tmp / name) for name in ("tmp", "data", "home")]
    assert any(files for folder in own_folders for _, _, files in os.walk(folder))
    try:
        assert setup.context.sandbox_of is not None
        sandbox = setup.context.sandbox_of(level)
    except SandboxError as error:
        pytest.skip(str(error))
    confinement = Confinement(str(project), hidden_paths=setup.context.guarded(str(project)).hidden_paths)
    line = sandbox.wrap(["/usr/bin/find", *own_folders, "-type", "f", "-readable"], confinement, str(project))
    process = await asyncio.to_thread(subprocess.run, line, cwd=project, capture_output=True, text=True)
    assert process.stdout == ""
    await setup.close()
