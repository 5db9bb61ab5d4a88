"""A sync that was begun ahead says when it failed: the system says so once (W-02)."""

import errno
import os
from pathlib import Path

import pytest

from treadle.adapters.workspace.paths import durable
from treadle.adapters.workspace.paths.durable import SyncAhead
from treadle.adapters.workspace.paths.entries import LIST, hold_fd


def test_what_fails_beside_is_said_at_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_place: str | int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(durable, "sync_all", fail)
    with hold_fd(os.open(tmp_path, LIST)) as folder:
        sync = SyncAhead(folder)
        with pytest.raises(OSError, match="Input/output"):
            sync.check()


def test_a_sync_ahead_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with hold_fd(os.open(tmp_path, LIST)) as folder:
        SyncAhead(folder).check()
