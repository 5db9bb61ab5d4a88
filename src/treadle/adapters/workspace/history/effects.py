"""The changes of a command on its copy-on-write view, compared with the project as it is now (W-08): a walk through the
upper folder beside the project, from descriptor to descriptor, never through a link. Changes nothing in the project.

How changes by others are detected. The view shows the project live: the command saw everything that others wrote to a
file before its own first write. So a path is in conflict if the command left another state there than the current one,
and the current one was changed after the command began (by its ctime, which no program can set; it is read after the
bytes). An entry that the command removed must be as old as the command, with everything below it. A removal by others
of a file that the command changed is detected where it can be told from a file that the command moved: nothing is lost
either way.

A background command may have committed a part of its layer before (`committed`). An entry that is as that commit left
it is no change, even if the project has another state by now; a file of the project that is as that commit left it is
no change by others.

Hard links. A view breaks them: the command wrote to one name and saw the others stay as they were. That is its effect,
and so it is committed: the name gets bytes of its own. Names outside the root are never reached."""

import os
import stat as st
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

import msgspec
from msgspec.structs import replace

from treadle.adapters.workspace.history import overlay_upper, states
from treadle.adapters.workspace.history.apply import ContentSource
from treadle.adapters.workspace.history.overlay_upper import LayerReading, LayerRecord, Upper
from treadle.adapters.workspace.history.states import Counting, FileContent, SeenFiles, decode_text
from treadle.adapters.workspace.paths.entries import LIST, explain, hold_fd, lstat
from treadle.adapters.workspace.paths.ignore import NAME as IGNORE_FILE
from treadle.adapters.workspace.paths.ignore import Ignoring
from treadle.adapters.workspace.root import Root
from treadle.base.inert import escape_unprintable
from treadle.diff.changes import JUDGED, count, format_changes, sort_out, sum_stats
from treadle.diff.diff import diff_texts
from treadle.errors import ToolError
from treadle.ports.snapshots import Effect
from treadle.ports.workspace import escape_name
from treadle.protocol import files as protocol
from treadle.protocol.files import FileChange, FileConflict, FileState, decode_path, encode_path, make_file_change

_MEANWHILE = "while the command ran"
_SINCE = "since the world began"
CHANGED = f"it was changed or created {_MEANWHILE}"
GONE = f"it was removed or moved {_MEANWHILE}"
_SPECIAL = "a socket or a device cannot be committed"
_OWN_MODE = "the permissions of the project root itself are left as they are"
_DEEPEST = 250


def read(
    root: Root, view: str, *, seen_files: SeenFiles | None = None, distrusted: frozenset[str] = frozenset()
) -> Effect:
    """The effect by path, in the order of the walk: folders before what lies in them. For a commit, `seen_files` notes
    the small files that were read, and a file of the project that its owner has closed to himself is opened for a
    moment, since its bytes are kept; else its hash is not known. Of ignore files those of the project count, as the
    command found them, without the `distrusted` ones."""
    upper = Upper(view)
    reading = read_layer(root, upper, seen_files, distrusted)
    upper.note_touched(reading.touched)
    return reading.effect


def read_layer(
    root: Root, upper: Upper, seen_files: SeenFiles | None, distrusted: frozenset[str] = frozenset()
) -> LayerReading:
    walk = _Walk(upper, seen_files, distrusted)
    with upper.open_top() as up, root.hold(".") as (low, _):
        if st.S_IMODE(os.fstat(up).st_mode) != st.S_IMODE(os.fstat(low).st_mode):
            walk.uncaptured.append(protocol.Uncaptured(".", _OWN_MODE))
        walk.merge(up, low, "", Ignoring(), opaque=False)
    walk.find_missing()
    effect = Effect(tuple(walk.files), tuple(walk.conflicts), tuple(walk.uncaptured))
    return LayerReading(effect, walk.touched, LayerRecord(walk.states, tuple(walk.opaque)))


