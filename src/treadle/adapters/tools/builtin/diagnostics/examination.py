"""Examines the files of one call of get_diagnostics: data files by parsing them, others by the installed tools for
their language, a language server last (T-06). Loaded with the first call, because of its many imports."""

from collections.abc import Sequence

from treadle.adapters.tools.builtin.base import in_thread
from treadle.adapters.tools.builtin.context import ToolContext
from treadle.adapters.tools.builtin.diagnostics import data_files
from treadle.adapters.tools.builtin.diagnostics.diagnostic import Diagnostic, arranged, bounded, count
from treadle.adapters.tools.builtin.diagnostics.linters import GROUPS, Target
from treadle.adapters.tools.builtin.diagnostics.lsp import SERVERS, ask_server
from treadle.adapters.tools.builtin.diagnostics.running import Asking, LinterAnswer, LinterContext, linter_context
from treadle.errors import ToolError
from treadle.ports.toolset import Invocation, Outcome
from treadle.ports.workspace import Workspace, inert

MAX_BYTES = 2_000_000


class Examination:
    """Remembers what tools said about the same bytes before."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._asking = Asking()

    async def examine(self, paths: Sequence[str], invocation: Invocation) -> Outcome:
        quick, strict = bool(invocation.arguments.get("quick")), bool(invocation.arguments.get("strict"))
        workspace = self._context.workspace_of(*invocation.project)
        around = await in_thread(linter_context, self._context, workspace, invocation)
        all_answers: list[LinterAnswer] = []
        unknown: list[str] = []
        for path in dict.fromkeys(paths):
            answers = await self._diagnose(path, workspace, around, quick, strict)
            if not any(answer.by or answer.failed for answer in answers):
                unknown.append(path)
            all_answers += answers
        return _outcome(all_answers, unknown, strict, around.level)

    async def _diagnose(
        self, path: str, workspace: Workspace, around: LinterContext, quick: bool, strict: bool
    ) -> list[LinterAnswer]:
        try:
            relative = await in_thread(workspace.relative, path)
            data = await in_thread(workspace.read_bytes, path, MAX_BYTES)
        except ToolError as error:
            if strict:
                return []  # it is gone by now, or too large to be judged
            raise ToolError(str(error)) from error
        if (parsed := await in_thread(data_files.diagnose, relative, data)) is not None:
            return [LinterAnswer(parsed[0], tuple(parsed[1]))]
        ending = relative.rpartition(".")[2].lower()
        target = Target(workspace.path, relative, data)
        groups = [tuple(each for each in group if each.quick or not quick) for group in GROUPS.get(ending, ())]
        answers = await self._asking.ask_all(filter(None, groups), target, around)
        thorough = any(answer.by and not _is_quick(answer.by, ending) for answer in answers)
        if not quick and not thorough and ending in SERVERS:
            server = await ask_server(target, around)
            if server.by or server.failed or not any(answer.by for answer in answers):
                answers.append(server)  # a missing server is mentioned only if no other tool answered
        return answers


def _is_quick(name: str, ending: str) -> bool:
    return any(linter.name == name and linter.quick for group in GROUPS.get(ending, ()) for linter in group)


def _outcome(answers: Sequence[LinterAnswer], unknown: Sequence[str], strict: bool, level: str) -> Outcome:
    diagnostics = arranged(each for answer in answers for each in answer.diagnostics)
    errors = [each for each in diagnostics if each.severity == "error"]
    shown_diagnostics: list[Diagnostic] = bounded(errors if strict else diagnostics)
    lines = [each.text for each in shown_diagnostics]
    remaining_count = len(errors if strict else diagnostics) - len(shown_diagnostics)
    lines += [f"[{remaining_count} more]"] if remaining_count else []
    head = count(errors if strict else diagnostics) if lines else "No errors or warnings."
    looked = list(dict.fromkeys(answer.by for answer in answers if answer.by))
    if not looked:
        head = "No tool for this could be asked."
    notes = [f"Asked: {', '.join(looked)}."] if looked else []
    notes += _notes(answers, unknown if looked else [])
    if strict and not lines:
        notes = _failures(answers)
    text = "\n".join([head, *lines, *notes])
    return Outcome(text, summary=head.rstrip("."), success=not (strict and errors), sandbox=level)


def _failures(answers: Sequence[LinterAnswer]) -> list[str]:
    return list(dict.fromkeys(f"{inert(reason)}." for answer in answers for reason in answer.failed))


def _notes(answers: Sequence[LinterAnswer], unknown: Sequence[str]) -> list[str]:
    notes: list[str] = []
    missing = list(dict.fromkeys(name for answer in answers for name in answer.missing))
    if missing:
        notes.append(f"Not installed: {', '.join(missing)}.")
    withheld = list(dict.fromkeys(answer.withheld for answer in answers if answer.withheld))
    if withheld:
        reason = "it could run the project's code or read files outside"
        notes.append(f"Not asked without a sandbox, because {reason}: {', '.join(withheld)}.")
    notes += _failures(answers)
    if unknown:
        notes.append(f"No tool is known or installed for: {', '.join(inert(path) for path in unknown)}.")
    return notes
