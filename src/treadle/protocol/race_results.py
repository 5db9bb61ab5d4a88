"""The result of a race (L-22), read from the log of its chat."""

from collections.abc import Iterable

from msgspec.structs import replace

from treadle.errors import RunFailed
from treadle.protocol.content import Value
from treadle.protocol.events import Envelope, ExecutionComplete, FilesChanged, SessionError, SubagentCompleted
from treadle.protocol.files import FileChange


class RaceResult(Value, frozen=True):
    """The result of a race. `chat.files.undo()` of its chat undoes it."""

    chat: str
    winner: int  # the number of the attempt that won; 0: none did
    text: str  # the same in words, with a line for each attempt
    attempts: tuple[SubagentCompleted, ...]
    files: tuple[FileChange, ...] = ()
    committed: bool = False


def result_of(chat: str, events: Iterable[Envelope]) -> RaceResult:
    """From the log of a race. RunFailed if it came to nothing."""
    race_result = RaceResult(chat, 0, "", ())
    for envelope in events:
        match envelope.data:
            case ExecutionComplete(result=result, error=error, success=success):
                race_result = replace(race_result, text=result or error, committed=success)
            case SubagentCompleted(committed=committed, number=number) as one:
                winner, attempts = number if committed else race_result.winner, (*race_result.attempts, one)
                race_result = replace(race_result, attempts=attempts, winner=winner)
            case FilesChanged(files=files):
                race_result = replace(race_result, files=files)
            case SessionError(error_class=kind, message=message):
                raise RunFailed(kind, message)
    return race_result
