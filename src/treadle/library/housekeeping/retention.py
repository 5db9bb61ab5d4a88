"""How long things are kept, and what a chat is worth to what it refers to."""

import time
from pathlib import Path

import msgspec

from treadle.base.file_system import replace_file
from treadle.library.config import Settings
from treadle.ports.store import Listed

DAY_S = 86_400.0
EVER = float("inf")
_STAMP = "collected"


class Retention(msgspec.Struct, frozen=True):
    days: float = 30.0
    cap: int = 5 * 10**9  # How many bytes of images are kept at most.
    world_days: float = 14.0


class Collected(msgspec.Struct, frozen=True):
    """The numbers of removed items (with a dry run: of items to remove) and of stored items."""

    images: int = 0
    bytes: int = 0
    kept_images: int = 0
    kept_bytes: int = 0
    trees: int = 0
    captures: int = 0
    decisions: int = 0  # Journals of what was settled long ago.
    commands: int = 0  # Folders of commands that ended long ago; that they ran stays known.
    worlds: int = 0  # Worlds of sub-agents and of attempts of races.
    line: float = 0.0
    """The cutoff in seconds since 1970. Images that are referred to only by chats unchanged since then are removed."""


def make_retention(settings: Settings, days: float | None = None) -> Retention:
    snapshot_days, world_days = (settings.snapshot_days, settings.world_days) if days is None else (days, days)
    return Retention(snapshot_days, int(settings.snapshot_cap_gb * 10**9), world_days)


def get_undo_folder(home: Path) -> Path:
    return home / "snapshots"


def compute_worth(listed: Listed) -> float:
    summary = listed.summary
    at_work = listed.leased or summary.runnable or summary.status not in ("idle", "error")
    return EVER if at_work else summary.updated_ms / 1000


class Stamp(msgspec.Struct, frozen=True):
    """How far collecting has come. When it was last done is the time of its file."""

    line: float = 0.0
    """The latest cutoff of any pass (seconds since 1970): images of chats unchanged since then may be gone."""
    done: bool = True  # True if the last pass finished. If False, the next pass continues with `shard` and `goal`.
    shard: str = ""  # The shard at which removal stopped. Empty if removal had not begun.
    goal: float = 0.0  # The cutoff of the unfinished pass.


_stamp_decoder = msgspec.json.Decoder(Stamp)


def get_stamp_path(home: Path) -> Path:
    return get_undo_folder(home) / _STAMP


def is_due(home: Path, every_s: float = DAY_S) -> bool:
    """True if `every_s` seconds have passed since the last pass, or it did not finish. The first call sets the time."""
    stamp = get_stamp_path(home)
    try:
        return time.time() - stamp.stat().st_mtime > every_s or not read_stamp(home).done
    except FileNotFoundError:
        if stamp.parent.is_dir():
            write_stamp(home, Stamp())
        return False


def write_stamp(home: Path, stamp: Stamp) -> None:
    replace_file(str(get_stamp_path(home)), msgspec.json.encode(stamp))


def read_stamp(home: Path) -> Stamp:
    try:
        return _stamp_decoder.decode(get_stamp_path(home).read_bytes())
    except (OSError, msgspec.DecodeError):
        return Stamp()
