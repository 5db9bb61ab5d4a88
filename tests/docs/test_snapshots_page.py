"""What is left out of a snapshot is documented, by name and number."""

import re
from pathlib import Path

from treadle.adapters.workspace.history import trees
from treadle.diff.changes import CACHES

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "snapshots.md").read_text(encoding="utf-8")


def names(beginning: str) -> set[str]:
    (paragraph,) = [part for part in PAGE.split("\n\n") if part.startswith(beginning)]
    return set(re.findall(r"`([^`]+)`", paragraph.partition(":")[2]))


def test_every_folder_that_is_left_out_is_named_and_no_other() -> None:
    assert names("Folders that are left out by their name") == CACHES
    assert names("Names that people also give") == trees.GENERATED_IF_IGNORED


def test_the_caps_are_told() -> None:
    assert f"over {trees.FILE_CAP >> 20} MiB each" in PAGE
    assert f"over {trees.SMALL >> 20} MiB, once they have more than {trees.TOTAL_CAP >> 30} GiB" in PAGE
    assert f"over {trees.IGNORED_FILE_CAP >> 20} MiB each, or once" in PAGE
    assert f"more than {trees.IGNORED_TOTAL_CAP >> 20} MiB together" in PAGE
    assert f"more than {trees.DEPTH_CAP} folders deep" in PAGE
