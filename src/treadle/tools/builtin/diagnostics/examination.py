"""Examining the files of one call of get_diagnostics: data files by reading them, others by whoever is installed for
their language, a language server last (T-06). Loaded with the first call, because it brings all that with it."""

from collections.abc import Sequence

from treadle.errors import ToolError
from treadle.ports.toolset import Invocation, Outcome
from treadle.ports.workspace import Workspace, inert
from treadle.tools.builtin.base import in_thread
from treadle.tools.builtin.context import ToolContext
from treadle.tools.builtin.diagnostics import data_files
from treadle.tools.builtin.diagnostics.diagnostic import Diagnostic, arranged, bounded, count
from treadle.tools.builtin.diagnostics.linters import GROUPS, Target
from treadle.tools.builtin.diagnostics.lsp import SERVERS, ask_server
from treadle.tools.builtin.diagnostics.running import Asking, LinterAnswer, LinterContext, linter_context

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
        said: list[LinterAnswer] = []
        unknown: list[str] = []
        for path in dict.fromkeys(paths):
            answers = await self._diagnose(path, workspace, around, quick, strict)
            if not any(answer.by or answer.failed for answer in answers):
                unknown.append(path)
            said += answers
        return _outcome(said, unknown, strict, around.level)

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
        said = await self._asking.ask_all(filter(None, groups), target, around)
        thorough = any(answer.by and not _is_quick(answer.by, ending) for answer in said)
        if not quick and not thorough and ending in SERVERS:
            server = await ask_server(target, around)
            if server.by or server.failed or not any(answer.by for answer in said):
                said.append(server)  # that there is none is worth a word only where nobody else could be asked
        return said


def _is_quick(name: str, ending: str) -> bool:
    return any(linter.name == name and linter.quick for group in GROUPS.get(ending, ()) for linter in group)


def _outcome(said: Sequence[LinterAnswer], unknown: Sequence[str], strict: bool, level: str) -> Outcome:
    found = arranged(each for answer in said for each in answer.found)
    errors = [each for each in found if each.severity == "error"]
    shown: list[Diagnostic] = bounded(errors if strict else found)
    lines = [each.text for each in shown]
    left = len(errors if strict else found) - len(shown)
    lines += [f"[{left} more]"] if left else []
    head = count(errors if strict else found) if lines else "No errors or warnings."
    looked = list(dict.fromkeys(answer.by for answer in said if answer.by))
    if not looked:
        head = "No tool for this could be asked."
    notes = [f"Asked: {', '.join(looked)}."] if looked else []
    notes += _notes(said, unknown if looked else [])
    if strict and not lines:
        notes = _failures(said)
    text = "\n".join([head, *lines, *notes])
    return Outcome(text, summary=head.rstrip("."), success=not (strict and errors), sandbox=level)


def _failures(answers: Sequence[LinterAnswer]) -> list[str]:
    return list(dict.fromkeys(f"{inert(reason)}." for answer in answers for reason in answer.failed))


def _notes(said: Sequence[LinterAnswer], unknown: Sequence[str]) -> list[str]:
    notes: list[str] = []
    missing = list(dict.fromkeys(name for answer in said for name in answer.missing))
    if missing:
        notes.append(f"Not installed: {', '.join(missing)}.")
    withheld = list(dict.fromkeys(answer.withheld for answer in said if answer.withheld))
    if withheld:
        why = "it could run the project's code or read files outside"
        notes.append(f"Not asked without a sandbox, because {why}: {', '.join(withheld)}.")
    notes += _failures(said)
    if unknown:
        notes.append(f"No tool is known or installed for: {', '.join(inert(path) for path in unknown)}.")
    return notes