def count_copied_lines(root: Root, file: FileChange, copy: str) -> FileChange:
    """Count the lines of a change anew, from the project's file and a copy of the new one. All lines count as removed
    if the project's file cannot be read."""
    old_content = None
    try:
        with open(copy, "rb") as content:
            new_content = _open_content(content.fileno())
        if file.before is not None and file.before.kind == "file":
            with root.open(decode_path(file.path)) as fd:
                old_content = _open_content(fd)
    except (OSError, ToolError):
        return replace(file, removed=file.before.size if file.before is not None else 0)
    stat = Counting().stat(old_content, new_content)
    return replace(file, added=stat.added, removed=stat.removed)


def _open_content(fd: int) -> FileContent:
    return states.read_file_content(fd, "", os.fstat(fd), 0, lambda: os.dup(fd))


def choose_source(view: str) -> ContentSource:
    """Where the bytes of the project's files come from when the effect is made its own."""
    if os.path.exists(f"{view}/{overlay_upper.UPPER}"):
        return Upper(view)
    if overlay_upper.is_frozen(view):
        return overlay_upper.FrozenLayer(view)
    from treadle.adapters.workspace.history.capture import CopiedTree

    return CopiedTree(view)


class _Here(msgspec.Struct, frozen=True):
    """A name in the upper and the lower folder, either of which may lack it. `shaken`: others changed the content of
    the folder since the command began; for a missing folder: that of the folder above."""

    path: str
    name: str
    up: int
    low: int | None
    ignored: bool
    shaken: bool = False


