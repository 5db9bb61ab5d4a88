"""Collecting what is kept for undoing, from the command line."""

import os
import time
from pathlib import Path

import pytest

from tests.scenario.command_line import CommandLine
from treadle.adapters.workspace.history.content_store import ContentStore

pytestmark = pytest.mark.thorough(one_of=8)

WRITE = '[[turn]]\ncall = [{ name = "write_file", args = { path = "a", content = "new" } }]\n[[turn]]\ntext = "Done."\n'


def old(images: ContentStore, data: bytes) -> None:
    digest = images.put(data)
    file = images.folder / "objects" / digest[:2] / digest
    os.utime(file, (time.time() - 2 * 86_400,) * 2)


def test_what_nobody_needs_is_told_and_removed(cli: CommandLine) -> None:
    assert cli("gc", "--json").lines == [
        {
            "images": 0,
            "bytes": 0,
            "kept_images": 0,
            "kept_bytes": 0,
            "trees": 0,
            "captures": 0,
            "decisions": 0,
            "commands": 0,
            "worlds": 0,
            "dry_run": False,
        }
    ]
    cli("run", "Write.", "--model", cli.script(WRITE))
    images = ContentStore(cli.home / "snapshots")
    old(images, b"nobody's " * 1000)
    dry_run = cli("gc", "--dry-run")
    assert dry_run.out == "would be removed: 1 kept file (9.0 kB)\n"
    assert cli("gc").out == "removed: 1 kept file (9.0 kB)\n"
    assert cli("gc").out == "removed: 0 kept files (0 bytes)\n"
    assert cli("gc", "--older-than", "-1").code == 2
    assert cli("fsck").code == 0


def test_a_run_collects_once_a_day(cli: CommandLine) -> None:
    images = ContentStore(cli.home / "snapshots")
    old(images, b"nobody's")
    cli("run", "Write.", "--model", cli.script(WRITE))
    assert len(list(images.iterate_objects())) >= 1  # the clock was set
    stamp = cli.home / "snapshots" / "collected"
    os.utime(stamp, (time.time() - 2 * 86_400,) * 2)
    assert cli("run", "Hello.", "--model", cli.script('[[turn]]\ntext = "Hello."\n')).code == 0
    assert b"nobody's" not in {images.read(image.digest) for image in images.iterate_objects()}


def test_fsck_looks_at_what_is_kept(cli: CommandLine) -> None:
    cli("run", "Write.", "--model", cli.script(WRITE))
    images = ContentStore(cli.home / "snapshots")
    digest = images.put(b"whole")
    file = images.folder / "objects" / digest[:2] / digest
    file.chmod(0o600)
    file.write_bytes(b"broken")
    fsck_result = cli("fsck")
    assert (fsck_result.code, "found: image: the stored file" in fsck_result.out) == (1, True)
    assert cli("fsck", "--repair").code == 0
    assert cli("fsck").code == 0


MANY = """
[[turn]]
call = [{ name = "run_command", args = { command = "for n in $(seq 250); do echo new > f$n; done" } }]
[[turn]]
text = "Done."
"""


@pytest.mark.thorough(one_of=8)
def test_very_many_changes_move_with_their_chat(cli: CommandLine, tmp_path: Path) -> None:  # D-06, D-08, W-01
    for number in range(1, 251):
        (cli.project / f"f{number}").write_text(f"old {number}\n")
    cli("run", "Make them new.", "--model", cli.script(MANY), "--auto-approve-commands")
    exported = cli("export", "last")
    (changes,) = exported.of("workspace.files_changed")
    assert changes["total"] == 250
    assert changes["manifest"] in {digest for line in exported.lines for digest in line.get("blobs", {})}
    elsewhere = {"TREADLE_HOME": str(tmp_path / "elsewhere")}
    assert cli("run", "Write.", "--model", cli.script(WRITE), env=elsewhere).code == 0
    assert cli("import", "-", input=exported.out, env=elsewhere).code == 0
    assert cli("gc", env=elsewhere).code == 0
    checked = cli("fsck", env=elsewhere)
    assert (checked.code, checked.out) == (0, ""), "what it changed elsewhere is not missed here"


@pytest.mark.thorough(one_of=8)
def test_a_lost_list_of_changes_stops_neither_gc_nor_fsck(cli: CommandLine) -> None:  # D-06
    cli("run", "Make them new.", "--model", cli.script(MANY), "--auto-approve-commands")
    (changes,) = cli("export", "last").of("workspace.files_changed")
    (cli.home / "blobs" / changes["manifest"][:2] / changes["manifest"]).unlink()
    chat = cli("chats", "--json").lines[0]["chat"]
    cli("run", "Write.", "--model", cli.script(WRITE))
    assert cli("gc").code == 0
    checked = cli("fsck")
    assert checked.code == 1
    assert checked.out == f"found: blob: blob {changes['manifest']} is missing ({chat} seq {changed_seq(cli, chat)})\n"
    undone = cli("undo", chat, "--yes")
    assert undone.code == 1
    assert "the list of the 250 files" in undone.err


def changed_seq(cli: CommandLine, chat: str) -> int:
    return next(e["seq"] for e in cli("export", chat).lines if e["type"] == "workspace.files_changed")
