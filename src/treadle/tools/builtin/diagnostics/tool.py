"""get_diagnostics: errors and warnings of files, from the tools that their language has (T-06). It says who said what,
and who was missing; it changes nothing."""

from collections.abc import Sequence

from treadle.errors import ToolError
from treadle.ports.toolset import Invocation, Outcome
from treadle.ports.workspace import Workspace, inert
from treadle.protocol.tools import ToolSpec
from treadle.tools.builtin.base import PATH, ReadOnly, in_thread, parameters
from treadle.tools.builtin.diagnostics import data_files
from treadle.tools.builtin.diagnostics.diagnostic import Diagnostic, arranged, bounded, count
from treadle.tools.builtin.diagnostics.linters import GROUPS, Group, Target
from treadle.tools.builtin.diagnostics.lsp import SERVERS, ask_server
from treadle.tools.builtin.diagnostics.running import Asking, Said, Surroundings, ask_all, surroundings
from treadle.tools.builtin.means import Means

MAX_FILES = 20
MAX_BYTES = 2_000_000


class GetDiagnostics(ReadOnly):
    spec = ToolSpec(
        name="get_diagnostics",
        description=(
            "Errors and warnings of a file, from the tools of its language that are installed: a linter, a type "
            "checker, a compiler's syntax check, a language server. Use it after you have changed a file. Nothing is "
            f"changed or built. At most {MAX_FILES} files at once."
        ),
        parameters=parameters(
            path=PATH,
            paths={"type": "array", "items": PATH, "minItems": 1, "maxItems": MAX_FILES, "description": "Several."},
        ),
        read_only=True,
        idempotent=True,
        timeout_s=180.0,
        summary_argument="path",
    )

    def __init__(self, means: Means) -> None:
        self._means = means
        self._asking = Asking()

    async def run(self, invocation: Invocation) -> Outcome:
        """`quick` and `strict` are for checks of a completion: tools that answer at once, and errors as a failure."""
        arguments = invocation.arguments
        paths = [*([arguments["path"]] if arguments.get("path") else []), *(arguments.get("paths") or ())]
        if not paths:
            raise ToolError("Name a file: path, or paths for several.")
        quick, strict = bool(arguments.get("quick")), bool(arguments.get("strict"))
        workspace = self._means.workspace_of(invocation.root)
        around = await in_thread(surroundings, self._means, workspace, invocation.options.sandbox)
        said: list[Said] = []
        unknown: list[str] = []
        for path in dict.fromkeys(paths[:MAX_FILES]):
            answers = await self._diagnose(path, workspace, around, quick, strict)
            if not any(answer.by for answer in answers):
                unknown.append(path)
            said += answers
        return _outcome(said, unknown, strict, around.level)

    async def _diagnose(
        self, path: str, workspace: Workspace, around: Surroundings, quick: bool, strict: bool
    ) -> list[Said]:
        try:
            relative = await in_thread(workspace.relative, path)
            data = await in_thread(workspace.read_bytes, path, MAX_BYTES)
        except ToolError as error:
            if strict:
                return []  # it is gone by now, or too large to be judged
            raise ToolError(str(error)) from error
        if (parsed := await in_thread(data_files.diagnose, relative, data)) is not None:
            return [Said(parsed[0], tuple(parsed[1]))]
        ending = relative.rpartition(".")[2].lower()
        target = Target(workspace.path, relative, data)
        groups = [_quick(group) if quick else group for group in GROUPS.get(ending, ())]
        said = await ask_all(self._asking, [group for group in groups if group], target, around)
        thorough = any(answer.by and not _is_quick(answer.by, ending) for answer in said)
        if not quick and not thorough and ending in SERVERS:
            server = await ask_server(target, around)
            if server.by or server.failed or not any(answer.by for answer in said):
                said.append(server)  # that there is none is worth a word only where nobody else could be asked
        return said


def _quick(group: Group) -> Group:
    return tuple(linter for linter in group if linter.quick)


def _is_quick(name: str, ending: str) -> bool:
    return any(linter.name == name and linter.quick for group in GROUPS.get(ending, ()) for linter in group)


def _outcome(said: Sequence[Said], unknown: Sequence[str], strict: bool, level: str) -> Outcome:
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
    text = "\n".join([head, *lines, *([] if strict and not lines else notes)])
    return Outcome(text, summary=head.rstrip("."), success=not (strict and errors), sandbox=level)


def _notes(said: Sequence[Said], unknown: Sequence[str]) -> list[str]:
    notes: list[str] = []
    missing = list(dict.fromkeys(name for answer in said for name in answer.missing))
    if missing:
        notes.append(f"Not installed: {', '.join(missing)}.")
    withheld = list(dict.fromkeys(answer.withheld for answer in said if answer.withheld))
    if withheld:
        notes.append(f"Not asked, because it would run the project's code without a sandbox: {', '.join(withheld)}.")
    notes += list(dict.fromkeys(f"{inert(answer.failed)}." for answer in said if answer.failed))
    if unknown:
        notes.append(f"No tool is known or installed for: {', '.join(inert(path) for path in unknown)}.")
    return notes
