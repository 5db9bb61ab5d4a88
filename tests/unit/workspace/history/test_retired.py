"""Old files that are kept themselves, and small ones that are kept together: never anything that somebody could still
change, and never less than a copy would be (W-01)."""

import hashlib
import os
import threading
from pathlib import Path

import pytest

from treadle.workspace.history.content_store import ContentStore
from treadle.workspace.history.packs import FULL, SMALL
from treadle.workspace.history.retired import counts
from treadle.workspace.history.store_batch import StoreBatch

OLD = b"as it was\n"
DIGEST = hashlib.sha256(OLD).hexdigest()


class Project:
    """One file, and a store beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "file"
        self.file.write_bytes(OLD)
        self.file.chmod(0o644)
        self.images = ContentStore(folder / "home" / "snapshots")
        self.image = folder / "home" / "snapshots" / "objects" / DIGEST[:2] / DIGEST

    def retire(self, batch: StoreBatch) -> str:
        fd, folder = os.open(self.file, os.O_RDONLY), os.open(self.folder, os.O_RDONLY)
        try:
            return batch.retire(fd, folder, "file")
        finally:
            os.close(fd)
            os.close(folder)

    def replace(self) -> None:
        (self.folder / "new").write_bytes(b"new\n")
        (self.folder / "new").rename(self.file)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    with made.images.batch() as batch:  # whether there are leases here
        made.retire(batch)
        if not made.image.exists():
            pytest.skip("no leases on this file system")
    made.image.unlink()
    return made


def test_an_old_file_is_kept_itself(project: Project) -> None:
    inode = project.file.stat().st_ino
    with project.images.batch() as batch:
        assert project.retire(batch) == DIGEST
        assert not counts(project.image.stat())
        project.replace()
    found = project.image.stat()
    assert (found.st_ino, found.st_nlink) == (inode, 1)
    assert counts(found)
    assert project.images.read(DIGEST) == OLD
    assert project.images.sweep((), 60).count == 0  # it was used just now, whatever its own time was


def test_one_that_stays_is_copied(project: Project) -> None:
    with project.images.batch() as batch:
        project.retire(batch)
    assert project.image.stat().st_ino != project.file.stat().st_ino
    project.file.write_bytes(b"written in place")
    assert project.images.read(DIGEST) == OLD


def test_one_that_somebody_writes_to_is_copied(project: Project) -> None:
    with project.file.open("ab") as log, project.images.batch() as batch:
        project.retire(batch)
        project.replace()
        batch.finish()
        log.write(b"more")
    assert project.images.read(DIGEST) == OLD


def test_one_with_another_name_is_copied(project: Project) -> None:
    with project.images.batch() as batch:
        project.retire(batch)
        os.link(project.file, project.folder / "other")  # by somebody else, in this very moment
        project.replace()
    (project.folder / "other").write_bytes(b"written in place")
    assert project.images.read(DIGEST) == OLD


def test_who_would_write_waits_and_then_does_not_change_what_is_kept(project: Project) -> None:
    opening = threading.Event()

    def write() -> None:
        opening.set()
        fd = os.open(project.file, os.O_WRONLY)  # waits for the lease, or finds the new file
        os.write(fd, b"XX")
        os.close(fd)

    with project.images.batch() as batch:
        project.retire(batch)
        with pytest.raises(BlockingIOError):
            os.open(project.file, os.O_WRONLY | os.O_NONBLOCK)
        writer = threading.Thread(target=write)
        writer.start()
        opening.wait()
        project.replace()
    writer.join()
    assert project.images.read(DIGEST) == OLD


def test_what_a_dead_process_left_does_not_count(project: Project) -> None:
    project.image.parent.mkdir(parents=True, exist_ok=True)
    os.link(project.file, project.image)
    project.file.write_bytes(b"written in place")
    assert list(project.images.verify()) == [DIGEST]
    assert project.images.put(OLD) == DIGEST
    assert project.images.read(DIGEST) == OLD
    assert project.file.read_bytes() == b"written in place"


# -- packs ------------------------------------------------------------------------------------------------------------


def test_small_objects_share_a_file(tmp_path: Path) -> None:
    images = ContentStore(tmp_path)
    data = [b"%d" % number * 100 for number in range(50)] + [b"x" * (SMALL + 1)]
    with images.batch() as batch:
        digests = [batch.put(each) for each in data]
    files = {path.stat().st_ino for path in (tmp_path / "objects").rglob("*") if path.is_file()}
    assert len(files) == 2
    assert [images.read(digest) for digest in digests] == data
    assert list(images.verify()) == []
    assert images.size() < sum(map(len, data)) * 2
    images.drop(digests[0])
    assert not images.has(digests[0])
    assert images.read(digests[1]) == data[1]
    images.put(data[0])
    assert images.read(digests[0]) == data[0]


def test_a_damaged_pack_is_not_used(tmp_path: Path) -> None:
    images = ContentStore(tmp_path)
    with images.batch() as batch:
        digests = [batch.put(b"%d" % number) for number in range(8)]
    place = next(path for path in (tmp_path / "objects").rglob(digests[7]))
    place.write_bytes(place.read_bytes()[:-1] + b"?")
    assert list(images.verify()) == [digests[7]]
    place.write_bytes(b"nothing of all that")
    assert len(list(images.verify())) == 8


def test_many_objects_take_several_packs(tmp_path: Path) -> None:
    images = ContentStore(tmp_path)
    with images.batch() as batch:
        digests = [batch.put(b"%05d" % number * 4000) for number in range(FULL // 20_000 + 10)]
    files = {path.stat().st_ino for path in (tmp_path / "objects").rglob("*") if path.is_file()}
    assert len(files) == 2
    assert all(images.read(digest)[:5] == b"%05d" % number for number, digest in enumerate(digests))


def test_a_file_that_looks_like_a_pack_is_a_file(tmp_path: Path) -> None:
    images = ContentStore(tmp_path)
    with images.batch() as batch:
        digest, *_ = [batch.put(b"%d" % number) for number in range(8)]
    pack = next((tmp_path / "objects").rglob(digest)).read_bytes()
    assert images.read(images.put(pack)) == pack
