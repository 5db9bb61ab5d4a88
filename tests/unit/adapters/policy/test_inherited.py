"""Where a command is judged by its words, what earlier commands left it counts (S-18, T-14)."""

import pytest

from tests.unit.adapters.policy.kit import Judge, allow, call, deny
from treadle.adapters.policy.changes import find_act
from treadle.ports.toolset import Rehearsal
from treadle.protocol.content import Shell
from treadle.protocol.tools import ToolSpec

CHANGED = Shell("sub", {"PATH": "/project/evil:/usr/bin"})
ORDINARY = Shell("sub", {"LANG": "C", "TERM": "xterm", "LC_ALL": "C"})


async def test_a_changed_path_makes_a_harmless_command_unknown() -> None:
    judge = Judge()
    assert await judge("ls") == "allow"
    judge.shell = ORDINARY
    assert await judge("ls") == "allow"
    judge.shell = CHANGED
    verdict = await judge.verdict("run_command", command="ls")
    assert verdict.decision == "ask"
    assert "earlier commands changed PATH" in verdict.reason
    assert "PATH=/project/evil:/usr/bin" in verdict.approval_text
    assert "in the folder: sub" in verdict.approval_text
    assert verdict.offers == ()
    assert (await judge.verdict("run_command", command="ls", fresh=True)).decision == "allow"


@pytest.mark.parametrize("shell", [CHANGED, Shell(exports={"PYTHONPATH": "evil"}), Shell(unset=("PATH",))])
async def test_no_rule_covers_it(shell: Shell) -> None:
    judge = Judge(rules=(allow("make test"), deny("rm *")))
    assert await judge("make test") == "allow"
    judge.shell = shell
    assert await judge("make test") == "ask"
    assert await judge("rm x") == "deny"


async def test_on_a_view_its_effect_decides_as_before() -> None:
    judge = Judge()
    judge.shell = CHANGED
    assert (await judge.review_rehearsed_call(Rehearsal(""), "run_command", command="make all")).decision == "allow"


async def test_what_it_needs_of_the_network_is_asked_for_with_what_it_inherits() -> None:
    judge = Judge(rules=(allow("pip install *"),))
    judge.shell = CHANGED
    verdict = await judge.review_rehearsed_call(Rehearsal(""), "run_command", command="pip install x")
    assert verdict.decision == "ask"
    assert verdict.wants == ("pypi",)
    assert "PATH=/project/evil:/usr/bin" in verdict.approval_text


def test_the_judge_sees_the_folder() -> None:
    spec = ToolSpec("run_command", command_argument="command")
    act = find_act(spec, call("run_command", shell=Shell("deep"), command="rm .env"))
    assert (act.folder, act.files) == ("deep", ("deep/.env",))
