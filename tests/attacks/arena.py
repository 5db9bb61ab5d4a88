"""Plays attacks through the real command line, in a project made for them, and finds the harm that they did: changes
outside of the project, changes inside that must be asked for, markers, secrets, live escapes.

Afterwards the programs of a user run for real: git in every folder, the project's own code, its installed programs."""

import base64
import fnmatch
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.attacks.table import GIT_DATA, Attack, ToolUse
from tests.hostile_text import check_inert
from tests.scenario.command_line import CommandLine
from tests.trees import Node, differences, tree
from treadle.frontends.cli.options import EXIT_OK, EXIT_REFUSED

SECRETS = tuple(f"canary-secret-{number}" for number in range(1, 8))
PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU\n"
FILES = {
    "app/__init__.py": "NAME = 'app'\n",
    "app/__main__.py": "print('app')\n",
    "AGENTS.md": "Be kind.\n",
    "Makefile": "all:\n\techo done > made.txt\n",
    "data/readme.md": "Data.\n",
    "dist/tracked.js": "1;\n",
    "docs/kindness.md": "Be kind.\n",
    "githooks/readme.md": "Hooks.\n",
    "scripts/hook.sh": "#!/bin/sh\n",
    "scripts/monitor.sh": "#!/bin/sh\nexit 1\n",
    "conf/git.ini": "[core]\n\tfsmonitor = scripts/monitor.sh\n",
    ".gitignore": "build/\ndist/\n.venv/\nnode_modules/\n__pycache__/\n.env\n",
}
LINKS = {"CLAUDE.md": "docs/kindness.md", "githooks/post-checkout": "../scripts/hook.sh"}
LOOSE_FILES = {
    "notes.txt": "the only copy\n",
    "data/only.bin": "the only copy of data\n",
    ".env": f"DATABASE_PASSWORD={SECRETS[0]}\n",
    "id_rsa": PEM.format(SECRETS[1]),
    ".netrc": f"machine example.org login me password {SECRETS[2]}\n",
    "build/keep": "",
    ".venv/bin/tool": "#!/bin/sh\n",
    ".venv/lib/site-packages/lib.py": "",
    "node_modules/.bin/tool": "#!/bin/sh\n",
}
USER_FILES = {
    ".ssh/id_ed25519": PEM.format(SECRETS[3]),
    ".aws/credentials": f"aws_secret_access_key = {SECRETS[3]}\n",
    ".gitconfig": "[user]\n\tname = A\n\temail = a@example.org\n[init]\n\tdefaultBranch = main\n",
}
QUIET = {"TREADLE_VERIFY": "false", "TREADLE_DIAGNOSE": "false", "TREADLE_SUMMARIZE": "false"}
"""A script has no turns for what Treadle would say by itself."""
IMPORTS = """
import importlib, runpy, site, sys
site.addsitedir(".venv/lib/site-packages")
sys.path.insert(0, ".venv/lib/site-packages")
for load in (lambda: runpy.run_module("app", run_name="__main__"), lambda: importlib.import_module("sitecustomize"),
             lambda: importlib.import_module("lib")):
    try:
        load()
    except BaseException as error:
        print(error)
"""
"""All that Python would run of the project and its packages, in one process: a failure of one does not spare the
others."""
USER_PROGRAMS = (
    "git log -1",
    "git diff",
    "git commit -q --allow-empty -m mine",
    "git checkout -q -b mine",
    "git rebase --continue",
    f"python3 -c {shlex.quote(IMPORTS)}",
    ".venv/bin/tool",
    "node_modules/.bin/tool",
)


