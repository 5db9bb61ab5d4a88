"""Commands under Landlock and the filter, run for real (S-03, S-14). The ways out are tried in
tests/faults/test_escapes.py."""

import errno
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.adapters.sandbox.grounds import (
    NOBODY,
    SLOW_AFTER_START,
    WAIT_S,
    WATCHES_SIGNALS,
    Grounds,
    becoming,
    grounds,
    missing,
    wait_until_reaped,
)
from treadle.adapters.sandbox.landlock import Landlock
from treadle.adapters.sandbox.launch.protected_paths import LIMIT
from treadle.adapters.sandbox.supervisor.removal import remove_tree
from treadle.base.subprocesses import start_program, terminate
from treadle.errors import SandboxError
from treadle.library.tool_setup import remove_abandoned_folders
from treadle.ports.sandbox import AllHosts, Unwritable

LEVEL = "landlock"


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_writes_reach_the_project_and_exit_codes_come_back(landlock: Grounds) -> None:
    result = landlock.run(LEVEL, "echo hello > new; mkdir a; mv new a/new; cat a/new; exit 7")
    assert (result.returncode, result.stdout, result.stderr) == (7, "hello\n", "")
    assert landlock.run(LEVEL, "kill -9 $$").returncode == -9
    assert landlock.run(LEVEL, "kill -TERM $$").returncode == -15
    argv = landlock.sandbox(LEVEL).wrap(["no-such-program"], landlock.confinement(), str(landlock.root))
    assert subprocess.run(argv, stderr=subprocess.DEVNULL, timeout=WAIT_S, check=False).returncode == 127


def test_modes_times_and_groups_of_the_project_can_be_changed(landlock: Grounds) -> None:
    script = """
        touch a b && mkdir d && ln -s a link && chmod 750 a && chmod +x link && touch -d 2001-02-03T04:05:06Z b
        chmod 700 d && chgrp "$(id -g)" a && cp -p a c && touch -h link && install -m 640 a e
        python3 - <<'end'
import os
fd = os.open("b", os.O_RDONLY)
os.fchmod(fd, 0o604)
os.utime(fd, ns=(5, 7))
os.chdir("d")
os.chmod("../e", 0o600)
os.chmod(f"/proc/self/fd/{fd}", 0o605)
end
    """
    result = landlock.run(LEVEL, script)
    modes = {name: (landlock.root / name).stat().st_mode & 0o7777 for name in "abcde"}
    assert modes == {"a": 0o751, "b": 0o605, "c": 0o751, "d": 0o700, "e": 0o600}, result.stderr
    assert (landlock.root / "b").stat().st_mtime_ns == 7
    landlock.run(LEVEL, "touch -d 2001-02-03T04:05:06Z b; touch -a b")
    assert (landlock.root / "b").stat().st_mtime == 981173106
    assert (landlock.root / "b").stat().st_atime > 981173106


@pytest.mark.parametrize(
    "script",
    [
        "chmod 777 {outside}",
        "ln -s {outside} link; chmod 777 link",
        "cd {folder} && chmod 777 ./outside",
        "chmod 777 ../outside",
        "exec 5< {outside}; chmod 777 /proc/self/fd/5",
        "exec 5< {outside}; python3 -c 'import os; os.fchmod(5, 0o777)'",
        'python3 -c \'import os; os.chmod("outside", 0o777, dir_fd=os.open("..", os.O_RDONLY))\'',
        "touch {outside}",
        "chown $(id -u) {outside}",
    ],
)
def test_modes_outside_cannot_by_any_name(landlock: Grounds, script: str) -> None:
    outside = landlock.folder / "outside"
    outside.write_text("x")
    outside.chmod(0o600)
    old_stat = outside.stat()
    result = landlock.run(LEVEL, script.format(outside=outside, folder=landlock.folder))
    assert result.returncode != 0
    new_stat = outside.stat()
    assert (new_stat.st_mode, new_stat.st_mtime_ns, new_stat.st_ctime_ns) == (
        old_stat.st_mode,
        old_stat.st_mtime_ns,
        old_stat.st_ctime_ns,
    )


