"""What a command can do by way of Treadle itself, tried for real in a project that is made for it: by the judge of
effects, the environment and the limits, with each sandbox. Ways out of a sandbox alone are tried by `sandbox.probe`."""

import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec

from treadle.errors import SandboxError
from treadle.models.scripted import Call, Say, ScriptedModel
from treadle.ports.commands import Allowance, Limits
from treadle.ports.sandbox import Level
from treadle.protocol.content import ResultsEntry
from treadle.runtime import Agent
from treadle.sandbox.report import EscapeResult
from treadle.sandbox.trial_folders import trial_folder

LIMITS = Limits(processes=100, memory=100 << 20, disk=64 << 20, file=96 << 20, cpu_s=0, open_files=0)
ALLOWANCE = Allowance(limits=LIMITS)
VARIABLE = "TRIAL_VALUE"
_ENDED = "[stopped: it"
_ROOMY = "/var/tmp"


class CommandTrial(msgspec.Struct, frozen=True):
    """`reached` looks at the project afterwards and at the result: whether the command did it."""

    name: str
    text: str
    command: str
    reached: Callable[[Path, str], bool]


def _lasting(_project: Path, result: str) -> bool:
    return _ENDED not in result and "exit 0" in result


TRIALS = (
    CommandTrial("variable", "read a variable that is on no list", "env", lambda _, said: f"{VARIABLE}=" in said),
    CommandTrial(
        "setuid",
        "make a program that runs as its owner",
        "cp /bin/true tool && chmod u+s tool",
        lambda project, _: bool(_status(project / "tool").st_mode & stat.S_ISUID),
    ),
    CommandTrial(
        "sensitive",
        "change a sensitive file",
        "echo changed >> .env",
        lambda project, _: (project / ".env").read_text() != "A=1\n",
    ),
    CommandTrial(
        "nested",
        "make a repository inside the project",
        "mkdir -p inner/.git/hooks && echo true > inner/.git/hooks/pre-commit",
        lambda project, _: (project / "inner/.git/hooks/pre-commit").exists(),
    ),
    CommandTrial(
        "bare",
        "make a folder that git takes for a repository",
        "mkdir -p bare/objects bare/refs && touch bare/HEAD bare/config",
        lambda project, _: (project / "bare/config").exists() and (project / "bare/HEAD").exists(),
    ),
    CommandTrial(
        "forks",
        "start more and more processes",
        "n=0; while [ $n -lt 300 ]; do sleep 2 & n=$((n+1)); done; wait",
        _lasting,
    ),
    CommandTrial(
        "memory", "take more and more memory", "yes | tr -d '\\n' | head -c 300000000 | tail | wc -c", _lasting
    ),
    CommandTrial(
        "disk",
        "write more and more to the disk",
        "yes | head -c 300000000 > big; sleep 1",
        lambda project, _: _status(project / "big").st_size > LIMITS.file,
    ),
)


async def try_commands(home: Path, level: Level) -> tuple[EscapeResult, ...]:
    """Try all with this sandbox, as a chat that nobody watches. SandboxError if it does not hold here."""
    place = _ROOMY if os.access(_ROOMY, os.W_OK) else str(home)
    with trial_folder("treadle-trial-", place) as name:
        project = _make_project(Path(name))
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": name, VARIABLE: secrets.token_hex(16)}
        said = await _results(project, Agent(model=_model(), home=home, env=env, allowance=ALLOWANCE), level)
        if any("does not hold here" in each for each in said):
            raise SandboxError(said[0])
        return tuple(_judged(trial, project, text) for trial, text in zip(TRIALS, said, strict=True))


def _make_project(folder: Path) -> Path:
    project = folder.resolve() / "project"
    project.mkdir()
    (project / ".env").write_text("A=1\n")
    return project


def _model() -> ScriptedModel:
    return ScriptedModel([*(Call("run_command", command=each.command, timeout_s=60) for each in TRIALS), Say("Done.")])


async def _results(project: Path, agent: Agent, level: Level) -> list[str]:
    async with agent:
        chat = agent.chat(root=str(project), mode="ask", sandbox=level, verify=False, diagnose=False)
        async for _ in chat.send("Try."):
            pass
        history = (await chat.state()).history
    return [result.text for entry in history if isinstance(entry, ResultsEntry) for result in entry.results]


def _judged(trial: CommandTrial, project: Path, said: str) -> EscapeResult:
    if trial.reached(project, said):
        return EscapeResult(trial.name, "allowed")
    return EscapeResult(trial.name, "undone" if "[undone: " in said else "refused", said.strip().rpartition("\n")[2])


def _status(path: Path) -> os.stat_result:
    return path.stat() if path.exists() else os.stat_result((0,) * 10)