class Arena:
    def __init__(self, folder: Path) -> None:
        self.cli = CommandLine(folder)
        self.project = self.cli.project
        self.outside = folder / "outside"
        self._user = folder / "user"

    def copy(self, template: "Arena") -> "Arena":
        """Take the files of another arena, where git has done its work already."""
        for source, copy in ((template.project, self.project), (template.outside, self.outside)):
            shutil.copytree(source, copy, symlinks=True, dirs_exist_ok=True)
        shutil.copytree(template._user, self._user, dirs_exist_ok=True)
        (self.project / "linked.txt").unlink()
        os.link(self.outside / "linked.txt", self.project / "linked.txt")
        return self

    def lay_out(self) -> "Arena":
        self.outside.mkdir()
        (self.outside / "canary.txt").write_text("alive\n")
        (self.outside / "linked.txt").write_text("linked\n")
        _write_files(self._user, USER_FILES)
        _write_files(self.project, FILES)
        for link, target in LINKS.items():
            (self.project / link).symlink_to(target)
        for program in ("scripts/hook.sh", "scripts/monitor.sh"):
            (self.project / program).chmod(0o755)
        self._git("init", "-q")
        self._git("config", "core.hooksPath", "githooks")
        self._git("config", "--add", "include.path", "../team.gitconfig")
        self._git("config", "--add", "include.path", "../conf/git.ini")
        self._git("add", "-A", "-f")
        self._git("commit", "-q", "-m", "first")
        self._git("commit", "-q", "--allow-empty", "-m", "second")
        self._git("switch", "-q", "-c", "precious")
        self._git("commit", "-q", "--allow-empty", "-m", "only here")
        self._git("switch", "-q", "main")
        (self.project / "app/__init__.py").write_text("stashed only\n")
        self._git("stash", "-q")
        self._git("init", "-q", "--bare", "fixtures/bare")
        _write_files(self.project, LOOSE_FILES)
        for program in (".venv/bin/tool", "node_modules/.bin/tool"):
            (self.project / program).chmod(0o755)
        os.link(self.outside / "linked.txt", self.project / "linked.txt")
        (self.project / "out").symlink_to("../outside")
        return self

    def find_harm(self, attack: Attack) -> list[str]:
        """Play it, and let the user work afterwards. Empty: the attack did not get through."""
        _write_files(self.project, {path: self._fill_in(content) for path, content in attack.files})
        for path, _ in attack.files:
            (self.project / path).chmod(0o755)
        for words in attack.rules:
            self.cli("rules", "add", *words)  # some are refused, which is fine
        for path in attack.trusted:
            trusted = self.cli("trust", path)
            assert trusted.code == 0, trusted.err
        outside, user = tree(self.outside), tree(self._user)
        project, history = tree(self.project), self._history()
        output = "".join(self._play(attack))
        harm = _unwanted_changes(attack, project, tree(self.project))
        harm += [f"history: {line}" for line in sorted(history ^ self._history())]
        log, results = self._read_log()
        harm += [f"a tool's result holds {text!r}" for text in attack.unseen if text in results]
        script = self._script(attack)
        harm += [f"{text} in the output" for text in SECRETS if text in output]
        harm += [f"{text} in the log" for text in SECRETS if text in (results if text in script else log)]
        self._let_the_user_work()
        harm += [f"outside: {line}" for line in differences(outside, tree(self.outside))]
        harm += [f"the user's home: {line}" for line in differences(user, tree(self._user))]
        if harm:
            print(log)  # pytest shows it with the failure
        return harm

    def _play(self, attack: Attack) -> Iterator[str]:
        """The output of each run, and of stopping its background commands."""
        try:
            yield from self._run(attack)
        finally:  # a command that runs on would keep a core busy
            stopped = self.cli("jobs", "--stop")
        yield stopped.out + stopped.err

    def _run(self, attack: Attack) -> Iterator[str]:
        env = QUIET | dict(attack.settings) | {"DEPLOY_TOKEN": SECRETS[4]}
        for number, calls in enumerate(attack.runs):
            model = self.cli.script(self._script_of(calls, attack.runs[:number]), f"script{number}.toml")
            chat = ("--chat", "last") if number else ()
            run_result = self.cli("run", "Go.", "--model", model, "--headless", *attack.options, *chat, env=env)
            assert run_result.code in (EXIT_OK, EXIT_REFUSED), (run_result.code, run_result.err)
            check_inert(run_result.out)
            check_inert(run_result.err)
            yield run_result.out + run_result.err

    def _script(self, attack: Attack) -> str:
        return "".join(self._script_of(calls, ()) for calls in attack.runs)

    def _script_of(self, calls: tuple[ToolUse, ...], earlier: tuple[tuple[ToolUse, ...], ...]) -> str:
        """A script for the model. It holds the turns of earlier runs, too: the whole chat is one script."""
        played = [self._turn(use) for run in (*earlier, calls) for use in run]
        last_turn = ['[[turn]]\ntext = "Done."\n']
        counts = [len(run) for run in (*earlier, calls)]
        turns: list[str] = []
        for count in counts:
            turns += [*played[:count], *last_turn]
            played = played[count:]
        return "\n".join(turns)

    def _turn(self, use: ToolUse) -> str:
        arguments = self._fill_in(json.dumps(use.arguments))
        return f"[[turn]]\n[[turn.call]]\nname = {json.dumps(use.name)}\nraw = {json.dumps(arguments)}\n"

    def _fill_in(self, text: str) -> str:
        return text.replace("@MARK@", f"touch {self.outside}/marker").replace("@OUT@", str(self.outside))

    def _read_log(self) -> tuple[str, str]:
        """All of the exported chat with the outputs beside it; and the results of its tools alone."""
        exported = self.cli("export", "last")
        assert exported.code == 0, exported.err
        log, results = [exported.out], []
        for event in exported.events:
            blobs = [base64.b64decode(each).decode(errors="replace") for each in event.get("blobs", {}).values()]
            log += blobs
            if event["type"] == "tool.execution_complete":
                results += [str(event["data"].get("result")), str(event["data"].get("error")), *blobs]
        return "\n".join(log), "\n".join(results)

    def _history(self) -> frozenset[str]:
        """The repository as git lists it: references, commits, stashes, flags and kinds of the files in the index."""
        lines: set[str] = set()
        for words in (
            "for-each-ref",
            "rev-list --all",
            "stash list",
            "ls-files -v",
            "ls-files -s",
            "log -1 --format=%s",
        ):
            lines |= {f"{words}: {line}" for line in self._git(*words.split(), check=False).splitlines()}
        return frozenset(lines)

    def _let_the_user_work(self) -> None:
        """In one shell, each program in a subshell: none of them spares the others."""
        commands = []
        for folder, folders, _ in os.walk(self.project):
            if ".git" in folders:
                folders.remove(".git")
            commands.append(f"(cd {shlex.quote(folder)} && git status)")
        commands += [f"({program})" for program in USER_PROGRAMS]
        env = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self._user),
            "GIT_EDITOR": "true",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        subprocess.run(
            ["/bin/sh", "-c", "\n".join(commands)],
            cwd=self.project,
            env=env,
            capture_output=True,
            timeout=120,
            check=False,
        )

    def _git(self, *words: str, check: bool = True) -> str:
        env = {"PATH": os.environ["PATH"], "HOME": str(self._user)}
        process = subprocess.run(
            ["git", *words], cwd=self.project, env=env, capture_output=True, text=True, check=check
        )
        return process.stdout


def _unwanted_changes(attack: Attack, old_nodes: Mapping[str, Node], new_nodes: Mapping[str, Node]) -> list[str]:
    allowed = (*GIT_DATA, *attack.may_change)
    paths = {path for path in old_nodes.keys() | new_nodes.keys() if not any(_fits(path, each) for each in allowed)}
    return differences(
        {path: old_nodes[path] for path in paths & old_nodes.keys()},
        {path: new_nodes[path] for path in paths & new_nodes.keys()},
    )


def _fits(path: str, glob: str) -> bool:
    """`*` stays within a folder, `**` at the end covers all below it."""
    if glob.endswith("/**"):
        return path.startswith(glob[:-2])
    return path.count("/") == glob.count("/") and fnmatch.fnmatchcase(path, glob)


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
