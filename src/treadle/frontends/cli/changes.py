"""Changed files: which chat, run, paths and hunks a command means, and how changes are shown (W-03, W-04). Names and
texts from the project are made inert here."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from treadle.base.file_system import is_below
from treadle.base.inert import make_inert, make_inert_line
from treadle.diff.changes import ASIDE, Aside, count, drop_parents, format_changes, is_folder, sort_out
from treadle.diff.diff import FileDiff
from treadle.errors import InvalidInput, NotFound, ToolError
from treadle.frontends.cli.options import EXIT_ERROR, EXIT_OK, MOST_DIGITS, SelectionArguments, resolve_project_root
from treadle.frontends.cli.session import open_chat
from treadle.frontends.cli.terminal import Terminal, write_json
from treadle.frontends.presentation.notices import summarize_changes
from treadle.frontends.presentation.styled import Colour, Span, join_spans
from treadle.library.agent import Agent
from treadle.library.chat import Chat
from treadle.library.files import ChatFiles, RunSpan
from treadle.protocol import wire
from treadle.protocol.events import Envelope, FilesChanged, Restored, UserMessage
from treadle.protocol.files import FileChange, FileConflict, decode_path, encode_path

MOST = 500  # so many files are listed line by line
_COLOURS: dict[str, Colour] = {"A": "green", "D": "red", "+": "green", "-": "red", "@": "cyan", "[": "dim"}


class SelectedChanges(msgspec.Struct, frozen=True):
    chat: Chat
    files: ChatFiles
    span: RunSpan
    paths: tuple[str, ...]
    hunks: Mapping[str, tuple[int, ...]]
    even_kept: bool = False
    aside: Collection[Aside] = ASIDE  # kinds of changes that are only counted


async def choose(agent: Agent, arguments: SelectionArguments) -> SelectedChanges:
    """Without a chat's name the newest chat is meant that works where we are."""
    if arguments.chat:
        chat = await open_chat(agent, arguments.chat)
    else:
        here = str(resolve_project_root(None, force=True))
        summaries = (each.summary for each in await agent.chats())
        newest = next((each.chat for each in summaries if contains_folder(each.root, here)), None)
        if newest is None:
            raise NotFound(f"no chat has worked in {here}; name one (treadle chats lists them), or go to its project")
        chat = agent.chat(newest)
    root = (await chat.state()).options.root
    if not root:
        raise InvalidInput(f"the chat {chat.id} has no project root, so it has changed no files")
    paths = tuple(_resolve_log_path(root, path) for path in arguments.paths)
    hunks = _parse_hunks(root, arguments.hunks)
    if paths and hunks:
        raise InvalidInput("name either files or hunks; a hunk names its file itself")
    aside: frozenset[Aside] = frozenset(("git",)) if arguments.caches else ASIDE
    span = await _resolve_span(chat.files, arguments)
    return SelectedChanges(chat, chat.files, span, paths, hunks, arguments.even_kept, aside)


def contains_folder(root: str, folder: str) -> bool:
    return bool(root) and is_below(folder, os.path.realpath(root))


def find_person_messages(envelopes: Iterable[Envelope]) -> dict[int, str]:
    """The messages that a person wrote, by their seqs."""
    messages = ((each.seq, each.data) for each in envelopes)
    return {seq: data.content for seq, data in messages if isinstance(data, UserMessage) and data.source == "person"}


async def refuse_unknown_words(choice: SelectedChanges, selection: SelectionArguments) -> None:
    """NotFound for a word that is no chat, no file and nothing that the chat ever changed."""
    unknown = [(word, path) for word, path in zip(selection.paths, choice.paths, strict=True) if _is_missing(word)]
    if not unknown:
        return
    changes = [each.data for each in await choice.chat.events_of(FilesChanged) if isinstance(each.data, FilesChanged)]
    for word, path in unknown:  # of very many changes not all names are in the event
        if not any(change.manifest or any(is_below(file.path, path) for file in change.files) for change in changes):
            raise NotFound(f"{make_inert_line(word)} is neither a chat nor a file here; see: treadle chats")


def _is_missing(path: str) -> bool:
    return not os.path.lexists(path)


async def _resolve_span(files: ChatFiles, arguments: SelectionArguments) -> RunSpan:
    if arguments.everything:
        return RunSpan()
    if arguments.run is None:
        return await files.last_run(even_kept=arguments.even_kept)
    runs = await files.runs()
    if not 1 <= arguments.run <= len(runs):
        total = count(len(runs), "run")
        raise InvalidInput(f"there is no run {arguments.run}: {total} of this chat may have changed files")
    return runs[arguments.run - 1]