def test_no_program_gets_the_rights_of_its_owner(landlock: Grounds) -> None:
    result = landlock.run(LEVEL, "touch a; chmod u+s a")
    assert result.returncode != 0
    assert (landlock.root / "a").stat().st_mode & 0o7000 == 0


@pytest.mark.thorough(one_of=8)
def test_a_race_for_another_file_is_lost(landlock: Grounds) -> None:
    """A link that points inside and outside by turns, while its target's mode is changed."""
    outside = landlock.folder / "outside"
    outside.write_text("x")
    outside.chmod(0o600)
    script = f"""
import os, threading
open("inside", "w").close()
going = True
def swap():
    while going:
        for target in ("inside", {str(outside)!r}):
            os.symlink(target, "link.new")
            os.rename("link.new", "link")
thread = threading.Thread(target=swap)
thread.start()
done = 0
for _ in range(3000):
    try:
        os.chmod("link", 0o777)
        done += 1
    except OSError:
        pass
going = False
thread.join()
print(done > 0)
"""
    result = landlock.run(LEVEL, f"python3 - <<'end'\n{script}\nend")
    assert result.stdout == "True\n", result.stderr
    assert outside.stat().st_mode & 0o777 == 0o600


def test_it_has_a_temporary_folder_of_its_own(landlock: Grounds) -> None:
    result = landlock.run(
        LEVEL, "echo $TMPDIR; mkdir -p $TMPDIR/a/b && touch $TMPDIR/a/b/c && mktemp; touch /tmp/x-treadle"
    )
    folder = Path(result.stdout.splitlines()[0])
    assert result.stdout.splitlines()[1].startswith(f"{folder}/")
    assert result.returncode != 0
    assert not folder.exists()


def test_an_unwritable_root(landlock: Grounds) -> None:
    assert landlock.run(LEVEL, "touch new", landlock.confinement(Unwritable())).returncode != 0
    assert names(landlock.root) == []


def test_a_writable_folder_beside_the_root(landlock: Grounds) -> None:
    other_folder = landlock.folder / "other"
    other_folder.mkdir()
    confinement = landlock.confinement(writable=(str(other_folder),))
    assert landlock.run(LEVEL, f"touch {other_folder}/new && chmod 600 {other_folder}/new", confinement).returncode == 0
    assert names(other_folder) == ["new"]


def test_hidden_paths_and_their_readable_siblings(landlock: Grounds) -> None:
    keys = landlock.folder / "keys"
    keys.mkdir()
    for name in ("key", "other"):
        (keys / name).write_text(name)
    confinement = landlock.confinement(hidden_paths=(str(keys / "key"),))
    result = landlock.run(LEVEL, f"cat {keys}/other {keys}/key; cat /etc/passwd > /dev/null && echo read", confinement)
    assert result.stdout == "otherread\n"
    assert landlock.run(LEVEL, f"cat {keys}/key").stdout == "key"
    (landlock.root / "secret").write_text("x")
    with pytest.raises(SandboxError, match="cannot hide"):
        landlock.line(LEVEL, "true", landlock.confinement(hidden_paths=(str(landlock.root / "secret"),)))


def test_the_network_only_when_it_is_allowed(landlock: Grounds) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo in"
        assert landlock.run(LEVEL, script).stdout == ""
        assert landlock.run(LEVEL, script, landlock.confinement(network=AllHosts())).stdout == "in\n"


