"""An unapproved command sees little of the machine: tests by the public surface and in the real sandbox."""

import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.homes import seed
from tests.scenario.kit import Stage, play, results
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.memory import MemoryStore
from treadle.ports.commands import UNLIMITED, Allowance, Limits


def git(folder: Path, words: str) -> None:
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    subprocess.run(["git", *identity, *words.split()], cwd=folder, check=True, capture_output=True)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    new_stage = Stage(MemoryStore())
    yield new_stage
    await new_stage.close()


class Machine:
    """A user's home and a project in it, apart from /tmp, of which commands have their own."""

    def __init__(self, folder: Path, stage: Stage) -> None:
        self.home = folder / "user"
        self.project = self.home / "project"
        self.project.mkdir(parents=True)
        self.treadle = seed(folder / "treadle")
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        self._stage = stage

    async def run(self, command: str, allowance: Allowance | None = None, **options: object) -> str:
        steps = [Call("run_command", command=command), Say("Done.")]
        agent = self._stage.agent(steps, builtin=True, env=self.env, home=self.treadle, allowance=allowance)
        chat = agent.chat(root=str(self.project), mode="autopilot", verify=False, **options)
        await play(chat.send("Go."))
        return (await results(chat))[0]


@pytest.fixture
def folder_outside_tmp() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()


@pytest.fixture
def machine(folder_outside_tmp: Path, stage: Stage) -> Machine:
    return Machine(folder_outside_tmp, stage)


async def test_the_environment_is_an_allow_list(machine: Machine) -> None:  # T-05, S-11
    machine.env |= {"SSH_AUTH_SOCK": "/run/agent", "RUST_LOG": "info", "APP_MODE": "test", "APP_KEY": "geheim-geheim"}
    output = await machine.run("env", Allowance(("APP_*",)))
    assert "RUST_LOG=info" in output
    assert "APP_MODE=test" in output
    assert "SSH_AUTH_SOCK" not in output
    assert "APP_KEY" not in output


KEYS = (".ssh/id_ed25519", ".config/anything/token", ".cargo/credentials.toml", ".npmrc", ".gnupg/private", "notes.txt")


@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
async def test_the_home_is_hidden_but_for_tools(machine: Machine, level: str) -> None:  # S-18
    for name in (*KEYS, ".cargo/bin/tool", ".pyenv/version", ".local/bin/credentials.json", "mine/data"):
        path = machine.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\necho secret-of-it\n")
        path.chmod(0o700)
    home = machine.home
    command = f"cat {home}/.*/id_* {home}/.*/*/token {home}/.cargo/cred* {home}/.npmrc {home}/notes.txt"
    command += f" {home}/.local/bin/cred*; {home}/.cargo/bin/tool; cat {home}/mine/data; cat {home}/.pyenv/version >&2"
    command += f"; echo x > {home}/.pyenv/version; echo ENDED"
    output = await machine.run(command, Allowance(visible=("mine",)), sandbox=level)
    if "does not hold here" in output:
        pytest.skip(output)
    assert output.count("secret-of-it") == 3, output
    assert "ENDED" in output
    assert (home / ".pyenv/version").read_text().startswith("#!/bin/sh")


async def test_landlock_puts_a_repository_back_that_a_killed_command_made(machine: Machine) -> None:  # S-03, S-14
    script = "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; for _ in {1..80}; do sleep 1000 & done; wait"
    (machine.project / "build.sh").write_text(script)
    limits = msgspec.structs.replace(UNLIMITED, processes=60)
    output = await machine.run("bash build.sh", Allowance(limits=limits), sandbox="landlock")
    if "does not hold here" in output:
        pytest.skip(output)
    assert "limit_processes" in output
    assert ".git is protected and was put back" in output
    assert not (machine.project / ".git").exists()


@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
async def test_a_home_can_be_written_to_and_is_forgotten(machine: Machine, level: str) -> None:  # S-18
    (machine.home / ".gitconfig").write_text('[user]\n\tname = Ada\n\temail = a@b.c\n[url "x"]\n\tinsteadOf = geheim\n')
    command = "echo x > ~/.made && cat ~/.made && git config --global user.name && git config --global --list"
    output = await machine.run(f"{command} && git config --global core.eol lf && echo ENDED", sandbox=level)
    if "does not hold here" in output:
        pytest.skip(output)
    assert "x\nAda\n" in output
    assert "ENDED" in output
    assert "geheim" not in output
    assert not (machine.home / ".made").exists()


