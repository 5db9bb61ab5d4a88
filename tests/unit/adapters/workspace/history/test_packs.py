"""Small objects that are kept together: never less than each alone would be (W-01)."""

from pathlib import Path

from tests.trees import measure_size
from treadle.adapters.workspace.history.content_store import FULL, SMALL, ContentStore


def test_small_objects_share_a_file(tmp_path: Path) -> None:
    images = ContentStore(tmp_path)
    data = [b"%d" % number * 100 for number in range(50)] + [b"x" * (SMALL + 1)]
    with images.open_batch() as batch:
        digests = [batch.put(each) for each in data]
    files = {path.stat().st_ino for path in (tmp_path / "objects").rglob("*") if path.is_file()}
    assert len(files) == 2
    assert [images.read(digest) for digest in digests] == data
    assert list(images.verify()) == []
    assert measure_size(images) < sum(map(len, data)) * 2
    images.drop(digests[0])
    assert not images.has_object(digests[0])
    assert images.read(digests[1]) == data[1]
    images.put(data[0])
    assert images.read(digests[0]) == data[0]


def test_a_damaged_pack_is_not_used(tmp_path: Path) -> None:
    images = ContentStore(tmp_path)
    with images.open_batch() as batch:
        digests = [batch.put(b"%d" % number) for number in range(8)]
    place = next(path for path in (tmp_path / "objects").rglob(digests[7]))
    place.write_bytes(place.read_bytes()[:-1] + b"?")
    assert list(images.verify()) == [digests[7]]
    place.write_bytes(b"nothing of all that")
    assert len(list(images.verify())) == 8


def test_many_objects_take_several_packs(tmp_path: Path) -> None:
    images = ContentStore(tmp_path)
    with images.open_batch() as batch:
        digests = [batch.put(b"%05d" % number * 4000) for number in range(FULL // 20_000 + 10)]
    files = {path.stat().st_ino for path in (tmp_path / "objects").rglob("*") if path.is_file()}
    assert len(files) == 2
    assert all(images.read(digest)[:5] == b"%05d" % number for number, digest in enumerate(digests))


def test_a_file_that_looks_like_a_pack_is_a_file(tmp_path: Path) -> None:
    images = ContentStore(tmp_path)
    with images.open_batch() as batch:
        digest, *_ = [batch.put(b"%d" % number) for number in range(8)]
    pack = next((tmp_path / "objects").rglob(digest)).read_bytes()
    assert images.read(images.put(pack)) == pack
