"""The kernel keeps paths below a directory, or we are told that it cannot."""

import os
from pathlib import Path

import pytest

from treadle.adapters.workspace.paths.resolve import Open, open_beneath


@pytest.fixture
def beneath() -> Open:
    opener = open_beneath()
    if opener is None:
        pytest.skip("the kernel has no openat2")

    def open_again(fd: int, path: str, flags: int) -> int:
        while True:
            try:
                return opener(fd, path, flags)
            except (
                BlockingIOError
            ):  # for `..`, while any process renames or mounts something; `Resolver` then walks itself
                continue

    return open_again


def test_what_stays_below_is_opened_and_what_leaves_is_not(beneath: Open, tmp_path: Path) -> None:  # S-01
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "root" / "in").symlink_to("sub")
    (tmp_path / "root" / "up").symlink_to("../secret")
    (tmp_path / "root" / "abs").symlink_to("/etc")
    (tmp_path / "root" / "magic").symlink_to("/proc/self/root")
    root = os.open(tmp_path / "root", os.O_RDONLY)
    try:
        for path in ("sub", "in", "sub/../sub", "."):
            os.close(beneath(root, path, os.O_RDONLY))
        for path in ("up", "abs", "abs/passwd", "../secret", "sub/../../secret", "/etc/passwd", "magic"):
            with pytest.raises(OSError, match="cross-device"):
                beneath(root, path, os.O_RDONLY)
        with pytest.raises(FileNotFoundError):
            beneath(root, "none", os.O_RDONLY)
    finally:
        os.close(root)


def test_descriptors_do_not_leak_into_other_programs(beneath: Open) -> None:
    fd = os.open("/", os.O_RDONLY)
    try:
        new_fd = beneath(fd, ".", os.O_RDONLY | os.O_CLOEXEC)
        assert not os.get_inheritable(new_fd)
        os.close(new_fd)
    finally:
        os.close(fd)
