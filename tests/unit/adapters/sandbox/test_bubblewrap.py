"""Commands in bubblewrap, run for real (S-03, S-14). The ways out are tried in tests/faults/test_escapes.py."""

import os
import pty
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

from tests.unit.adapters.sandbox.grounds import WAIT_S, Grounds, missing, only_filtered
from treadle.adapters.sandbox import landlock, places
from treadle.adapters.sandbox.bubblewrap import Bubblewrap, list_listening_sockets
from treadle.errors import SandboxError
from treadle.ports.sandbox import AllHosts, Unwritable, View

LEVEL = "bubblewrap"


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def repository(root: Path) -> None:
    steps = ("init -q", "config user.name n", "config user.email n@example.org", "commit -q --allow-empty -m first")
    for step in steps:
        subprocess.run(["git", "-C", root, *step.split()], check=True, timeout=WAIT_S)
    subprocess.run(["rm", "-rf", root / ".git" / "hooks"], check=True, timeout=WAIT_S)


def settle(monitor: int) -> None:
    """Wait until bubblewrap's first process inside waits for the command; only then is it bound to the one outside."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        inner = child_of(monitor)
        if inner and Path(f"/proc/{inner}/stat").read_text().rpartition(")")[2].split()[0] == "S":
            return
        time.sleep(0.01)
    raise AssertionError("bubblewrap never settled")


def child_of(pid: int) -> int:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                return int(path.parent.name)
        except OSError:
            continue
    return 0


def view(place: Grounds) -> View:
    if skip_reason := missing("view"):
        pytest.skip(skip_reason)
    for name in ("upper", "work"):
        (place.folder / name).mkdir()
    return View(str(place.folder / "upper"), str(place.folder / "work"))


def test_writes_reach_the_project_and_exit_codes_come_back(bubblewrap: Grounds) -> None:
    result = bubblewrap.run(LEVEL, "echo hello > new; cat new; exit 7")
    assert (result.returncode, result.stdout) == (7, "hello\n")
    assert (bubblewrap.root / "new").read_text() == "hello\n"
    assert bubblewrap.run(LEVEL, "kill -9 $$").returncode == 137


def test_it_has_a_tmp_of_its_own(bubblewrap: Grounds) -> None:
    with NamedTemporaryFile(dir="/tmp") as outside:
        result = bubblewrap.run(LEVEL, f"ls {outside.name}; echo x > /tmp/treadle-private && cat /tmp/treadle-private")
    assert result.stdout == "x\n"
    assert not Path("/tmp/treadle-private").exists()


def test_no_descriptor_of_ours_is_open_in_a_command(bubblewrap: Grounds) -> None:
    result = bubblewrap.run("bubblewrap", "echo /proc/self/fd/*")
    assert [int(each.rpartition("/")[2]) for each in result.stdout.split()] in ([0, 1, 2], [0, 1, 2, 3])


def test_nothing_in_proc_can_be_written(bubblewrap: Grounds) -> None:
    """Not even the files of the process itself (S-03); its descriptors lead to the same files as before."""
    each = "for file in self/oom_score_adj self/comm sys/kernel/hostname pressure/cpu"
    write = "(echo 1 > /proc/$file) 2> /dev/null && written=$file"
    result = bubblewrap.run("bubblewrap", f"{each}; do {write}; done; echo ${{written:-nothing}} > /proc/self/fd/1")
    assert result.stdout == "nothing\n"


def test_an_unwritable_root(bubblewrap: Grounds) -> None:
    confinement = bubblewrap.confinement(Unwritable(), protected=(str(bubblewrap.root / ".treadle"),))
    result = bubblewrap.run(LEVEL, "touch new", confinement)
    assert result.returncode != 0
    assert names(bubblewrap.root) == []


def test_a_writable_folder_beside_the_root(bubblewrap: Grounds) -> None:
    other_folder = bubblewrap.folder / "other"
    other_folder.mkdir()
    assert bubblewrap.run(LEVEL, f"touch {other_folder}/new").returncode != 0
    assert (
        bubblewrap.run(
            LEVEL, f"touch {other_folder}/new", bubblewrap.confinement(writable=(str(other_folder),))
        ).returncode
        == 0
    )
    assert names(other_folder) == ["new"]


def test_hidden_files_and_folders(bubblewrap: Grounds) -> None:
    secret = bubblewrap.root / "secret"
    folder = bubblewrap.folder / "keys"
    folder.mkdir()
    for file in (secret, folder / "key"):
        file.write_text("secret")
    confinement = bubblewrap.confinement(hidden_paths=(str(secret), str(folder), str(bubblewrap.folder / "missing")))
    result = bubblewrap.run(LEVEL, f"cat secret; cat {folder}/key; ls {folder}; touch {folder}/new", confinement)
    assert "secret" not in result.stdout
    assert result.returncode != 0
    assert names(folder) == ["key"]
    assert bubblewrap.run(LEVEL, f"cat secret {folder}/key").stdout == "secretsecret"


def test_the_network_only_when_it_is_allowed(bubblewrap: Grounds) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo in"
        assert bubblewrap.run(LEVEL, script).stdout == ""
        assert bubblewrap.run(LEVEL, script, bubblewrap.confinement(network=AllHosts())).stdout == "in\n"


def test_sockets_made_inside_work(bubblewrap: Grounds) -> None:
    script = (
        "import socket; a = socket.socket(socket.AF_UNIX); a.bind('s'); a.listen();"
        "b = socket.socket(socket.AF_UNIX); b.connect('s'); print('connected')"
    )
    result = bubblewrap.run(LEVEL, f'/usr/bin/env python3 -c "{script}"')
    assert result.stdout == "connected\n", result.stderr


def test_protected_paths_that_do_not_exist_leave_no_trace(bubblewrap: Grounds) -> None:
    root = bubblewrap.root
    (root / "sub").mkdir()
    protected_paths = (root / ".treadle" / "deep", root / "sub" / "hooks", root / "sub" / "config")
    confinement = bubblewrap.confinement(protected=tuple(map(str, protected_paths)))
    making = "mkdir -p .treadle/deep; mkdir sub/hooks; echo x > sub/hooks/x; echo x > sub/config"
    result = bubblewrap.run(LEVEL, f"{making}; rm -rf sub; mv sub b; false", confinement)
    assert result.returncode != 0
    assert names(root) == ["sub"]
    assert names(bubblewrap.scratch / "held") == []


def test_on_a_view_nothing_stands_where_nothing_is(bubblewrap: Grounds) -> None:
    """A commit leaves out files that appear there (tests/unit/adapters/workspace/test_guarding.py)."""
    repository(bubblewrap.root)
    confinement = bubblewrap.confinement(view(bubblewrap), protected=places.find_protected_paths(str(bubblewrap.root)))
    result = bubblewrap.run(LEVEL, "touch junk; git clean -fdxq && ls -A && git status --short", confinement)
    assert (result.returncode, result.stdout, result.stderr) == (0, ".git\n", "")
    assert [name for name in names(bubblewrap.folder / "upper") if ".treadle" in name] == []


@pytest.mark.parametrize("mounted", ["direct", "view"])
def test_git_works_with_its_protected_paths(bubblewrap: Grounds, mounted: str) -> None:
    repository(bubblewrap.root)
    old_config = (bubblewrap.root / ".git" / "config").read_bytes()
    protected = places.find_protected_paths(str(bubblewrap.root))
    mount = {"mount": view(bubblewrap)} if mounted == "view" else {}
    script = """
        echo a > a && git add a && git commit -qm second && git log --oneline | wc -l && git checkout -qb other
        git config user.name evil; HELD; git status --short
    """.replace("HELD", "echo ../evil > .git/commondir; mkdir -p .git/hooks/x" if mounted == "direct" else ":")
    result = bubblewrap.run(LEVEL, script, bubblewrap.confinement(protected=protected, **mount))
    assert result.stdout == "2\n", result.stderr
    assert (bubblewrap.root / ".git" / "config").read_bytes() == old_config
    git_names = set(names(bubblewrap.root / ".git"))
    assert git_names & {"hooks", "commondir", "config.worktree"} == set()
    if mounted == "view":
        assert not (bubblewrap.root / "a").exists()
        changed_names = set(names(bubblewrap.folder / "upper"))
        assert "a" in changed_names
        assert (
            changed_names & {".git/hooks", ".git/commondir", ".git/config", ".git/config.worktree", ".treadle"} == set()
        )


def test_a_file_in_the_place_of_the_git_folder_is_held(bubblewrap: Grounds) -> None:
    """As in a linked worktree: another file there would be another repository."""
    (bubblewrap.root / ".git").write_text("gitdir: elsewhere")
    confinement = bubblewrap.confinement(protected=places.find_protected_paths(str(bubblewrap.root)))
    bubblewrap.run(LEVEL, "rm -f .git; echo 'gitdir: evil' > .git; mv .git x", confinement)
    assert (bubblewrap.root / ".git").read_text() == "gitdir: elsewhere"


def test_a_link_on_the_way_is_refused_or_its_folder_held(bubblewrap: Grounds) -> None:
    root = bubblewrap.root
    (root / "real").mkdir()
    (root / ".git").mkdir()
    (root / ".git" / "hooks").symlink_to("../real")
    confinement = bubblewrap.confinement(protected=(str(root / ".git" / "hooks"),))
    bubblewrap.run(LEVEL, "rm .git/hooks; mkdir .git/hooks", confinement)
    assert (root / ".git" / "hooks").is_symlink()
    (root / "link").symlink_to("real")
    with pytest.raises(SandboxError, match="link cannot be protected"):
        bubblewrap.line(LEVEL, "true", bubblewrap.confinement(protected=(str(root / "link" / "x"),)))


def test_two_commands_hold_one_place_until_the_last_ends(bubblewrap: Grounds) -> None:
    hooks = bubblewrap.root / "hooks"
    confinement = bubblewrap.confinement(protected=(str(hooks),))
    waiting = bubblewrap.line(LEVEL, "echo ready; read x; mkdir hooks/x || echo held", confinement)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(waiting, cwd=bubblewrap.root, **pipes) as first:  # type: ignore[call-overload]
        assert first.stdout.readline() == "ready\n"
        assert hooks.is_dir()
        assert bubblewrap.run(LEVEL, "mkdir hooks/x", confinement).returncode != 0
        assert hooks.is_dir()  # the second did not take it from the first
        assert first.communicate("go\n", timeout=WAIT_S)[0] == "held\n"
    assert names(bubblewrap.root) == []


def test_what_a_killed_holder_left_is_removed_by_the_next(bubblewrap: Grounds) -> None:
    hooks = bubblewrap.root / "hooks"
    confinement = bubblewrap.confinement(protected=(str(hooks), str(bubblewrap.root / "config")))
    line = bubblewrap.line(LEVEL, "echo ready; read x", confinement)
    with subprocess.Popen(line, cwd=bubblewrap.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        settle(child_of(process.pid))
        process.kill()
        assert process.stdout.read() == b""  # the command is gone, too
    assert names(bubblewrap.root) == ["config", "hooks"]
    assert bubblewrap.run(LEVEL, "true", confinement).returncode == 0
    assert names(bubblewrap.root) == []


def test_somebody_elses_folder_is_never_removed(bubblewrap: Grounds) -> None:
    hooks = bubblewrap.root / "hooks"
    line = bubblewrap.line(LEVEL, "true", bubblewrap.confinement(protected=(str(hooks),)))
    hooks.mkdir()  # between the moment when the command was prepared and the one when it runs
    assert subprocess.run(line, cwd=bubblewrap.root, timeout=WAIT_S, check=False).returncode == 0
    assert names(bubblewrap.root) == ["hooks"]
    assert names(bubblewrap.scratch / "held") == []


def connecting(address: str) -> str:
    return f"""python3 -c "import socket; socket.socket(socket.AF_UNIX).connect({address}); print('connected')" """


def test_sockets_of_daemons_are_closed_however_young(bubblewrap: Grounds) -> None:  # S-18
    old, young = (bubblewrap.folder / name for name in ("old.sock", "young.sock"))
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other_server:
        for server, path in ((one, old), (other_server, young)):
            server.bind(str(path))
            server.listen()
        os.utime(old, (1, 1))
        assert {str(old), str(young)} <= list_listening_sockets()
        for path in (old, young):
            assert bubblewrap.run(LEVEL, connecting(f"'{path}'")).stdout == ""
    old.unlink()
    assert str(old) not in list_listening_sockets()


def test_a_socket_that_was_bound_by_a_relative_path_is_closed(bubblewrap: Grounds) -> None:  # S-18
    path = bubblewrap.folder / "relative.sock"
    script = "import socket; s = socket.socket(1); s.bind('relative.sock'); s.listen(); print(1, flush=True); input()"
    line = [sys.executable, "-c", script]
    with subprocess.Popen(line, cwd=path.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline()
        assert str(path) in list_listening_sockets()
        assert bubblewrap.run(LEVEL, connecting(f"'{path}'")).stdout == ""
        daemon.communicate(b"\n")


def test_a_socket_that_vanishes_keeps_no_command_from_starting(bubblewrap: Grounds) -> None:  # S-18
    if skip_reason := missing("view"):
        pytest.skip(skip_reason)
    path = bubblewrap.folder / "brief.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        line = bubblewrap.line(LEVEL, "echo ran")
    path.unlink()
    assert subprocess.run(line, capture_output=True, text=True, timeout=WAIT_S, check=False).stdout == "ran\n"


@pytest.mark.parametrize("vanished", [True, False])
def test_a_socket_is_covered_by_path_where_there_are_no_views(bubblewrap: Grounds, vanished: bool) -> None:
    """S-18, fault 40: as in the first probe, and with an older bubblewrap."""
    sandbox = Bubblewrap(bubblewrap.bubblewrap, str(bubblewrap.scratch), nested=only_filtered(None))
    (bubblewrap.folder / "brief").mkdir()
    path = bubblewrap.folder / "brief" / "a.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        argv = ["/bin/sh", "-c", f"echo ran; {connecting(repr(str(path)))}"]
        line = sandbox.wrap(argv, bubblewrap.confinement(), str(bubblewrap.root))
        if vanished:
            path.unlink()
            path.parent.rmdir()
        result = subprocess.run(line, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert result.stdout == "ran\n", result.stderr


def test_a_caller_that_covers_sockets_itself_needs_no_program_for_it(bubblewrap: Grounds) -> None:
    sandbox = Bubblewrap(bubblewrap.bubblewrap, str(bubblewrap.scratch), nested=only_filtered(None))
    path = bubblewrap.folder / "a.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        sockets = sandbox.list_sockets_to_cover(bubblewrap.confinement())
        assert str(path) in sockets
        lines = [
            sandbox.wrap(["true"], bubblewrap.confinement(covered_sockets=covered), str(bubblewrap.root))
            for covered in ((), sockets)
        ]
    assert [any("become import cover" in word for word in line) for line in lines] == [True, False]


def test_with_the_network_abstract_sockets_are_closed(bubblewrap: Grounds) -> None:  # S-18
    if landlock.read_version() < landlock.SCOPES:
        pytest.skip("this kernel's Landlock does not know abstract sockets")
    name = f"treadle-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        script = connecting(f"chr(0) + '{name}'")
        assert bubblewrap.run("none", script).stdout == "connected\n"
        assert bubblewrap.run(LEVEL, script, bubblewrap.confinement(network=AllHosts())).stdout == ""


def test_nothing_in_run_is_to_be_seen(bubblewrap: Grounds) -> None:
    """Not even for a project that lies there itself."""
    assert bubblewrap.run(LEVEL, "ls -A /run").stdout in ("", "\n")
    line = bubblewrap.line(LEVEL, "true")
    below = bubblewrap.confinement(root="/run/user/1000/project")
    words = bubblewrap.sandbox(LEVEL).wrap(["true"], below, "/run/user/1000/project")
    for each in (line, words):
        assert each[each.index("/run") - 1] == "--tmpfs"
    assert words.index("/run") < words.index("/run/user/1000/project")


def test_what_lives_on_holds_nothing_up(bubblewrap: Grounds) -> None:  # S-14
    result = bubblewrap.run(LEVEL, "setsid sleep 1000 & disown; echo done")
    assert result.stdout == "done\n"  # the end of its output came, though the sleeper had it open


def test_it_dies_with_whoever_started_it(bubblewrap: Grounds) -> None:
    line = bubblewrap.line(LEVEL, "echo ready; sleep 1000")
    with subprocess.Popen(line, cwd=bubblewrap.root, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        settle(process.pid)
        process.kill()
        assert process.stdout.read() == b""


def test_a_terminal_of_its_own_is_its_to_control(bubblewrap: Grounds) -> None:
    def run(terminal: bool) -> bytes:
        line = bubblewrap.line(LEVEL, "(: < /dev/tty) && echo mine", bubblewrap.confinement(terminal=terminal))
        master, slave = pty.openpty()
        line = bubblewrap.launcher.build_line("become.take_terminal", {"terminal": 0, "take": termios.TIOCSCTTY}, line)
        with subprocess.Popen(line, stdin=slave, stdout=slave, stderr=slave, start_new_session=True) as process:
            os.close(slave)
            output = b""
            try:
                while piece := os.read(master, 4096):
                    output += piece
            except OSError:  # the other side is closed
                os.close(master)
            process.wait(WAIT_S)
        return output

    assert b"mine" in run(terminal=True)
    assert b"mine" not in run(terminal=False)


def test_a_root_below_tmp(bubblewrap: Grounds) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        root = Path(folder) / "root"
        root.mkdir()
        sandbox = bubblewrap.sandbox(LEVEL)
        confinement = bubblewrap.confinement(root=str(root), hidden_paths=(f"{folder}/other",))
        line = sandbox.wrap(["/bin/sh", "-c", "echo x > new; ls .."], confinement, str(root))
        result = subprocess.run(line, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert result.stdout == "root\n"
        assert names(root) == ["new"]


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/a//b", "/a/"])
def test_paths_with_detours_are_refused(place: Grounds, path: str) -> None:
    with pytest.raises(SandboxError, match="without detours"):
        place.line(LEVEL, "true", place.confinement(hidden_paths=(path,)))


def test_only_what_is_inside_can_be_protected(place: Grounds) -> None:
    for path in ("/etc", str(place.root)):
        with pytest.raises(SandboxError, match="not inside the project"):
            place.line(LEVEL, "true", place.confinement(protected=(path,)))


def test_a_view_where_there_is_none_is_refused(place: Grounds) -> None:
    for level in ("landlock", "none"):
        with pytest.raises(SandboxError, match="view"):
            place.line(level, "true", place.confinement(View("/a", "/b")))


def test_many_at_once_do_not_disturb_each_other(bubblewrap: Grounds) -> None:
    confinement = bubblewrap.confinement(protected=(str(bubblewrap.root / "hooks"),))
    codes: list[int] = []

    def run(number: int) -> None:
        codes.append(bubblewrap.run(LEVEL, f"echo {number} > {number}; ! mkdir hooks/x", confinement).returncode)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert codes == [0] * 8
    assert names(bubblewrap.root) == [str(number) for number in range(8)]
