"""Places that are held while commands run: made once, removed by the last, and never somebody else's."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.unit.adapters.sandbox.grounds import SLOW_AFTER_START, WAIT_S, WATCHES_SIGNALS, wait_until_reaped
from treadle.adapters.sandbox.launch.hold import PENDING, Holder
from treadle.adapters.sandbox.launcher import Launcher


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


def test_a_signal_as_soon_as_the_command_runs_frees_the_places(tmp_path: Path, notes: Path) -> None:
    place = tmp_path / "hooks"
    line = Launcher().build_line(
        "hold", {"notes": str(notes), "places": [["a", str(place), None]]}, ["/bin/bash", "-c", "echo ready; sleep 60"]
    )
    line[4] = SLOW_AFTER_START + line[4]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert place.is_dir()
        process.terminate()
        assert process.wait(WAIT_S) == -signal.SIGTERM
    assert not place.exists()
    assert list(notes.iterdir()) == []


def test_a_signal_after_the_command_has_ended_goes_nowhere(notes: Path) -> None:
    line = Launcher().build_line(
        "hold", {"notes": str(notes), "places": []}, ["/bin/bash", "-c", "sleep 2 & echo $$; exit 3"]
    )
    line[4] = WATCHES_SIGNALS + line[4]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        wait_until_reaped(int(process.stdout.readline()))
        process.terminate()
        assert process.wait(WAIT_S) == 3
        assert process.stderr.read() == b""
