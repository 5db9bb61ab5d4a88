"""Changed files: which chat, run, paths and hunks a command means, and how changes are shown (W-03, W-04). Names and
texts from the project are made inert here."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from treadle.cli.options import EXIT_ERROR, EXIT_OK, Named
from treadle.cli.session import find_chat, project_root
from treadle.cli.terminal import Terminal, write_json
from treadle.errors import InvalidInput, NotFound, ToolError
from treadle.file_system import is_below
from treadle.files import ChatFiles, RunSpan
from treadle.handle import Chat
from treadle.inert import inert, inert_line
from treadle.lines.changes import ASIDE, Aside, change_lines, count, is_folder, sort_out, without_parents
from treadle.lines.hunks import Shown
from treadle.presentation.notices import summary
from treadle.presentation.styled import Colour, Span, spans
from treadle.protocol import wire
from treadle.protocol.events import Envelope, FilesChanged, Restored
from treadle.protocol.files import FileChange, FileConflict, decode_path, encode_path
from treadle.runtime import Agent

MOST = 500
"""So many files are listed line by line."""
_COLOURS: dict[str, Colour] = {"A": "green", "D": "red", "+": "green", "-": "red", "@": "cyan", "[": "dim"}


class Chosen(msgspec.Struct, frozen=True):
    """What was named, in a chat."""

    chat: Chat
    files: ChatFiles
    span: RunSpan
    paths: tuple[str, ...]
    hunks: Mapping[str, tuple[int, ...]]
    even_kept: bool = False
    aside: Collection[Aside] = ASIDE
    """What is only counted."""


async def choose(agent: Agent, wanted: Named) -> Chosen:
    chat = await _chat(agent, wanted.chat)
    root = (await chat.state()).options.root
    if not root:
        raise InvalidInput(f"the chat {chat.id} has no project root, so it has changed no files")
    paths = tuple(_recorded(root, path) for path in wanted.paths)
    hunks = _hunks(root, wanted.hunks)
    if paths and hunks:
        raise InvalidInput("name either files or hunks; a hunk names its file itself")
    aside: frozenset[Aside] = frozenset(("git",)) if wanted.caches else ASIDE
    return Chosen(chat, chat.files, await _span(chat.files, wanted), paths, hunks, wanted.even_kept, aside)


async def _chat(agent: Agent, name: str) -> Chat:
    """The one that was named, or the newest that works where we are."""
    if name:
        return agent.chat(await find_chat(agent.deps.store, name))
    here = str(project_root(None, force=True))
    for listed in await agent.chats():
        root = listed.summary.root
        if root and _holds(root, here):
            return agent.chat(listed.summary.chat)
    raise NotFound(f"no chat has worked in {here}; name one (treadle chats lists them), or go to its project")


async def refuse_unknown_words(choice: Chosen, selection: Named) -> None:
    """For a command that found nothing: NotFound for a word that is no chat, no file and nothing that the chat ever
    changed."""
    unknown = [(word, path) for word, path in zip(selection.paths, choice.paths, strict=True) if _is_missing(word)]
    if not unknown:
        return
    changes = [each.data for each in await choice.chat.events_of(FilesChanged) if isinstance(each.data, FilesChanged)]
    for word, path in unknown:  # of very many changes not all names are in the event
        if not any(change.manifest or any(is_below(file.path, path) for file in change.files) for change in changes):
            raise NotFound(f"{inert_line(word)} is neither a chat nor a file here; see: treadle chats")


def _is_missing(path: str) -> bool:
    return not os.path.lexists(path)


def _holds(root: str, folder: str) -> bool:
    return is_below(folder, os.path.realpath(root))


async def _span(files: ChatFiles, wanted: Named) -> RunSpan:
    if wanted.everything:
        return RunSpan()
    if wanted.run is None:
        return await files.last_run(even_kept=wanted.even_kept)
    runs = await files.runs()
    if not 1 <= wanted.run <= len(runs):
        raise InvalidInput(
            f"there is no run {wanted.run}: {count(len(runs), 'run')} of this chat may have changed files"
        )
    return runs[wanted.run - 1]


def _recorded(root: str, typed: str) -> str:
    """A path as the log has it. The last name is taken as it is, be it a link."""
    folder, name = os.path.split(os.path.abspath(typed))
    path = os.path.join(os.path.realpath(folder), name)
    top = os.path.realpath(root)
    if not is_below(path, top):
        raise InvalidInput(f"{inert_line(typed)} is outside the project {top}")
    return encode_path(os.path.relpath(path, top))


def _hunks(root: str, typed: Sequence[str]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for each in typed:
        path, colon, numbers = each.rpartition(":")
        parts = numbers.split(",")
        if not colon or not path or not all(part.isdecimal() for part in parts):
            raise InvalidInput(
                f"{inert_line(each)} names no hunk; write PATH:N, or PATH:N,M, as treadle diff counts them"
            )
        key = _recorded(root, path)
        found[key] = (*found.get(key, ()), *map(int, parts))
    return found


# -- showing ----------------------------------------------------------------------------------------------------------


def shown_path(path: str) -> str:
    return inert_line(decode_path(path))


def print_changes(terminal: Terminal, files: Iterable[FileChange], aside: Collection[Aside] = ASIDE) -> None:
    for line in change_lines(files, shown_path, MOST, aside):
        colour = _COLOURS.get(line[:1])
        terminal.line(line, *([colour] if colour else []))


def print_conflicts(terminal: Terminal, conflicts: Iterable[FileConflict]) -> None:
    for conflict in conflicts:
        text = f" {shown_path(conflict.path)} was not changed: {inert_line(conflict.reason)}"
        terminal.line(spans(Span("✗", ("red",)), text))
        for line in inert(conflict.diff).split("\n")[2:] if conflict.diff else ():
            terminal.line(f"    {line}", *_colours(line))


def print_diff(terminal: Terminal, found: Iterable[Shown], aside: Collection[Aside] = ASIDE) -> None:
    """The changes of files in full; what is put aside is only counted."""
    looks = {each.change.path: each for each in found}
    parts = sort_out((each.change for each in looks.values()), aside)
    for file in sorted(without_parents(parts.told), key=lambda file: decode_path(file.path).split("/")):
        _print_file(terminal, looks[file.path])
    for counted in parts.counts:
        terminal.line(f"[{counted}]", "dim")


def _print_file(terminal: Terminal, each: Shown) -> None:
    file, path = each.change, shown_path(each.change.path)
    print_changes(terminal, [file], ())
    for note in () if is_folder(file) else each.notes:
        terminal.line(f"  {inert_line(note)}", "dim")
    if each.hunks:
        terminal.line(f"--- {'/dev/null' if file.before is None else path}")
        terminal.line(f"+++ {'/dev/null' if file.after is None else path}")
    for hunk in each.hunks:
        terminal.line(f"{hunk.header} hunk {hunk.number}", "cyan")
        for line in hunk.lines:
            terminal.line(line, *_colours(line))


def print_patch(terminal: Terminal, diff: str) -> None:
    """A diff as text, with its colours."""
    for line in inert(diff).split("\n") if diff else ():
        head = line.startswith(("--- ", "+++ "))
        terminal.line(line, *(["bold"] if head else _colours(line)))


def _colours(line: str) -> list[Colour]:
    """The colours of a line of a diff."""
    return [_COLOURS[line[0]]] if line.startswith(("+", "-", "@")) else []


# -- undo, redo and keep ----------------------------------------------------------------------------------------------


async def tell_begun(terminal: Terminal, choice: Chosen, as_json: bool) -> None:
    """What somebody began and did not see to its end is completed before anything is looked at."""
    if not as_json and (request := await choice.files.begun()) is not None:
        terminal.note(f"the {request.kind} that was begun before and did not end is completed first", "yellow")


async def tell(
    terminal: Terminal, choice: Chosen, done: Restored, word: str, as_json: bool, *, listed: bool = False
) -> int:
    """What came of it, `listed` file by file if that was not shown before; and the exit code."""
    if done.error:
        raise ToolError(done.error)
    code = EXIT_ERROR if done.conflicts else EXIT_OK
    if as_json:
        write_json({"chat": choice.chat.id} | wire.whole(done))
        return code
    whole = (await choice.chat.whole(Envelope(0, choice.chat.id, 0, done))).data  # however many files they are
    assert isinstance(whole, Restored)
    if listed:
        print_changes(terminal, whole.files)
        print_conflicts(terminal, whole.conflicts)
    back = {"undone": "redo", "redone": "undo"}.get(word, "")
    hint = f" · back: treadle {back} {choice.chat.id}" if back and whole.files else ""
    if whole.files:
        terminal.note(f"{word}: {summary(whole.files)}{hint}", "dim")
    if whole.conflicts:
        terminal.note(f"not changed: {len(whole.conflicts)}", "yellow")
    return code
