"""The texts of a conversation that can be copied: answers, their code blocks, commands, diffs. Knows no screen."""

import re
from collections.abc import Iterator, Sequence

from treadle.frontends.tui.blocks import AnswerBlock, AnyBlock, Calls, ShownCall

_CODE = re.compile(r"^(```|~~~)[^\n]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)


def copies(blocks: Sequence[AnyBlock]) -> Iterator[tuple[str, str]]:
    """The kind and the text of each; the newest first."""
    for block in reversed(blocks):
        match block:
            case AnswerBlock(text=text) if text.strip():
                yield "answer", text.strip("\n")
                for match in reversed(list(_CODE.finditer(text))):
                    yield "code", match[2].rstrip("\n")
            case Calls(calls=calls):
                for call in reversed(calls):
                    yield from _of_call(call)
            case _:
                pass


def _of_call(call: ShownCall) -> Iterator[tuple[str, str]]:
    if call.name == "run_command" and call.summary:
        yield "command", call.summary
    if call.completion is not None and "@@" in call.completion.result:
        lines = call.completion.result.split("\n")
        start = next((at for at, line in enumerate(lines) if line.startswith("@@")), len(lines))
        if diff := "\n".join(lines[start:]).rstrip("\n"):
            yield "diff", diff
