"""Finished calls in short: those that follow each other without a word in between, as one line, such as `read 6 files,
searched 3 times, ran 2 commands`. A projection: it can be made again from events at any time."""

from collections import Counter

from treadle.base.types import CallKey
from treadle.protocol import events as e

_DEEDS: dict[str, tuple[str, str, str]] = {
    "read_file": ("read", "file", "files"),
    "read_output": ("read", "output", "outputs"),
    "list_directory": ("listed", "folder", "folders"),
    "find_files": ("searched", "time", "times"),
    "grep_search": ("searched", "time", "times"),
    "get_diagnostics": ("looked for errors", "time", "times"),
    "write_file": ("wrote", "file", "files"),
    "edit_file": ("edited", "time", "times"),
    "apply_patch": ("edited", "time", "times"),
    "run_command": ("ran", "command", "commands"),
}
_UNTOLD = frozenset({"task_complete", "update_plan", "ask_user"})  # tools that front ends show in another way


class Progress:
    """Takes the events of a chat in order, and gives the line about a group of calls when the group has ended."""

    def __init__(self) -> None:
        self._names: dict[CallKey, str] = {}
        self._done: Counter[tuple[str, str, str]] = Counter()
        self._failed = 0

    def take(self, event: e.Event) -> str:
        """The line about the group that this event ends; empty if it ends none."""
        match event:
            case e.AssistantMessage(content=content, tool_requests=requests):
                line = self.end() if content.strip() else ""
                self._names = {request.call: request.name for request in requests}
                return line
            case e.ExecutionComplete(call=call, success=success):
                name = self._names.get(call, "")
                if name not in _UNTOLD:
                    self._done[_DEEDS.get(name, (f"called {name or 'a tool'}", "time", "times"))] += 1
                    self._failed += not success
                return ""
            case e.UserMessage() | e.TaskComplete() | e.RunEnd():
                return self.end()
            case _:
                return ""

    def end(self) -> str:
        """The line about what has not been told yet."""
        parts = [f"{verb} {n:,} {one if n == 1 else many}" for (verb, one, many), n in self._done.items()]
        if self._failed:
            parts.append(f"{self._failed:,} failed")
        self._done.clear()
        self._failed = 0
        return ", ".join(parts)