async def test_a_cache_can_be_written_to_and_is_forgotten(machine: Machine) -> None:  # S-18
    cache = machine.home / ".cache" / "pip"
    cache.mkdir(parents=True)
    (cache / "kept").write_text("kept")
    output = await machine.run("cat ~/.cache/pip/kept && echo new > ~/.cache/pip/new && cat ~/.cache/pip/new")
    assert "kept" in output
    assert "new\n" in output or "Read-only" in output
    assert sorted(each.name for each in cache.iterdir()) == ["kept"]


def entries(folder: str, pattern: str) -> set[str]:
    return {path.name for path in Path(folder).glob(pattern)}


async def test_the_homes_of_others_are_hidden(machine: Machine) -> None:  # S-18
    output = await machine.run("ls -A /home /root; echo ENDED")
    hidden_names = entries("/home", "*") | entries("/root", ".bash*") | entries("/root", ".profile")
    assert not hidden_names & set(output.splitlines())
    assert "ENDED" in output


async def test_a_linked_worktree_finds_its_repository(machine: Machine) -> None:  # S-18
    for words in ("init -q main", "-C main commit -q --allow-empty -m first", "-C main worktree add -q ../tree"):
        git(machine.home, words)
    machine.project = machine.home / "tree"
    assert "first" in await machine.run("git log --format=%s")


async def test_a_folder_of_a_repository_sees_the_rest_of_it(machine: Machine) -> None:  # S-18
    git(machine.project, "init -q")
    (machine.project / "top").write_text("seen from below")
    machine.project = machine.project / "packages" / "a"
    machine.project.mkdir(parents=True)
    assert "seen from below" in await machine.run("cat ../../top; echo x > ../../made")
    assert not (machine.project.parents[1] / "made").exists()


LOW = Limits(processes=100, memory=200 << 20, disk=64 << 20, file=0, cpu_s=0, open_files=0)
FORKS = "import os, time\nfor _ in range(9):\n    os.fork()\ntime.sleep(60)\n"
FILLS_MEMORY = "import time\nkept = [bytearray(b'x') * (20 << 20) for _ in range(40)]\ntime.sleep(60)\n"
FILLS_DISK = "import time\nfor n in range(40):\n    open(f'f{n}', 'wb').write(b'x' * (20 << 20))\ntime.sleep(60)\n"


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
@pytest.mark.parametrize(
    ("program", "words"),
    [
        (FORKS, "more than 100 processes"),
        (FILLS_MEMORY, "more than 200 MB of memory"),
        (FILLS_DISK, "64 MB to the disk"),
    ],
    ids=["forks", "memory", "disk"],
)
async def test_what_uses_the_machine_up_is_ended(
    machine: Machine, level: str, program: str, words: str
) -> None:  # S-18
    if level == "landlock" and program == FILLS_DISK:
        pytest.skip("there are no views with Landlock, and only a full disk counts")
    (machine.project / "program.py").write_text(program)
    output = await machine.run("/usr/bin/env python3 program.py", Allowance(limits=LOW), sandbox=level)
    if "does not hold here" in output:
        pytest.skip(output)
    assert "[stopped: it" in output
    assert words in output
    assert sorted(path.name for path in machine.project.iterdir()) == ["program.py"]


async def test_what_the_kernel_limits(machine: Machine) -> None:  # S-18
    limits = Limits(0, 0, 0, file=1 << 20, cpu_s=77, open_files=300)
    command = "ulimit -f -t -n -c; nice; head -c 3000000 /dev/zero > big; echo $?; stat -c %s big"
    output_lines = (await machine.run(command, Allowance(limits=limits))).splitlines()
    assert [line.split()[-1] for line in output_lines[:5]] == ["1024", "77", "300", "0", str(os.nice(0) + 5)]
    assert "1048576" in output_lines


async def test_no_limits(machine: Machine) -> None:  # S-18
    output = await machine.run("ulimit -f; nice", Allowance(limits=UNLIMITED))
    assert output.splitlines()[1] == str(os.nice(0))