def test_protected_paths_are_put_back_and_what_became_of_them_is_kept(landlock: Grounds) -> None:
    git = landlock.root / ".git"
    (git / "hooks").mkdir(parents=True)
    (git / "hooks" / "sample").write_text("sample")
    (git / "hooks" / "link").symlink_to("sample")
    (git / "config").write_text("config")
    (git / "config").chmod(0o640)
    protected_paths = (git / "hooks", git / "config", landlock.root / ".treadle" / "x")
    confinement = landlock.confinement(protected=tuple(map(str, protected_paths)))
    script = (
        "echo evil > .git/config; rm .git/hooks/link; echo evil > .git/hooks/pre-commit; mkdir .treadle; echo a > a"
    )
    result = landlock.run(LEVEL, script, confinement)
    assert result.returncode == 0
    assert names(landlock.root) == [".git", ".git/config", ".git/hooks", ".git/hooks/link", ".git/hooks/sample", "a"]
    assert (git / "config").read_text() == "config"
    assert (git / "config").stat().st_mode & 0o777 == 0o640
    assert os.readlink(git / "hooks" / "link") == "sample"
    assert result.stderr.count("is protected and was put back") == 3
    aside = landlock.scratch / "undone"
    assert sorted(name.partition("-")[2] for name in names(aside) if "/" not in name) == [".treadle", "config", "hooks"]
    assert landlock.run(LEVEL, "true", confinement).stderr == ""


_CALL = "python3 -c 'import ctypes; libc = ctypes.CDLL(None, use_errno=True); {}; print(ctypes.get_errno())'"
_PAGE_END = (  # the address after the last byte that can be read
    "libc.mmap.restype = ctypes.c_void_p; start = libc.mmap(None, ctypes.c_size_t(8192), 3, 34, -1, ctypes.c_long(0)); "
    "libc.munmap(ctypes.c_void_p(start + 4096), ctypes.c_size_t(4096)); end = start + 4096; "
)


@pytest.mark.parametrize(
    "call",
    [
        "libc.chmod(ctypes.c_void_p(-1), 0)",
        'libc.utimensat(-100, b"f", ctypes.c_void_p(-1), 0)',
        _PAGE_END + 'libc.utimensat(-100, b"f", ctypes.c_void_p(end - 8), 0)',
        _PAGE_END + 'libc.utimensat(-100, b"f", ctypes.c_void_p(end - 28), 0)',
        'libc.utimensat(-100, b"f", (ctypes.c_long * 4)(*[2 ** 63 - 1] * 4), 0)',
    ],
)
def test_a_system_call_with_bad_arguments_fails_and_no_more(landlock: Grounds, call: str) -> None:
    """S-03: the process that answers it lives on, and puts protected paths back."""
    hook = landlock.root / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(parents=True)
    confinement = landlock.confinement(protected=(str(hook.parent),))
    script = f"touch f; echo evil > .git/hooks/pre-commit; {_CALL.format(call)}; chmod 600 f; echo on"
    result = landlock.run(LEVEL, script, confinement)
    assert (result.returncode, result.stdout) == (0, f"{errno.EFAULT}\non\n"), result.stderr
    assert not hook.exists()


_DEEP = """import os
os.chdir(".git/hooks")
for _ in range({depth}):
    os.mkdir("a")
    os.chdir("a")
"""
_SWAP = "mv .git/hooks .git/old; mkdir .git/hooks; echo evil > .git/hooks/pre-commit"


@contextmanager
def scratch_folder(parent: str) -> Iterator[str]:
    folder = tempfile.mkdtemp(dir=parent)
    os.chmod(folder, 0o777)
    yield folder
    remove_tree(folder)


