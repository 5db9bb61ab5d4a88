"""The guide to permissions says what is so (S-05 to S-07)."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_examples import blocks, execute
from tests.unit.adapters.policy.kit import Judge, allow, ask
from tests.unit.adapters.policy.test_changes import build_creation
from treadle import Agent, ScriptedModel
from treadle.adapters.models.scripted import Call, Say
from treadle.library.agent import Agent as Runtime
from treadle.library.config import load
from treadle.protocol.options import MODES
from treadle.protocol.permissions import Rule

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "permissions.md"
TEXT = PAGE.read_text(encoding="utf-8")
WORDS = {"discarded": "discard", "asked for": "ask", "pass": "allow", "passes": "allow"}


def test_the_table_of_modes_names_all() -> None:
    assert re.findall(r"^\| `([a-z-]+)`", TEXT, flags=re.M) == list(MODES)


@pytest.mark.parametrize("mode", MODES)
async def test_the_table_of_modes_is_true(mode: Any) -> None:
    row = re.search(rf"^\| `{mode}`[^|]*\|(.+)\|$", TEXT, flags=re.M)
    assert row is not None
    nothing, plain, concern, sensitive = (WORDS[cell.strip()] for cell in row[1].split("|"))
    judge = Judge(mode=mode, rules=(ask("ruled.py", "edit_file"),))
    assert await judge.changing(command="ls") == nothing
    assert await judge.changing(build_creation("a.py"), command="ls") == plain
    assert await judge.changing(build_creation("run.sh", 0o755), command="ls") == concern
    assert await judge.changing(build_creation(".env"), command="ls") == sensitive
    assert await judge.changing(build_creation("ruled.py"), command="ls") == sensitive
    if mode == "read-only":
        assert await judge.edit("a.py") == "deny"


async def test_what_a_rule_does_not_cover() -> None:
    judge = Judge(rules=(allow("make test"),))
    section = TEXT[TEXT.index("It does not cover") : TEXT.index("There is no rule for")]
    commands = [text for text in re.findall(r"`([^`]+)`", section) if "make" in text]
    assert len(commands) >= 6
    for command in commands:
        assert await judge(command) == "ask", command
    assert await judge("cd sub && make test | tail") == "allow"


async def test_what_a_deny_rule_covers() -> None:
    section = TEXT[TEXT.index("A **deny** or **ask** rule") : TEXT.index("A `deny` rule for a host")]
    rules = tuple(
        Rule("deny", "run_command", f"{words} *") for words in ("git push", "docker run", "./deploy.sh", "pip")
    )
    commands = [text for text in re.findall(r"`([^`]+)`", section) if text != "deny" and not text.endswith("*")]
    assert len(commands) >= 8
    for command in commands:
        assert await Judge(mode="autopilot", rules=rules)(command.replace("…", "x")) in ("deny", "ask"), command


async def test_the_table_of_files(tmp_path: Path) -> None:
    (settings,) = re.findall(r"```toml\n(.*?)```", TEXT, flags=re.S)
    (tmp_path / "config.toml").write_text(settings)
    sensitive = load({"TREADLE_HOME": str(tmp_path)}).settings.sensitive
    assert sensitive == tomllib.loads(settings)["sensitive"]
    judge = Judge(sensitive=sensitive)
    paths = ("a.sql", "tests/x/a.sql", "poetry.lock", "uv.lock")
    assert [await judge.edit(path) for path in paths] == ["ask", "allow", "allow", "ask"]
    assert await Judge(sensitive={".env": True}).edit(".env") == "allow"


async def test_the_example_allows_what_waits(tmp_path: Path) -> None:
    names = await execute(blocks("docs/guide/permissions.md")["Approvals"], {})
    steps = [Call("write_file", path=".env", content="A=1\n"), Say("Done.")]
    async with Agent(model=ScriptedModel(steps)) as agent:
        assert isinstance(agent, Runtime)
        chat = agent.chat(root=str(tmp_path), interactive=True)
        assert (await chat.ask("Go.")).reason == "action_required"
        await names["allow_everything_once"](agent, chat.id)
        async for _event in chat.resume():
            pass
    assert (tmp_path / ".env").read_text() == "A=1\n"
