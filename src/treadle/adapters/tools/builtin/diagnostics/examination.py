"""Examines the files of one call of get_diagnostics: data files by parsing them, others by the installed tools for
their language, a language server last (T-06). Loaded with the first call, because of its many imports."""

import asyncio
import json
import re
from collections.abc import Sequence

from treadle.adapters.tools.builtin.base import in_thread
from treadle.adapters.tools.builtin.context import ToolContext
from treadle.adapters.tools.builtin.diagnostics.linters import GROUPS, Diagnostic, Target, arranged, bounded, count
from treadle.adapters.tools.builtin.diagnostics.lsp import SERVERS, ask_server
from treadle.adapters.tools.builtin.diagnostics.running import Asking, LinterAnswer, LinterContext, linter_context
from treadle.errors import ToolError
from treadle.ports.toolset import Invocation, Outcome
from treadle.ports.workspace import Workspace, inert

MAX_BYTES = 2_000_000
_AT = re.compile(r"\(at line (\d+), column (\d+)\)")
_WITH_COMMENTS = re.compile(
    r"(?:^|/)(?:tsconfig[^/]*|jsconfig[^/]*|\.eslintrc|\.?devcontainer)\.json$|(?:^|/)\.vscode/"
)
"""JSON that may have comments by custom: not judged."""


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
        if (parsed := await in_thread(diagnose_data, relative, data)) is not None:
            return [LinterAnswer(parsed[0], tuple(parsed[1]))]
        ending = relative.rpartition(".")[2].lower()
        target = Target(workspace.path, relative, data)
        groups = [tuple(each for each in group if each.quick or not quick) for group in GROUPS.get(ending, ())]
        answers = await asyncio.gather(*(self._asking.ask(group, target, around) for group in groups if group))
        quick_names = {linter.name for group in GROUPS.get(ending, ()) for linter in group if linter.quick}
        thorough = any(answer.by and answer.by not in quick_names for answer in answers)
        if not quick and not thorough and ending in SERVERS:
            server = await ask_server(target, around)
            if server.by or server.failed or not any(answer.by for answer in answers):
                answers.append(server)  # a missing server is mentioned only if no other tool answered
        return answers


def _outcome(answers: Sequence[LinterAnswer], unknown: Sequence[str], strict: bool, level: str) -> Outcome:
    diagnostics = arranged(each for answer in answers for each in answer.diagnostics)
    errors = [each for each in diagnostics if each.severity == "error"]
    reported = errors if strict else diagnostics
    shown_diagnostics = bounded(reported)
    lines = [each.text for each in shown_diagnostics]
    lines += [f"[{len(reported) - len(lines)} more]"] if len(reported) > len(lines) else []
    head = count(reported) if lines else "No errors or warnings."
    failures = list(dict.fromkeys(f"{inert(reason)}." for answer in answers for reason in answer.failed))
    looked = list(dict.fromkeys(answer.by for answer in answers if answer.by))
    missing = list(dict.fromkeys(name for answer in answers for name in answer.missing))
    withheld = list(dict.fromkeys(answer.withheld for answer in answers if answer.withheld))
    notes = [f"Asked: {', '.join(looked)}."] if looked else []
    notes += [f"Not installed: {', '.join(missing)}."] if missing else []
    if withheld:
        reason = "it could run the project's code or read files outside"
        notes.append(f"Not asked without a sandbox, because {reason}: {', '.join(withheld)}.")
    notes += failures
    if not looked:
        head = "No tool for this could be asked."
    elif unknown:
        notes.append(f"No tool is known or installed for: {', '.join(map(inert, unknown))}.")
    if strict and not lines:
        notes = failures
    text = "\n".join([head, *lines, *notes])
    return Outcome(text, summary=head.rstrip("."), success=not (strict and errors), sandbox=level)


# -- files that are data: parsed here, in the process -----------------------------------------------------------------


def diagnose_data(path: str, data: bytes) -> tuple[str, list[Diagnostic]] | None:
    """The name of the checker and its findings; None if there is no checker for such a file."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return "utf-8", [Diagnostic(path, data[: error.start].count(b"\n") + 1, 0, "error", str(error), "utf-8")]
    match path.rpartition(".")[2].lower():
        case "json" if not _WITH_COMMENTS.search(path):
            return "json", _json(path, text)
        case "toml":
            return "toml", _toml(path, text)
        case "yaml" | "yml":
            return _yaml(path, text)
    return None


def _json(path: str, text: str) -> list[Diagnostic]:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return [Diagnostic(path, error.lineno, error.colno, "error", error.msg, "json")]
    except RecursionError:
        return [Diagnostic(path, 0, 0, "warning", "nested too deeply to be read", "json")]
    return []


def _toml(path: str, text: str) -> list[Diagnostic]:
    import tomllib

    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        at = _AT.search(message)
        line, column = (int(at[1]), int(at[2])) if at else (0, 0)
        return [Diagnostic(path, line, column, "error", _AT.sub("", message).strip(), "toml")]
    except RecursionError:
        return [Diagnostic(path, 0, 0, "warning", "nested too deeply to be read", "toml")]
    return []


def _yaml(path: str, text: str) -> tuple[str, list[Diagnostic]] | None:
    """With PyYAML, if it happens to be installed."""
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return None
    try:
        for _event in yaml.parse(text, Loader=yaml.SafeLoader):
            pass
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
        return "yaml", [Diagnostic(path, line, column, "error", error.problem or str(error), "yaml")]
    except (yaml.YAMLError, RecursionError) as error:
        return "yaml", [Diagnostic(path, 0, 0, "error", str(error), "yaml")]
    return "yaml", []