@pytest.mark.parametrize("aside", ["", "/dev/shm"], ids=["same file system", "another"])
@pytest.mark.parametrize(
    "script",
    [
        f"python3 -c '{_DEEP.format(depth=900)}'",
        f"python3 -c '{_DEEP.format(depth=3000)}'",
        "truncate -s 8E .git/hooks/large || truncate -s 4T .git/hooks/large",
        "(umask 777; mkdir .git/hooks/closed)",
        "(umask 777; echo > .git/hooks/closed)",
        f"{_SWAP}; mv .git/hooks .git/x; chmod 500 .git/x; mv .git/x .git/hooks",
        "chmod 500 .git/",
        "chmod 0 .git/",
        "chmod 500 .",
    ],
)
def test_no_entry_keeps_protected_paths_from_being_put_back(script: str, aside: str) -> None:
    """S-03: neither one that cannot be read, nor a folder that is closed to its owner."""
    user = NOBODY if os.geteuid() == 0 else None  # nothing is closed to root
    if skip_reason := missing(LEVEL, user):
        pytest.skip(skip_reason)
    with grounds(user) as place, scratch_folder(aside or str(place.folder)) as scratch:
        hooks, config = place.root / ".git" / "hooks", place.root / ".git" / "config"
        hooks.mkdir(parents=True)
        (hooks / "sample").write_text("sample")
        config.write_text("config")
        place.give()
        protected_paths = (hooks, config, place.root / ".treadle")
        confinement = place.confinement(protected=tuple(map(str, protected_paths)))
        script = f"echo evil > .git/hooks/pre-commit; echo evil > .git/config; mkdir .treadle; {script}"
        sandbox = Landlock(scratch, launcher=place.launcher)
        line = sandbox.wrap(["/bin/bash", "-c", script], confinement, str(place.root))
        result = subprocess.run(line, capture_output=True, text=True, timeout=WAIT_S, check=False, **becoming(user))
        assert result.returncode == 0, result.stderr
        assert result.stderr.count("is protected and was put back") == 3, result.stderr
        assert os.listdir(hooks) == ["sample"]
        assert (hooks / "sample").read_text() == "sample"
        assert config.read_text() == "config"
        assert not (place.root / ".treadle").exists()


_FAILS_BESIDE_THE_COMMAND = """import os, time
def fail(_pid):
    while not os.path.exists("ready"):
        time.sleep(0.01)
    raise OSError(24, "Too many open files")
os.pidfd_open = fail
"""


def test_a_launcher_that_fails_beside_the_command_ends_it_and_puts_paths_back(landlock: Grounds) -> None:  # S-03, S-14
    confinement = landlock.confinement(protected=(f"{landlock.root}/.git",))
    line = landlock.line(LEVEL, "mkdir .git; touch ready; sleep 1000", confinement)
    line[4] = _FAILS_BESIDE_THE_COMMAND + line[4]
    result = subprocess.run(line, cwd=landlock.root, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert result.returncode == 125
    assert "Too many open files" in result.stderr
    assert "did not run" not in result.stderr
    assert names(landlock.root) == ["ready"]


def test_a_deep_private_folder_does_not_change_the_exit_code(
    landlock: Grounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(landlock.scratch))
    script = _DEEP.format(depth=2000).replace('".git/hooks"', 'os.environ["TMPDIR"]')
    result = landlock.run(LEVEL, f"python3 -c '{script}'; exit 7")
    assert (result.returncode, result.stderr) == (7, "")
    remove_abandoned_folders(str(landlock.scratch))
    assert list(landlock.scratch.iterdir()) == []


def test_a_link_in_the_place_of_a_protected_folder_leads_nowhere(landlock: Grounds) -> None:
    """Putting back must not follow it."""
    outside = landlock.folder / "outside"
    outside.mkdir()
    git = landlock.root / ".git"
    git.mkdir()
    (git / "config").write_text("config")
    confinement = landlock.confinement(protected=(str(git / "config"), str(git / "hooks")))
    landlock.run(LEVEL, f"mv .git away; ln -s {outside} .git", confinement)
    assert names(outside) == []
    assert not git.is_symlink()
    assert names(git) == ["config"]


def test_too_much_to_remember_is_refused(landlock: Grounds) -> None:
    large = landlock.root / "large"
    with large.open("wb") as file:
        file.truncate(LIMIT + 1)
    result = landlock.run(LEVEL, "touch ran", landlock.confinement(protected=(str(large),)))
    assert result.returncode == 125
    assert "did not run" in result.stderr
    assert not (landlock.root / "ran").exists()


def test_what_lives_on_is_ended(landlock: Grounds) -> None:  # S-14
    result = landlock.run(LEVEL, "(setsid sh -c 'sleep 1000 & sleep 1000' &) ; sleep 1000 & echo done")
    assert result.stdout == "done\n"  # the end of its output came, though the sleepers had it open


@pytest.mark.parametrize("prefix", ["", SLOW_AFTER_START], ids=["at once", "late"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 3), (signal.SIGKILL, -9)])
def test_it_passes_signals_on_and_dies_with_its_parent(
    landlock: Grounds, number: signal.Signals, code: int, prefix: str
) -> None:
    trap = "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
    python, *flags, boot, package, spec, bash, option, script = landlock.line(LEVEL, trap)
    line = [python, *flags, prefix + boot, package, spec, bash, option, script]
    with subprocess.Popen(line, cwd=landlock.root, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(WAIT_S) == code
        if number == signal.SIGTERM:
            assert process.stdout.read() == b"caught\n"


def test_a_signal_after_the_command_has_ended_goes_nowhere(landlock: Grounds) -> None:
    reader, writer = os.pipe()
    line = landlock.line(LEVEL, "sleep 10 & echo $$; exit 3", landlock.confinement(report_fd=writer))
    line[4] = WATCHES_SIGNALS + line[4]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, cwd=landlock.root, stdout=pipe, stderr=pipe, pass_fds=[writer]) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        os.close(writer)
        wait_until_reaped(int(process.stdout.readline()))
        process.terminate()
        assert process.wait(WAIT_S) == 3
        assert process.stderr.read() == b""
    with open(reader, "rb") as file:
        assert file.read() == b"left=sleep\0"