class _Walk:
    def __init__(self, upper: Upper, seen_files: SeenFiles | None, distrusted: frozenset[str]) -> None:
        self.files: list[FileChange] = []
        self.conflicts: list[FileConflict] = []
        self.uncaptured: list[protocol.Uncaptured] = []
        self.touched: dict[str, int] = {}
        self.states: dict[str, FileState | None] = {}  # Every entry of the layer; None: it says that nothing is there
        self.opaque: list[str] = []
        self._missing: list[FileConflict] = []
        self._upper, self._seen, self._distrusted = upper, seen_files, distrusted
        self._meanwhile = _SINCE if upper.lasting else _MEANWHILE
        self._began, self._counting = upper.began_ns, Counting()
        self._committed = upper.committed
        self._committed_names = _group_names(self._committed)
        self._beginnings: dict[str, FileState | None] | None = None

    def find_missing(self) -> None:
        """Report conflicts for files that were copied up and are missing in the project: removed by others, unless the
        command removed something itself and so may have moved them here."""
        if not any(file.action == "deleted" for file in self.files):
            self.conflicts += self._missing

    def merge(
        self, up: int, low: int | None, prefix: str, rules: Ignoring, *, opaque: bool, shaken: bool = False
    ) -> None:
        """Compare two folders of the same path. `opaque`: entries that are only in the lower one were removed."""
        if prefix.count("/") > _DEEPEST:
            raise _make_depth_error(prefix)
        rules = self._add_ignore_file(rules, prefix, low)
        names = sorted(os.listdir(up))
        self.opaque += [encode_path(prefix)] if opaque else []
        shaken = shaken if low is None else not self._is_old(os.fstat(low))
        path = prefix
        try:
            for name in names:
                path = prefix + name
                status = os.stat(name, dir_fd=up, follow_symlinks=False)
                beneath = None if low is None else lstat(low, name)
                ignored = rules.covers(path, directory=st.S_ISDIR((beneath or status).st_mode))
                here = _Here(path, name, up, low, ignored, shaken)
                if overlay_upper.is_deleted(status):
                    self.states[encode_path(path)] = None
                    if beneath is not None and not self._is_committed(path, None):
                        self._record_removal(here, beneath, rules)
                else:
                    self._compare_entry(here, status, beneath, rules)
        except OSError as error:
            raise explain(error, path) from error
        if low is not None:
            missing_names = self._committed_names.get(encode_path(prefix), set()).difference(names)
            if opaque and encode_path(prefix) not in self._committed.opaque:
                missing_names |= {name for name in os.listdir(low) if not self._is_committed(prefix + name, None)}
                missing_names -= set(names)
            self._record_removals(missing_names, prefix, up, low, rules)

    def _record_removals(self, names: Iterable[str], prefix: str, up: int, low: int, rules: Ignoring) -> None:
        for name in sorted(names):
            path = prefix + name
            try:
                if (beneath := lstat(low, name)) is not None:
                    ignored = rules.covers(path, directory=st.S_ISDIR(beneath.st_mode))
                    self._record_removal(_Here(path, name, up, low, ignored), beneath, rules)
            except OSError as error:
                raise explain(error, path) from error

    def _add_ignore_file(self, rules: Ignoring, prefix: str, low: int | None) -> Ignoring:
        """A command that writes a .gitignore does not decide with it what of its changes is looked at."""
        return rules if encode_path(prefix + IGNORE_FILE) in self._distrusted else rules.add_folder_rules(prefix, low)

    def _compare_entry(
        self, here: _Here, status: os.stat_result, beneath: os.stat_result | None, rules: Ignoring
    ) -> None:
        mode = self._upper.get_mode(here.path, status)
        new_content = states.read_file_content(here.up, here.name, status, mode, lambda: self._open_left(here, status))
        self.states[encode_path(here.path)] = new_content.state
        committed = self._is_committed(here.path, new_content.state)
        if not st.S_ISDIR(status.st_mode):
            if committed:
                return None
            if beneath is not None and st.S_ISDIR(beneath.st_mode):
                self._record_emptied_folder(here, rules)
            return self._compare(here, status, beneath, new_content)
        if not committed:
            self._compare(here, status, beneath, new_content)
        inner = rules.inherit_ignored(here.ignored)
        first = len(self.files)
        with self._upper.open_folder(here.up, here.name, here.path) as up:
            if beneath is None or not st.S_ISDIR(beneath.st_mode):
                self.merge(up, None, here.path + "/", inner, opaque=False, shaken=here.shaken)
            else:
                with hold_fd(os.open(here.name, LIST, dir_fd=here.low)) as low:
                    self.merge(up, low, here.path + "/", inner, opaque=overlay_upper.is_opaque(up))
        if committed and beneath is None and len(self.files) > first:
            # The folder was removed by others, and the command wrote something new into it.
            self._record_change(here, None, new_content)
            self.files.insert(first, self.files.pop())
        return None

    def _compare(
        self, here: _Here, status: os.stat_result, beneath: os.stat_result | None, new_content: FileContent
    ) -> None:
        if new_content.state.kind == "other":
            return self.uncaptured.append(protocol.Uncaptured(encode_path(here.path), _SPECIAL))
        path = encode_path(here.path)
        if beneath is None:
            if self._committed.states.get(path) is not None:
                self.conflicts.append(self._make_conflict(here, GONE))
            elif here.shaken and status.st_nlink == 1 and self._is_copied_up(here, status):
                self._missing.append(self._make_conflict(here, GONE))
            return self._record_change(here, None, new_content)
        old_content = self._read_present_content(here, beneath)
        if old_content.state == new_content.state:
            touched = status.st_mtime_ns != beneath.st_mtime_ns and self._is_old(beneath)
            if touched and self._is_copied_up(here, status):
                self.touched[path] = status.st_mtime_ns
            return None
        if self._is_foreign(here, beneath, old_content):
            self._record_clash(here, new_content, old_content)
        if self._seen is not None:
            self._seen.note(path, beneath, old_content, new_content)
        return self._record_change(here, old_content, new_content)

    def _is_copied_up(self, here: _Here, status: os.stat_result) -> bool:
        """True if the file that the command left was copied up from the lower folder."""
        if not st.S_ISREG(status.st_mode):
            return False
        with hold_fd(self._open_left(here, status)) as fd:
            return overlay_upper.is_copy(fd)

    def _open_left(self, here: _Here, status: os.stat_result) -> int:
        return self._upper.open_file(here.up, here.name, here.path, status)

    def _record_removal(self, here: _Here, beneath: os.stat_result, rules: Ignoring) -> None:
        """Nothing lies there in the view any more. A folder stands before what lies in it, as everywhere."""
        old_content = self._read_present_content(here, beneath)
        if self._is_foreign(here, beneath, old_content):
            self._record_clash(here, None, old_content)
        self._record_change(here, old_content, None)
        if st.S_ISDIR(beneath.st_mode):
            self._record_emptied_folder(here, rules)

    def _record_emptied_folder(self, here: _Here, rules: Ignoring) -> None:
        if here.path.count("/") > _DEEPEST:
            raise _make_depth_error(here.path)
        with hold_fd(os.open(here.name, LIST, dir_fd=here.low)) as low:
            inner = self._add_ignore_file(rules.inherit_ignored(here.ignored), here.path + "/", low)
            self._record_removals(os.listdir(low), f"{here.path}/", here.up, low, inner)

    def _is_foreign(self, here: _Here, beneath: os.stat_result, old_content: FileContent) -> bool:
        """True if others changed it: it is neither as the command found it, nor as an earlier commit of its layer left
        it, nor byte for byte as it was when the world first changed it."""
        now = None if here.low is None else lstat(here.low, here.name)  # others may have saved it while it was read
        is_closed = not beneath.st_mode & st.S_IRUSR
        if is_closed and now is not None and (now.st_ino, now.st_mtime_ns) == (beneath.st_ino, beneath.st_mtime_ns):
            now = beneath  # reading a file that its owner has closed to himself has changed its ctime
        if (now is not None and self._is_old(now)) or self._is_committed(here.path, old_content.state):
            return False
        if self._beginnings is None:
            self._beginnings = overlay_upper.Beginnings(self._upper.view).read_all() if self._upper.lasting else {}
        path = encode_path(here.path)
        return path not in self._beginnings or self._beginnings[path] != old_content.state

    def _record_change(self, here: _Here, old_content: FileContent | None, new_content: FileContent | None) -> None:
        stat = self._counting.stat(old_content, new_content)
        was, now = (None if each is None else each.state for each in (old_content, new_content))
        self.files.append(make_file_change(encode_path(here.path), was, now, stat, ignored=here.ignored))

    def _record_clash(self, here: _Here, new_content: FileContent | None, old_content: FileContent) -> None:
        new_text = None if new_content is None else new_content.text
        comparable = new_text is not None and old_content.text is not None
        diff_text = diff_texts(here.path, new_text, old_content.text).text if comparable else ""
        self.conflicts.append(self._make_conflict(here, CHANGED, diff_text))

    def _make_conflict(self, here: _Here, reason: str, diff_text: str = "") -> FileConflict:
        return FileConflict(encode_path(here.path), reason.replace(_MEANWHILE, self._meanwhile), diff_text)

    def _read_present_content(self, here: _Here, beneath: os.stat_result) -> FileContent:
        low, mode = here.low, st.S_IMODE(beneath.st_mode)
        assert low is not None
        if st.S_ISREG(beneath.st_mode) and self._seen is None and not beneath.st_mode & st.S_IRUSR and os.geteuid():
            return FileContent(FileState("file", mode, size=beneath.st_size))
        return states.read_file_content(low, here.name, beneath, mode, lambda: states.open_file(low, here.name))

    def _is_old(self, beneath: os.stat_result) -> bool:
        """True if it is as the command found it."""
        return beneath.st_ctime_ns <= self._began

    def _is_committed(self, path: str, state: FileState | None) -> bool:
        encoded = encode_path(path)
        return encoded in self._committed.states and self._committed.states[encoded] == state


