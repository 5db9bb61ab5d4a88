"""Files in the loop: the log records which files the model has seen, so any worker notices a change behind its back
(T-13, fault 21), also when a person is asked."""

import re
from pathlib import Path

from tests.scenario.kit import Stage, play, results
from treadle import tool
from treadle.adapters.models.scripted import Call, Say
from treadle.ports.policy import Verdict
from treadle.ports.toolset import Invocation
from treadle.protocol.options import ChatOptions
from treadle.protocol.tools import ToolSpec

EDIT = Call("edit_file", path="a.txt", old_str="two", new_str="zwei")


class AskBeforeWriting:
    async def review(self, spec: ToolSpec, invocation: Invocation, options: ChatOptions) -> Verdict:
        return Verdict("allow" if spec.read_only else "ask", "it writes")


async def test_a_change_behind_the_models_back_is_shown_once(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\ntwo\n")

    @tool
    def meddle() -> str:
        """Someone else edits the file."""
        file.write_text("ONE\ntwo\n")
        return "done"

    steps = [Call("read_file", path="a.txt"), Call("meddle"), EDIT, EDIT, Say("Good.")]
    chat = stage.agent(steps, meddle, builtin=True).chat(root=str(tmp_path))
    await play(chat.send("Go."))
    read, _, refused, edit = await results(chat)
    assert read.startswith("a.txt (2 lines)")
    assert "Nothing was written. a.txt was changed on disk since you last saw it" in refused
    assert re.search(r"-one\n\+ONE", refused)
    assert edit.startswith("Changed a.txt (+1 -1).")
    assert file.read_text() == "ONE\nzwei\n"


async def test_it_is_noticed_after_a_restart_and_when_a_person_is_asked(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\ntwo\n")
    steps = [Call("read_file", path="a.txt"), Say("Read."), EDIT, EDIT, Say("Good.")]
    chat = stage.agent(steps, builtin=True).chat(root=str(tmp_path), interactive=True)
    await play(chat.send("Read."))
    await stage.kill()
    file.write_text("ONE\ntwo\n")
    again = stage.agent(steps, builtin=True, policy=AskBeforeWriting()).chat(chat.id)
    await play(again.send("Edit."))
    (action,) = await again.actions()  # the first try was refused without asking anybody
    assert "-two\n+zwei" in action.text
    await play(again.approve(action))
    assert file.read_text() == "ONE\nzwei\n"
    assert "changed on disk" in (await results(again))[1]
