"""Places that are held while commands run: made once, removed by the last, and never somebody else's."""

from pathlib import Path

import pytest

from treadle.adapters.sandbox.launch.hold import PENDING, Holder


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


def test_the_last_holder_removes_it(tmp_path: Path, notes: Path) -> None:
    place = tmp_path / "hooks"
    first, second = Holder(str(notes)), Holder(str(notes))
    first.hold("a", str(place), None)
    second.hold("a", str(place), None)
    first.release()
    assert place.is_dir()
    Holder(str(notes)).sweep()
    assert place.is_dir()
    second.release()
    assert not place.exists()
    assert list(notes.iterdir()) == []


def test_a_file_has_its_content(tmp_path: Path, notes: Path) -> None:
    place = tmp_path / "commondir"
    holder = Holder(str(notes))
    holder.hold("a", str(place), b".\n")
    assert place.read_bytes() == b".\n"
    holder.release()
    assert not place.exists()


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_somebody_else_made_stays(tmp_path: Path, notes: Path, kind: str) -> None:
    place = tmp_path / "place"
    holder = Holder(str(notes))
    if kind == "folder":
        place.mkdir()
    else:
        place.write_bytes(b"")
    holder.hold("a", str(place), None)
    holder.release()
    assert place.exists()


def test_what_became_somebody_elses_stays(tmp_path: Path, notes: Path) -> None:
    folder, file = tmp_path / "hooks", tmp_path / "config"
    holder = Holder(str(notes))
    holder.hold("a", str(folder), None)
    holder.hold("b", str(file), b"")
    (folder / "pre-commit").write_text("mine")
    file.write_text("mine")
    holder.release()
    assert (folder / "pre-commit").exists()
    assert file.read_text() == "mine"
    assert list(notes.iterdir()) == []


def test_a_holder_that_was_killed_at_any_moment_is_cleaned_up_after(tmp_path: Path, notes: Path) -> None:
    place = tmp_path / "hooks"
    (notes / "a").write_text("")  # before it noted anything
    Holder(str(notes)).sweep()
    (notes / "a").write_text(f"{PENDING}\n{place}")  # before it made anything
    Holder(str(notes)).sweep()
    place.mkdir()
    (notes / "a").write_text(f"{PENDING}\n{place}")  # before it noted what it made
    Holder(str(notes)).sweep()
    assert not place.exists()
    assert list(notes.iterdir()) == []
