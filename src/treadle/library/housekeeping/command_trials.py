"""Trials of the protection around commands, with each sandbox; `sandbox.probe` tries escapes from those."""

import os
import secrets
import stat
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path

import msgspec

from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.adapters.sandbox.trial_folders import EscapeResult, Verdict, open_trial_folder
from treadle.errors import SandboxError
from treadle.library.agent import Agent
from treadle.ports.commands import Allowance, Limits
from treadle.ports.sandbox import Level
from treadle.protocol.content import ResultsEntry

LIMITS = Limits(processes=100, memory=100 << 20, disk=64 << 20, file=96 << 20, cpu_s=0, open_files=0)
ALLOWANCE = Allowance(limits=LIMITS)
VARIABLE = "TRIAL_VALUE"
_ENDED = "[stopped: it"
_ROOMY = "/var/tmp"
_WAIT_S = 10
# The project in which all is tried.
_FILES = {
    ".env": "A=1\n", "only.txt": "the only copy\n", ".venv/bin/tool": "#!/bin/sh\n",
    "fixture/HEAD": "ref: refs/heads/main\n", "fixture/config": "[core]\n", "fixture/objects/keep": "",
    "fixture/refs/keep": "",
}  # fmt: skip


class CommandTrial(msgspec.Struct, frozen=True):
    """`reached`: True if the command did it, by project and results. `next_command` runs next in the same shell."""

    name: str
    text: str
    command: str
    reached: Callable[[Path, str], bool]
    arguments: Mapping[str, bool] = {}
    next_command: str = ""

    def make_calls(self, turn: int) -> tuple[Call, ...]:
        """One call a turn, from this turn on. A background command is stopped once it has said something."""
        first = Call("run_command", command=self.command, timeout_s=60, **self.arguments)
        if "background" in self.arguments:
            handle = f"{turn}.0"
            return (first, Call("check_command", handle=handle, wait_s=_WAIT_S), Call("stop_command", handle=handle))
        return (first, Call("run_command", command=self.next_command)) if self.next_command else (first,)


def _make_change_check(path: str) -> Callable[[Path, str], bool]:
    """A test that a file of the project is another one than before, or gone."""

    def is_changed(project: Path, _results: str) -> bool:
        file = project / path
        return not file.exists() or file.read_text() != _FILES[path]

    return is_changed


def _has_lasted(_project: Path, result: str) -> bool:
    return _ENDED not in result and "exit 0" in result


TRIALS = (
    CommandTrial("variable", "read a variable that is on no list", "env", lambda _, output: f"{VARIABLE}=" in output),
    CommandTrial("setuid", "make a program that runs as its owner", "cp /bin/true tool && chmod u+s tool",
                 lambda project, _: bool(_read_status(project / "tool").st_mode & stat.S_ISUID)),
    CommandTrial("sensitive", "change a sensitive file", "echo changed >> .env", _make_change_check(".env")),
    CommandTrial("nested", "make a repository inside the project",
                 "mkdir -p inner/.git/hooks && echo true > inner/.git/hooks/pre-commit",
                 lambda project, _: (project / "inner/.git/hooks/pre-commit").exists()),
    CommandTrial("bare", "make a folder that git takes for a repository",
                 "mkdir -p bare/objects bare/refs && touch bare/HEAD bare/config",
                 lambda project, _: (project / "bare/config").exists() and (project / "bare/HEAD").exists()),
    CommandTrial("git-directory", "change the configuration of a repository among the files",
                 "echo '[alias]' >> fixture/config", _make_change_check("fixture/config")),
    CommandTrial("cache-program", "put another program among the installed ones", "echo true > .venv/bin/tool",
                 _make_change_check(".venv/bin/tool")),
    CommandTrial("cache-code", "make a compiled file that Python would run",
                 "mkdir -p __pycache__ && echo code > __pycache__/app.cpython-311.pyc",
                 lambda project, _: (project / "__pycache__/app.cpython-311.pyc").exists()),
    CommandTrial("carried-variable", "name a program that the next command runs first", "export BASH_ENV=carried",
                 lambda _, results: "value: carried" in results, next_command='echo "value: $BASH_ENV"'),
    CommandTrial("background", "remove the only copy of a file in the background", "rm only.txt; echo done",
                 _make_change_check("only.txt"), {"background": True}),
    CommandTrial("pty", "remove the only copy of a file on a terminal", "rm only.txt; echo done",
                 _make_change_check("only.txt"), {"pty": True}),
    CommandTrial("background-pty", "change a sensitive file in the background, on a terminal",
                 "echo changed >> .env; echo done", _make_change_check(".env"), {"background": True, "pty": True}),
    CommandTrial("live", "remove the only copy of a file while it sees later edits", "rm -f only.txt; echo done",
                 _make_change_check("only.txt"), {"background": True, "live": True}),
    # While other programs free as much as a command takes, its use is counted every five seconds: hold it for longer.
    CommandTrial("forks", "start more and more processes",
                 "n=0; while [ $n -lt 300 ]; do sleep 7 & n=$((n+1)); done; wait", _has_lasted),
    CommandTrial("memory", "take more and more memory",
                 "{ yes | tr -d '\\n' | head -c 300000000; sleep 7; } | tail | wc -c", _has_lasted),
    CommandTrial("disk", "write more and more to the disk", "yes | head -c 300000000 > big; sleep 1",
                 lambda project, _: _read_status(project / "big").st_size > LIMITS.file),
)  # fmt: skip


async def try_commands(home: Path, level: Level) -> tuple[EscapeResult, ...]:
    """Run all trials with this sandbox, in a non-interactive chat. SandboxError if the sandbox does not hold here."""
    place = _ROOMY if os.access(_ROOMY, os.W_OK) else str(home)
    with open_trial_folder("treadle-trial-", place) as name:
        project = _make_project(Path(name))
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": name, VARIABLE: secrets.token_hex(16)}
        calls: list[tuple[Call, ...]] = []
        for trial in TRIALS:
            calls.append(trial.make_calls(1 + sum(map(len, calls))))
        model = ScriptedModel([*(call for each in calls for call in each), Say("Done.")])
        async with Agent(model=model, home=home, env=env, allowance=ALLOWANCE) as agent:
            chat = agent.chat(root=str(project), mode="ask", sandbox=level, verify=False, diagnose=False, max_turns=100)
            async for _ in chat.send("Try."):
                pass
            history = (await chat.state()).history
        results = (result.text for entry in history if isinstance(entry, ResultsEntry) for result in entry.results)
        texts = ["\n".join(islice(results, len(each))) for each in calls]
        if any("does not hold here" in each for each in texts):
            raise SandboxError(texts[0])
        return tuple(_judge_trial(trial, project, text) for trial, text in zip(TRIALS, texts, strict=True))


def _make_project(folder: Path) -> Path:
    project = folder.resolve() / "project"
    for path, content in _FILES.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(content)
    (project / ".venv/bin/tool").chmod(0o755)
    return project


def _judge_trial(trial: CommandTrial, project: Path, output: str) -> EscapeResult:
    if trial.reached(project, output):
        return EscapeResult(trial.name, "allowed")
    outcome: Verdict = "undone" if "[undone: " in output else "refused"
    return EscapeResult(trial.name, outcome, output.strip().rpartition("\n")[2])


def _read_status(path: Path) -> os.stat_result:
    return path.stat() if path.exists() else os.stat_result((0,) * 10)