def _group_names(committed: LayerRecord) -> dict[str, set[str]]:
    """The names that earlier commits left, by the prefix of the folder: names as the system gives them."""
    names_by_prefix: dict[str, set[str]] = {}
    for path in (path for path, state in committed.states.items() if state is not None):
        folder, _, name = decode_path(path).rpartition("/")
        names_by_prefix.setdefault(encode_path(f"{folder}/" if folder else ""), set()).add(name)
    return names_by_prefix


def _make_depth_error(path: str) -> ToolError:
    return ToolError(f"More than {_DEEPEST} folders lie in each other at {path[:80]}…: nothing is committed.")


# -- in words ---------------------------------------------------------------------------------------------------------

MOST_FILES = 60
_MOST_LINES = 400
_MOST_CHARS = 24_000
_SHEBANG, _RUNS = b"#!", 0o111
NOTHING = "It changes nothing in the project."


def describe(root: Root, view: str, effect: Effect) -> str:
    """The effect as a person reads it before they allow it: a line for each file, then what changed in the texts.
    Bounded, inert, and the same for the same effect, because the answer is bound to it (S-08, W-09)."""
    upper = choose_source(view)
    if not effect.files and not effect.uncaptured and not effect.conflicts:
        return NOTHING
    files = sort_out(effect.files, JUDGED).reported_files
    stat = sum_stats(files, ())
    lines = [f"{count(len(files), 'change')}, +{stat.added:,} -{stat.removed:,}"]
    lines += format_changes(effect.files, format_path, MOST_FILES, JUDGED)
    lines += [f"[not committed: {format_path(each.path)}: {each.reason}]" for each in effect.uncaptured[:MOST_FILES]]
    lines += [f"[conflict: {format_path(each.path)}: {each.reason}]" for each in effect.conflicts[:MOST_FILES]]
    lines += [f"[a new script, not executable: {format_path(path)}]" for path in _find_scripts(upper, files)]
    diffs = _format_diffs(root, upper, files)
    return "\n".join([*lines, "", *diffs] if diffs else lines)


