"""The modes of a chat for people who choose one: a name and a sentence for each (S-07)."""

from collections.abc import Mapping

from treadle.protocol.options import Mode

MODE_WORDS: Mapping[Mode, tuple[str, str]] = {
    "read-only": ("Read only", "Reads and searches; changes and runs nothing."),
    "confirm": ("Confirm", "Asks before anything is changed or run."),
    "review": ("Review", "Shows what a command would change before it is committed."),
    "ask": ("Ask", "Asks for commands and for changes of sensitive files."),
    "auto-edit": ("Auto-edit", "Edits files by itself; asks for what is risky."),
    "autopilot": ("Autopilot", "Works until the task is done; asks only for what is critical."),
}
