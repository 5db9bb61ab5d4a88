"""A project beside a canary that nothing may read or write."""

from pathlib import Path

import pytest

from treadle.adapters.workspace.paths.resolve import open_beneath
from treadle.adapters.workspace.root import Root

SECRET = b"outside"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project beside a canary that nothing may read or write."""
    (tmp_path / "canary").mkdir()
    (tmp_path / "canary" / "secret").write_bytes(SECRET)
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.txt").write_bytes(b"inside\n")
    return root


@pytest.fixture(params=["openat2", "walk"])
def root(project: Path, request: pytest.FixtureRequest):
    """Everything holds by both ways of keeping a path inside."""
    if request.param == "openat2" and open_beneath() is None:
        pytest.skip("the kernel has no openat2")
    yield Root(str(project), openat2=request.param == "openat2")
    canary = project.parent / "canary"
    assert [p.name for p in canary.iterdir()] == ["secret"]
    assert (canary / "secret").read_bytes() == SECRET
