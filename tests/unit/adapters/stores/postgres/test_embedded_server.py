"""The server that tests start."""

import os
import shutil
import tempfile
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import pytest

from tests.postgres import installed_package, run_embedded_server


@pytest.mark.thorough(one_of=8)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts the server as another user")
async def test_programs_in_a_folder_that_only_root_may_enter() -> None:  # D-05
    package = installed_package()
    with tempfile.TemporaryDirectory(prefix="treadle-closed-") as closed_folder:
        assert os.stat(closed_folder).st_mode & 0o077 == 0
        copy = Path(closed_folder, package.name)
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("*.a", "include"), symlinks=True)
        shutil.copytree(package.with_name(f"{package.name}.libs"), copy.with_name(f"{package.name}.libs"))
        with run_embedded_server(package=copy) as server:
            connection = await asyncpg.connect(server.url())
            try:
                assert await connection.fetchval("SELECT 6 * 7") == 42
            finally:
                await connection.close()
        assert not server.folder.exists()
