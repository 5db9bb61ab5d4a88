"""Fault 26: every way out of a sandbox is closed, as root and as another user; and each of them is open without one, so
that a closed one is the sandbox's doing."""

import sys
from pathlib import Path

import pytest

from tests.unit.adapters.sandbox.grounds import NOBODY, can_run, grounds, missing
from treadle.adapters.sandbox.launch import escapes
from treadle.adapters.sandbox.probe import has_views, probe
from treadle.adapters.sandbox.trial_folders import ESCAPES, LevelReport

pytestmark = [
    pytest.mark.thorough(one_of=4),
    pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap and Landlock are Linux's own"),
]

USERS = [pytest.param(None, id="own-user"), pytest.param(NOBODY, id="nobody")]
UNDONE = {"create_protected", "change_protected", "move_protected"}
"""Changes that Landlock cannot refuse: they are put back when the command has ended."""
NEEDS_PRIVILEGES = {
    "remount": ("unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "."),
    "make_device": ("mknod", "disk", "b", "7", "0"),
}
"""And how to find out whether root has them: that of a container may not."""
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
KERNEL_MAY_REFUSE = {"type_into_terminal", "use_io_uring", "new_namespace", "read_keyring", "attribute_outside"} | {
    "write_kernel"
}
"""By settings of the machine, by what its file system can do, or because only root could."""


@pytest.fixture(scope="module", params=USERS)
def user(request: pytest.FixtureRequest) -> int | None:
    uid: int | None = request.param
    return uid


def report(level: str, user: int | None) -> LevelReport:
    if reason := missing(level, user):
        pytest.skip(reason)
    with grounds(user) as place:
        level_report = probe(place.sandbox(level), place.folder, place.launcher, user)
    assert level_report.failure == ""
    return level_report


@pytest.fixture(scope="module")
def bubblewrap(user: int | None) -> LevelReport:
    return report("bubblewrap", user)


@pytest.fixture(scope="module")
def landlock(user: int | None) -> LevelReport:
    return report("landlock", user)


@pytest.fixture(scope="module")
def without(user: int | None) -> LevelReport:
    return report("none", user)


NAMES = [each.name for each in ESCAPES]


@pytest.mark.parametrize("name", NAMES)
def test_bubblewrap_refuses(name: str, bubblewrap: LevelReport) -> None:  # S-03, S-14
    verdicts = {each.name: each for each in bubblewrap.tried}
    assert verdicts[name].verdict == "refused", verdicts[name]
    assert bubblewrap.holds


@pytest.mark.parametrize("name", NAMES)
def test_landlock_refuses_or_undoes(name: str, landlock: LevelReport) -> None:  # S-03, S-14
    verdicts = {each.name: each for each in landlock.tried}
    assert verdicts[name].verdict == ("undone" if name in UNDONE else "refused"), verdicts[name]
    assert landlock.holds


@pytest.mark.parametrize("name", NAMES)
def test_without_a_sandbox_it_succeeds(name: str, without: LevelReport, user: int | None) -> None:
    verdicts = {each.name: each for each in without.tried}
    if name in NEEDS_PRIVILEGES:
        succeeds = user is None and can_run(*NEEDS_PRIVILEGES[name])
        assert verdicts[name].verdict == ("allowed" if succeeds else "refused"), verdicts[name]
    elif name in KERNEL_MAY_REFUSE or (name == "trace_process" and YAMA.exists() and YAMA.read_text() != "0\n"):
        assert verdicts[name].verdict in ("allowed", "refused")
    else:
        assert verdicts[name].verdict == "allowed", verdicts[name]
    assert not without.holds
    assert "change a file outside the project" in without.open


def test_every_attempt_is_described_and_made() -> None:
    assert sorted(escapes.ATTEMPTS) == sorted(NAMES)  # the order of the attempts is that of the list of escapes


def test_a_view_leaves_the_project_as_it_was(user: int | None) -> None:  # W-08
    if reason := missing("bubblewrap", user) or missing("view", user):
        pytest.skip(reason)
    with grounds(user) as place:
        assert has_views(place.sandbox("bubblewrap"), place.folder, user)
        assert has_views(place.sandbox("bubblewrap"), place.folder, user, lays=place.launcher)
        assert not has_views(place.sandbox("none"), place.folder, user)
        assert not has_views(place.sandbox("landlock"), place.folder, user)
