"""Measures models at tasks whose outcome a command can check. Each attempt is a durable chat in a world of the task's
tree; a finished attempt is recorded and never repeated, so that an evaluation may be killed anywhere.

    tasks = read_suite(Path("evals"))
    results = await evaluate(agent, tasks, Plan(("openai:gpt-4.1",), attempts=3), Path("results"))
"""

from treadle.evaluation.attempts import Attempt
from treadle.evaluation.comparison import compare
from treadle.evaluation.report import text_report
from treadle.evaluation.results import Result, read_results
from treadle.evaluation.runner import Plan, evaluate
from treadle.evaluation.suites import read_suite
from treadle.evaluation.tasks import Task

__all__ = ["Attempt", "Plan", "Result", "Task", "compare", "evaluate", "read_results"]
__all__ += ["read_suite", "text_report"]