def format_path(path: str) -> str:
    return escape_name(decode_path(path))


def _find_scripts(upper: ContentSource, files: Sequence[FileChange]) -> Iterator[str]:
    """New files with a shebang and without the executable mode: nothing runs them yet, but something might."""
    for path, state in islice(((file.path, file.after) for file in files if file.action == "created"), MOST_FILES):
        if state and state.kind == "file" and not state.mode & _RUNS and state.size > len(_SHEBANG):
            with suppress(ToolError, OSError):
                if _read_bytes(upper, path, state, len(_SHEBANG)) == _SHEBANG:
                    yield path


def _format_diffs(root: Root, upper: ContentSource, files: Sequence[FileChange]) -> list[str]:
    """As many as there is room for; the rest is counted."""
    lines, size = list[str](), 0
    texts = [file for file in files if _can_be_text(file)]
    texts.sort(key=lambda file: file.action == "deleted")  # deleted files last: their diffs tell least
    for number, file in enumerate(texts):
        if len(lines) >= _MOST_LINES or size >= _MOST_CHARS:
            return [*lines, f"[the differences of {count(len(texts) - number, 'more file')} are not shown]"]
        piece = _format_diff(root, upper, file)
        size += len(piece)
        lines += piece.split("\n") if piece else []
    return lines


def _format_diff(root: Root, upper: ContentSource, file: FileChange) -> str:
    old, new = (state if state is not None and state.kind == "file" else None for state in (file.before, file.after))
    try:
        old_data = None if old is None else root.read_bytes(decode_path(file.path), states.SMALL)
        new_data = None if new is None else _read_bytes(upper, file.path, new)
    except ToolError:  # it is being changed, or too large: its line above says that it changed
        return ""
    if b"\0" in (old_data or b"") + (new_data or b""):
        return ""
    # Terminal control characters are shown as escapes.
    texts = [
        None if data is None else escape_unprintable(decode_text(data).replace("\r\n", "\n"))
        for data in (old_data, new_data)
    ]
    return diff_texts(format_path(file.path), texts[0], texts[1]).text


def read_left_bytes(view: str, file: FileChange, most: int) -> bytes:
    return _read_bytes(choose_source(view), file.path, file.after, most)


def _read_bytes(upper: ContentSource, path: str, state: FileState | None, most: int = states.SMALL) -> bytes:
    assert state is not None
    with os.fdopen(upper.open(path, state), "rb") as file:
        return file.read(most)


def _can_be_text(file: FileChange) -> bool:
    ends = [state for state in (file.before, file.after) if state is not None]
    if any(state.size > states.SMALL for state in ends) or not any(state.kind == "file" for state in ends):
        return False
    return len({state.digest for state in ends}) > 1 or len(ends) == 1
