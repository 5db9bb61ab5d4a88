"""Scenes of the plain loop: answers, tools, summaries."""

from tests.scenario.scenes.world import (
    PRICED,
    World,
    ask,
    scene,
)
from treadle.adapters.models.scripted import Call, Fail, Finish, RawCall, ReportUsage, Say, ScriptedModel, Think, Turn
from treadle.base.types import ChatId
from treadle.protocol.content import Thinking, Usage
from treadle.protocol.deltas import FinishDelta, NoticeDelta, ThinkingBlock


@scene
async def plain_answers(world: World) -> ChatId:
    first_turn = [
        Think("Hm."),
        ThinkingBlock(Thinking("deep", "c2lnbmVk")),
        Say("Hello."),
        ReportUsage(Usage(10, 5, 2, 1)),
    ]
    model = ScriptedModel([first_turn, [Say("Bye."), Finish("length")], [Say("")]], info=PRICED)
    return await ask(world, model, "Hello?", "And now?", "Nothing more.")


@scene
async def tools_that_read_and_write(world: World) -> ChatId:
    (world.root / "a.txt").write_text("one\ntwo\n")
    steps = [
        [Say("Let me see."), Call("read_file", path="a.txt"), Call("list_files", path="."), Call("look", what="it")],
        [Call("edit_file", path="a.txt", old_str="two", new_str="2"), Call("write_file", path="b.txt", content="b\n")],
        [Call("update_plan", steps=[{"text": "go on", "status": "in_progress"}]), Call("read_file", path="b.txt")],
        [Call("run_command", command="echo hello; exit 3")],
        [Say("Done."), Call("task_complete", summary="changed a and b")],
    ]
    return await ask(world, ScriptedModel(steps), "Change a.")


@scene
async def reads_that_end_out_of_order(world: World) -> ChatId:
    calls = [Call("peek", what="slow", wait=0.05), Call("peek", what="quick"), Call("peek", what="mid", wait=0.02)]
    steps = [[*calls, Call("change", what="x"), Call("peek", what="last")], Say("Seen.")]
    return await ask(world, ScriptedModel(steps), "Look.")


@scene
async def tools_that_fail(world: World) -> ChatId:
    steps = [
        [Call("stumble"), Call("read_file", path="no.txt"), Call("look", what="a"), Call("look")],
        [Call("edit_file", path="no.txt", old_str="a", new_str="b"), Call("no_such_tool", x=1)],
        [RawCall("look", '{"what": '), RawCall("", "{}"), RawCall("look", '{"what": 7}', id="same")],
        [RawCall("change", '{"what": "y", "times": "3"}', id="same"), RawCall("look", "null")],
        [Call("read_file", path="../outside"), Call("look", what="a"), Call("look", what="a")],
        Say("So it goes."),
    ]
    return await ask(world, ScriptedModel(steps), "Try.")


@scene
async def a_chat_without_a_root(world: World) -> ChatId:
    return await ask(world, ScriptedModel([Call("read_file", path="a.txt"), Say("No files.")]), "Read.", root="")


@scene
async def a_run_without_words(world: World) -> ChatId:
    model = ScriptedModel([Call("look", what="a"), Say("")], side_answers={"summary": "It was looked at."})
    return await ask(world, model, "Look.")


@scene
async def a_summary_that_fails(world: World) -> ChatId:
    broken = Turn((ReportUsage(Usage(100, 7)), Say("It w"), Fail("overloaded", times=0)))
    model = ScriptedModel([Call("look", what="a"), Say("")], side_answers={"summary": broken}, info=PRICED)
    return await ask(world, model, "Look.")


@scene
async def notices_and_odd_ends(world: World) -> ChatId:
    odd = [
        NoticeDelta("ladder", "text calls"),
        NoticeDelta("dropped", "temperature"),
        Say("Cut"),
        FinishDelta("length"),
    ]
    return await ask(world, ScriptedModel([odd]), "Say.")
