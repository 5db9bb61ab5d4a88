"""Bytes kept by their hash: whole or not at all, verified, and swept only when unused (W-01, fault 13)."""

import fcntl
import hashlib
import os
import resource
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.trees import measure_size
from treadle.adapters.workspace.history.content_store import ContentStore, Swept
from treadle.adapters.workspace.paths import durable
from treadle.errors import NotFound, ToolError
from treadle.testing.faults import InjectedFault, faults

LONG_AGO = 1_000_000_000


@pytest.fixture
def images(tmp_path: Path) -> ContentStore:
    return ContentStore(tmp_path / "home" / "snapshots")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file_of(images: ContentStore, digest: str) -> Path:
    return images.folder / "objects" / digest[:2] / digest


def put_path(images: ContentStore, path: Path) -> str:
    fd = os.open(path, os.O_RDONLY)
    try:
        return images.put_file(fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize("size", [0, 1, durable.CHUNK, durable.CHUNK + 1, 3 * durable.CHUNK + 17])
def test_what_is_put_can_be_had(images: ContentStore, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "file").write_bytes(data)
    digest = put_path(images, tmp_path / "file")
    assert digest == sha256(data)
    assert images.read(digest) == data
    assert [(image.digest, image.size) for image in images.iterate_objects()] == [(digest, size)]
    assert measure_size(images) == size
    assert images.list_unfinished_files() == []


def test_holes_stay_holes(images: ContentStore, tmp_path: Path) -> None:
    size = 64 << 20
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(size)
        file.seek(size // 2)
        file.write(b"here")
        file.truncate(size)
    digest = put_path(images, tmp_path / "sparse")
    status = file_of(images, digest).stat()
    assert status.st_size == size
    assert status.st_blocks * 512 < size // 4
    assert images.read(digest)[size // 2 : size // 2 + 4] == b"here"


def test_nobody_else_may_look(images: ContentStore) -> None:
    digest = images.put(b"secret")
    file = file_of(images, digest)
    assert file.stat().st_mode & 0o777 == 0o600
    for folder in (file.parent, file.parent.parent, images.folder, images.folder / "incoming"):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_what_is_not_kept_is_said(images: ContentStore) -> None:
    with pytest.raises(NotFound, match="not kept"):
        images.read(sha256(b"x"))
    assert not images.has_object(sha256(b"x"))


def test_what_is_damaged_is_not_used(images: ContentStore) -> None:
    good, bad = images.put(b"good"), images.put(b"bad")
    file_of(images, bad).write_bytes(b"bda")
    with pytest.raises(ToolError, match="damaged"):
        images.read(bad)
    assert list(images.verify()) == [bad]
    images.drop(bad)
    assert list(images.verify()) == []
    assert images.put(b"bad") == bad
    assert images.read(bad) == b"bad"
    assert images.read(good) == b"good"


def test_too_much_to_read_is_said(images: ContentStore) -> None:
    digest = images.put(b"12345")
    assert images.read(digest, 5) == b"12345"
    with pytest.raises(ToolError, match="at most 4"):
        images.read(digest, 4)


@pytest.mark.parametrize("point", ["snapshot.written", "snapshot.named", "snapshot.kept"])
@pytest.mark.parametrize("count", [3, durable.FEW + 8])
def test_a_failed_batch_leaves_nothing_half_done(images: ContentStore, point: str, count: int) -> None:
    def put() -> list[str]:
        with images.open_batch() as batch:
            return [batch.put(b"%d" % number) for number in range(count)]

    with faults(f"raise@{point}"), pytest.raises(InjectedFault):
        put()
    assert images.list_unfinished_files() == []
    assert list(images.verify()) == []
    assert [images.read(digest) for digest in put()] == [b"%d" % number for number in range(count)]


def test_many_threads_and_the_same_bytes(images: ContentStore) -> None:
    with images.open_batch() as batch, ThreadPoolExecutor(8) as pool:
        digests = set(pool.map(batch.put, [b"%d" % (number % 10) for number in range(200)]))
    assert {image.digest for image in images.iterate_objects()} == digests
    assert len(digests) == 10
    assert images.list_unfinished_files() == []


@pytest.mark.thorough(one_of=8)
def test_a_file_that_changes_while_it_is_kept(images: ContentStore, tmp_path: Path) -> None:
    """The hash is that of what was kept."""
    path = tmp_path / "file"
    path.write_bytes(b"a" * (2 * durable.CHUNK))
    stop = threading.Event()

    def scribble() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            with path.open("r+b") as file:
                file.write(b"%d" % number)

    thread = threading.Thread(target=scribble)
    thread.start()
    try:
        digests = {put_path(images, path) for _ in range(20)}
    finally:
        stop.set()
        thread.join()
    assert list(images.verify()) == []
    assert {image.digest for image in images.iterate_objects()} == digests


# -- sweeping ---------------------------------------------------------------------------------------------------------


def test_a_sweep_takes_what_is_old_and_unneeded(images: ContentStore) -> None:
    old, needed, new = images.put(b"old"), images.put(b"needed"), images.put(b"new")
    for digest in (old, needed):
        os.utime(file_of(images, digest), (LONG_AGO, LONG_AGO))
    assert images.sweep({needed}, 86_400, dry=True) == Swept(1, 3)
    assert images.has_object(old)
    assert images.sweep({needed}, 86_400) == Swept(1, 3)
    assert [images.has_object(digest) for digest in (old, needed, new)] == [False, True, True]


def test_what_is_put_again_is_in_use(images: ContentStore) -> None:
    digest = images.put(b"x")
    os.utime(file_of(images, digest), (LONG_AGO, LONG_AGO))
    images.put(b"x")
    assert images.sweep(set(), 86_400) == Swept()
    assert images.read(digest) == b"x"


def test_a_sweep_waits_for_who_is_about_to_rely_on_something(images: ContentStore) -> None:
    digest = images.put(b"x")
    os.utime(file_of(images, digest), (LONG_AGO, LONG_AGO))
    with images.open_batch() as batch:
        sweeping = threading.Thread(target=images.sweep, args=(set(), 86_400))
        sweeping.start()
        fd = os.open(images.folder / "incoming" / ".lock", os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)
        batch.put(b"x")
    sweeping.join()
    assert images.read(digest) == b"x"


def test_what_was_left_half_written_long_ago_goes(images: ContentStore) -> None:
    images.put(b"x")
    for name in ("old", "new"):
        (images.folder / "incoming" / name).write_bytes(b"half")
    os.utime(images.folder / "incoming" / "old", (LONG_AGO, LONG_AGO))
    images.sweep(set(), 0)
    assert [os.path.basename(path) for path in images.list_unfinished_files()] == ["new"]


# -- when it cannot be kept -------------------------------------------------------------------------------------------


def test_too_many_open_files(images: ContentStore) -> None:
    images.put(b"x")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open("/", os.O_RDONLY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        with pytest.raises(ToolError, match="Too many open files"):
            images.put(b"y")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(lowest)
    assert images.read(images.put(b"y")) == b"y"


FULL = """
import os, subprocess, sys
from pathlib import Path
from treadle.errors import ToolError
from treadle.adapters.workspace.history.content_store import ContentStore
place = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place], check=True)
images = ContentStore(place / "snapshots")
images.put(b"first")
for data in (os.urandom(900_000), os.urandom(900_000)):
    try:
        images.put(data)
        print("kept")
    except ToolError as error:
        print(error)
print(images.list_unfinished_files(), list(images.verify()))
for image in list(images.iterate_objects()):
    if image.size > 5:
        images.drop(image.digest)
print(images.read(images.put(os.urandom(500_000))) != b"")
subprocess.run(["mount", "-o", "remount,ro", place], check=True)
try:
    images.put(b"more")
except ToolError as error:
    print(error)
"""


def test_a_full_disk_and_one_that_cannot_be_written(tmp_path: Path) -> None:
    """Fault 13, on a file system of its own."""
    process = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=False
    )
    if "unshare" in process.stderr or "permission denied" in process.stderr.lower():
        pytest.skip("no file system can be mounted here")
    output_lines = process.stdout.splitlines()
    assert output_lines[0] == "kept", process.stderr
    assert "No space left on device" in output_lines[1]
    assert "nothing was changed" in output_lines[1]
    assert output_lines[2:4] == ["[] []", "True"]
    assert "Read-only file system" in output_lines[4]
