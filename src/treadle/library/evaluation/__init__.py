"""Measures models at tasks whose outcome a command can check. Each attempt is a durable chat in a world of the task's
tree; a finished attempt is recorded and never repeated, so that an evaluation may be killed anywhere.

    tasks = read_suite(Path("evals"))
    results = await evaluate(agent, tasks, Plan(("openai:gpt-4.1",), attempts=3), Path("results"))
"""

from treadle.library.evaluation.attempts import Attempt, Plan, evaluate
from treadle.library.evaluation.report import compare, text_report
from treadle.library.evaluation.tasks import Result, Task, read_results, read_suite

__all__ = ["Attempt", "Plan", "Result", "Task", "compare", "evaluate", "read_results"]
__all__ += ["read_suite", "text_report"]