async def test_a_deaf_server_is_ended_and_protected_paths_are_put_back(landlock: Grounds) -> None:  # S-03, S-14
    confinement = landlock.confinement(protected=(f"{landlock.root}/.git",))
    line = landlock.line(LEVEL, "trap '' TERM; mkdir .git; echo up; while :; do sleep 1; done", confinement)
    process = await start_program(line, os.environ, str(landlock.root))
    assert process.stdout is not None
    assert await process.stdout.readline() == b"up\n"
    await terminate(process)
    assert names(landlock.root) == []


def test_the_command_has_the_signal_mask_of_its_parent(landlock: Grounds) -> None:
    script = "grep SigBlk /proc/self/status"
    outside = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert landlock.run(LEVEL, script).stdout == outside


def test_a_broken_pipe_ends_a_program_as_ever(landlock: Grounds) -> None:
    assert landlock.run(LEVEL, "yes | head -n 1; echo ${PIPESTATUS[0]}").stdout == "y\n141\n"


def test_an_old_kernel_is_refused(place: Grounds) -> None:
    for abi in (0, 1):
        with pytest.raises(SandboxError, match="too old"):
            Landlock(str(place.scratch), abi=abi).wrap(["true"], place.confinement(), str(place.root))


@pytest.mark.parametrize("abi", range(2, 8))
def test_it_works_with_what_older_kernels_know(landlock: Grounds, abi: int) -> None:
    sandbox = Landlock(str(landlock.scratch), abi=abi, launcher=landlock.launcher)
    outside = landlock.folder / "outside"
    outside.write_text("x")
    script = f"echo a > a && mkdir b && mv a b/a && cat b/a && ! truncate -s 0 {outside} && ! echo y > {outside}"
    line = sandbox.wrap(["/bin/bash", "-c", script], landlock.confinement(), str(landlock.root))
    result = subprocess.run(line, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (result.returncode, result.stdout) == (0, "a\n"), result.stderr
    assert outside.read_text() == "x"


def test_the_private_folder_of_a_killed_command_is_removed(landlock: Grounds, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = landlock.folder / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    argv = landlock.sandbox(LEVEL).wrap(
        ["/bin/sh", "-c", "touch $TMPDIR/f; echo up; exec sleep 600"], landlock.confinement(), str(landlock.root)
    )
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    remove_abandoned_folders(str(temporary))
    assert [path.name for path in temporary.glob("*/f")] == ["f"]
    process.kill()
    process.communicate()
    remove_abandoned_folders(str(temporary))
    assert list(temporary.iterdir()) == []
