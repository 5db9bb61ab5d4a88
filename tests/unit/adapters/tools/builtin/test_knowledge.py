"""Read before write (T-13, fault 21): the model's knowledge of a file is compared with the file."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.adapters.tools.contexts import context_with
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin.edit import ApplyPatch, EditFile, WriteFile
from treadle.adapters.tools.builtin.read import ReadFile
from treadle.base.types import CallKey, ChatId
from treadle.errors import Conflict, ToolError
from treadle.ports.toolset import Invocation, Outcome
from treadle.protocol.content import KnownFile
from treadle.protocol.options import ChatOptions


class Model:
    """Calls tools one after the other, and remembers what it has seen, as the log does."""

    def __init__(self, project: Path) -> None:
        context = context_with(MemoryStore())
        self.tools: dict[str, Any] = {
            "read": ReadFile(context),
            "write": WriteFile(context),
            "edit": EditFile(context),
            "patch": ApplyPatch(context),
        }
        self.project = project
        self.seen: dict[str, str] = {}

    async def __call__(self, name: str, **arguments: Any) -> Outcome:
        tool = self.tools[name]
        options = ChatOptions(root=str(self.project))
        invocation = Invocation(
            ChatId("c_1"), CallKey("1.0"), name, arguments, options=options, known_files=dict(self.seen)
        )
        try:
            plan = await tool.prepare(invocation)
            outcome: Outcome = await tool.run(msgspec.structs.replace(invocation, plan=plan))
        except Conflict as conflict:
            self.seen |= conflict.seen
            raise
        self.seen |= {known_file.path: known_file.digest for known_file in outcome.known_files}
        return outcome


@pytest.fixture
def model(project: Path) -> Model:
    return Model(project)


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("write", {"path": "a", "content": "all new\n"}),
    ("edit", {"path": "a", "old_str": "two", "new_str": "zwei"}),
    ("edit", {"path": "a", "content": "all new\n"}),
    ("patch", {"patch": "*** Update File: a\n@@\n-two\n+zwei"}),
    ("patch", {"patch": "*** Delete File: a"}),
]


@pytest.mark.parametrize(("name", "arguments"), CHANGES)
async def test_a_file_that_changed_since_is_not_changed(
    model: Model, project: Path, name: str, arguments: dict[str, Any]
) -> None:
    (project / "a").write_bytes(b"one\ntwo\nthree\n")
    await model("read", path="a")
    (project / "a").write_bytes(b"ONE\ntwo\nthree\n")
    with pytest.raises(Conflict) as caught:
        await model(name, **arguments)
    assert "a was changed on disk since you last saw it" in str(caught.value)
    assert "-one\n+ONE" in str(caught.value)  # the difference, and nothing else of it
    assert (project / "a").read_bytes() == b"ONE\ntwo\nthree\n"
    await model(name, **arguments)  # the refusal has shown it
    assert not (project / "a").exists() or (project / "a").read_bytes() in (b"all new\n", b"ONE\nzwei\nthree\n")


async def test_a_patch_shows_what_changed_even_if_it_no_longer_fits(model: Model, project: Path) -> None:
    (project / "a").write_bytes(b"one\ntwo\n")
    await model("read", path="a")
    (project / "a").write_bytes(b"one\n2\n")
    for call in (("edit", {"path": "a", "old_str": "two", "new_str": "x"}), CHANGES[3]):
        model.seen["a"] = hashlib.sha256(b"one\ntwo\n").hexdigest()
        with pytest.raises(Conflict, match=r"-two\n\+2"):
            await model(call[0], **call[1])


async def test_what_the_model_wrote_itself_it_knows(model: Model, project: Path) -> None:
    await model("write", path="a", content="one\n")
    await model("write", path="a", content="two\n")
    await model("edit", path="a", old_str="two", new_str="three")
    await model("patch", patch="*** Update File: a\n@@\n-three\n+four")
    assert (project / "a").read_bytes() == b"four\n"
    (project / "a").write_bytes(b"five\n")
    with pytest.raises(Conflict, match=r"-four\n\+five"):
        await model("write", path="a", content="six\n")


async def test_a_file_never_read_is_not_overwritten(model: Model, project: Path) -> None:
    (project / "a").write_bytes(b"one\n")
    with pytest.raises(ToolError, match=r"exists already \(1 line\) and you have not read it") as caught:
        await model("write", path="a", content="new\n")
    assert "read_file" in str(caught.value)
    assert (project / "a").read_bytes() == b"one\n"
    await model("edit", path="a", old_str="one", new_str="two")  # old_str proves what it knows
    assert (project / "a").read_bytes() == b"two\n"


async def test_what_nobody_can_miss_may_be_written(model: Model, project: Path) -> None:
    (project / "empty").write_bytes(b"")
    (project / "same").write_bytes(b"same\n")
    await model("write", path="empty", content="new\n")
    assert "already has exactly this content" in (await model("write", path="same", content="same\n")).text
    assert (project / "empty").read_bytes() == b"new\n"


async def test_a_file_that_was_deleted(model: Model, project: Path) -> None:
    (project / "a").write_bytes(b"one\n")
    await model("read", path="a")
    (project / "a").unlink()
    with pytest.raises(ToolError, match="does not exist any more"):
        await model("edit", path="a", old_str="one", new_str="two")
    with pytest.raises(Conflict, match="was deleted by someone else"):
        await model("write", path="a", content="new\n")
    await model("write", path="a", content="new\n")
    assert (project / "a").read_bytes() == b"new\n"


async def test_a_file_that_came_back(model: Model, project: Path) -> None:
    (project / "a").write_bytes(b"one\n")
    await model("patch", patch="*** Delete File: a")
    assert model.seen == {"a": ""}
    (project / "a").write_bytes(b"the user's\n")
    with pytest.raises(Conflict, match=r"\+the user's"):
        await model("write", path="a", content="new\n")
    await model("write", path="a", content="new\n")


async def test_without_the_old_bytes_the_model_must_read_again(model: Model, project: Path) -> None:
    (project / "a").write_bytes(b"x\n" * 600_000)  # too much to be kept
    assert (await model("read", path="a", end_line=2)).known_files == (
        KnownFile("a", hashlib.sha256(b"x\n" * 600_000).hexdigest()),
    )
    (project / "a").write_bytes(b"y\n" * 10)
    for _ in range(2):  # nothing was shown, so it is not seen
        with pytest.raises(Conflict, match=r"Read it again \(lines 1 to 10\)"):
            await model("edit", path="a", old_str="y", new_str="z", replace_all=True)
    await model("read", path="a")
    await model("edit", path="a", old_str="y", new_str="z", replace_all=True)
    assert (project / "a").read_bytes() == b"z\n" * 10


async def test_other_spellings_of_a_path_are_the_same_file(model: Model, project: Path) -> None:
    (project / "d").mkdir()
    (project / "d/a").write_bytes(b"one\n")
    await model("read", path="./d/../d/a")
    await model("write", path=str(project / "d/a"), content="two\n")
    assert model.seen == {"d/a": hashlib.sha256(b"two\n").hexdigest()}