def _resolve_log_path(root: str, typed: str) -> str:
    """A path as the log has it. The last name is taken as it is, be it a link."""
    folder, name = os.path.split(os.path.abspath(typed))
    path = os.path.join(os.path.realpath(folder), name)
    top = os.path.realpath(root)
    if not is_below(path, top):
        raise InvalidInput(f"{make_inert_line(typed)} is outside the project {top}")
    return encode_path(os.path.relpath(path, top))


def _parse_hunks(root: str, typed: Sequence[str]) -> dict[str, tuple[int, ...]]:
    hunks_by_path: dict[str, tuple[int, ...]] = {}
    for each in typed:
        path, _, numbers = each.rpartition(":")
        parts = numbers.split(",")
        if not path or not all(part.isdecimal() and len(part) < MOST_DIGITS for part in parts):
            way = "write PATH:N, or PATH:N,M, as treadle diff counts them"
            raise InvalidInput(f"{make_inert_line(each, 200)} names no hunk; {way}")
        key = _resolve_log_path(root, path)
        hunks_by_path[key] = (*hunks_by_path.get(key, ()), *map(int, parts))
    return hunks_by_path


def format_path(path: str) -> str:
    return make_inert_line(decode_path(path))


def print_changes(terminal: Terminal, files: Iterable[FileChange], aside: Collection[Aside] = ASIDE) -> None:
    for line in format_changes(files, format_path, MOST, aside):
        terminal.write_line(line, *([_COLOURS[line[0]]] if line[:1] in _COLOURS else []))


def print_conflicts(terminal: Terminal, conflicts: Iterable[FileConflict]) -> None:
    for conflict in conflicts:
        text = f" {format_path(conflict.path)} was not changed: {make_inert_line(conflict.reason)}"
        terminal.write_line(join_spans(Span("✗", ("red",)), text))
        for line in make_inert(conflict.diff).split("\n")[2:] if conflict.diff else ():
            terminal.write_line(f"    {line}", *_choose_colours(line))


def print_diff(terminal: Terminal, file_diffs: Iterable[FileDiff], aside: Collection[Aside] = ASIDE) -> None:
    """Print the changes of files in full. Changes in `aside` are only counted."""
    looks = {each.change.path: each for each in file_diffs}
    parts = sort_out((each.change for each in looks.values()), aside)
    for file in sorted(drop_parents(parts.reported_files), key=lambda file: decode_path(file.path).split("/")):
        each, path = looks[file.path], format_path(file.path)
        print_changes(terminal, [file], ())
        for note in () if is_folder(file) else each.notes:
            terminal.write_line(f"  {make_inert_line(note)}", "dim")
        if each.hunks:
            terminal.write_line(f"--- {'/dev/null' if file.before is None else path}")
            terminal.write_line(f"+++ {'/dev/null' if file.after is None else path}")
        for hunk in each.hunks:
            terminal.write_line(f"{hunk.header} hunk {hunk.number}", "cyan")
            for line in hunk.lines:
                terminal.write_line(line, *_choose_colours(line))
    for counted in parts.counts:
        terminal.write_line(f"[{counted}]", "dim")


def print_patch(terminal: Terminal, diff: str) -> None:
    for line in make_inert(diff).split("\n") if diff else ():
        terminal.write_line(line, *(["bold"] if line.startswith(("--- ", "+++ ")) else _choose_colours(line)))


def _choose_colours(line: str) -> list[Colour]:
    return [_COLOURS[line[0]]] if line.startswith(("+", "-", "@")) else []


async def tell_begun(terminal: Terminal, choice: SelectedChanges, as_json: bool) -> None:
    """Report an unfinished undo, redo or keep, which is completed before anything else."""
    if not as_json and (request := await choice.files.find_unfinished_restore()) is not None:
        terminal.write_note(f"the {request.kind} that was begun before and did not end is completed first", "yellow")


async def tell(
    terminal: Terminal, choice: SelectedChanges, restored: Restored, word: str, as_json: bool, *, listed: bool = False
) -> int:
    """Print the result and return the exit code. `listed`: print file by file, if that was not shown before."""
    if restored.error:
        raise ToolError(restored.error)
    code = EXIT_ERROR if restored.conflicts else EXIT_OK
    if as_json:
        write_json({"chat": choice.chat.id} | wire.to_wire_form(restored))
        return code
    event = (await choice.chat.load_full_event(Envelope(0, choice.chat.id, 0, restored))).data  # with all of its files
    assert isinstance(event, Restored)
    if listed:
        print_changes(terminal, event.files)
        print_conflicts(terminal, event.conflicts)
    if event.files:
        back = {"undone": "redo", "redone": "undo"}.get(word, "")
        hint = f" · back: treadle {back} {choice.chat.id}" if back else ""
        terminal.write_note(f"{word}: {summarize_changes(event.files)}{hint}", "dim")
    if event.conflicts:
        terminal.write_note(f"not changed: {len(event.conflicts)}", "yellow")
    return code
