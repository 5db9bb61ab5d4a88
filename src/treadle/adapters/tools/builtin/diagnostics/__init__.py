"""get_diagnostics: errors and warnings of files, from the tools that their language has (T-06). It says who said what,
and who was missing; it changes nothing. The work is in `examination`."""

from typing import TYPE_CHECKING

from treadle.adapters.tools.builtin.base import PATH, WithContext, build_parameters
from treadle.errors import ToolError
from treadle.ports.toolset import Invocation, Outcome, ReadOnlyTool
from treadle.protocol.tools import ToolSpec

if TYPE_CHECKING:
    from treadle.adapters.tools.builtin.diagnostics.running import Examination

MAX_FILES = 20


class GetDiagnostics(WithContext, ReadOnlyTool):
    _examination: "Examination | None" = None
    spec = ToolSpec(
        name="get_diagnostics",
        description=(
            "Errors and warnings of a file, from the tools of its language that are installed: a linter, a type "
            "checker, a compiler's syntax check, a language server. Use it after you have changed a file. Nothing is "
            f"changed or built. At most {MAX_FILES} files at once."
        ),
        dispensable=True,
        parameters=build_parameters(
            path=PATH,
            paths={"type": "array", "items": PATH, "minItems": 1, "maxItems": MAX_FILES, "description": "Several."},
        ),
        read_only=True,
        idempotent=True,
        timeout_s=180.0,
        summary_argument="path",
    )

    async def run(self, invocation: Invocation) -> Outcome:
        """`quick` and `strict` are for checks of a completion: tools that answer at once, and errors as a failure."""
        arguments = invocation.arguments
        paths = [*([arguments["path"]] if arguments.get("path") else []), *(arguments.get("paths") or ())]
        if not paths:
            raise ToolError("Name a file: path, or paths for several.")
        if self._examination is None:
            from treadle.adapters.tools.builtin.diagnostics.running import Examination

            self._examination = Examination(self._context)
        return await self._examination.examine(paths[:MAX_FILES], invocation)
