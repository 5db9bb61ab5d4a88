"""Tools that leave facts in the log (T-07, L-13)."""

from treadle.adapters.tools.builtin.interaction import ASK_USER, CompleteTask, UpdatePlan
from treadle.adapters.tools.validate import find_problem
from treadle.protocol.content import PlanStep
from treadle.protocol.events import PlanUpdated, TaskComplete


async def test_task_complete(call) -> None:
    outcome = await CompleteTask().run(call(summary="All done."))
    assert outcome.facts == (TaskComplete("All done."),)
    assert await CompleteTask().settle(call(summary="")) == "run_again"


async def test_update_plan(call) -> None:
    steps = [{"text": "read", "status": "done"}, {"text": "write", "status": "in_progress"}]
    assert find_problem(UpdatePlan.spec.parameters, {"steps": steps}) == ""
    outcome = await UpdatePlan().run(call(steps=steps))
    assert outcome.facts == (PlanUpdated((PlanStep("read", "done"), PlanStep("write", "in_progress"))),)
    assert outcome.summary == "1 of 2 steps done"


def test_what_does_not_fit() -> None:
    assert "`steps[0].status` must be one of" in find_problem(
        UpdatePlan.spec.parameters, {"steps": [{"text": "a", "status": "soon"}]}
    )
    assert "missing" in find_problem(CompleteTask.spec.parameters, {})
    assert find_problem(ASK_USER.parameters, {"question": "Which?", "options": ["a"]}) == ""
    assert find_problem(ASK_USER.parameters, {"question": ""})
