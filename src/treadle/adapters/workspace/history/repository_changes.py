"""The meaning of a set of changes for the project's own git repository (S-16, S-23): history that shrinks or is hidden,
files that `git status` no longer shows, steps of an unfinished operation that would run a program. Looks only at what
changed under `.git`; asks git only if a reference is gone.

Beside `.git` lie files that git runs or reads as well (`find_obeyed_files`): those that its configuration names, such
as by `core.hooksPath`, with the files that it includes; and the targets of links among its hooks.

And the files that a set of changes would remove for good (`unrecoverable`): their bytes are neither in the repository,
nor left by an earlier change, nor by the same changes in another place that is not ignored."""

import os
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from itertools import islice

from treadle.adapters.workspace.git import Git, compute_blob_ids
from treadle.adapters.workspace.history.git_index import GITLINK, read_index_marks
from treadle.adapters.workspace.root import Root
from treadle.base.file_system import is_below
from treadle.diff.changes import count, get_cache, is_in_git
from treadle.errors import ToolError
from treadle.protocol.files import FileChange, FileState, decode_path

Content = Callable[[FileChange, int], bytes]
"""The bytes of a changed file, at most so many. ToolError if they cannot be had."""
_PREFIX = ".git/"
_INDEX = re.compile(r"\.git/(?:(?:worktrees|modules)/.+/)?(?:index|sharedindex\..+)")
_WITHIN = re.compile(r"(?:worktrees|modules)/.+?/(?=(?:rebase-merge|rebase-apply|sequencer)/|BISECT_)")
"""Repositories of worktrees and submodules, which have operations of their own."""
_LOOSE = re.compile(r"objects/([0-9a-f]{2})/([0-9a-f]{38}|[0-9a-f]{62})")
_PACK_INDEX = re.compile(r"objects/pack/pack-[0-9a-f]+\.idx")
_PACK = re.compile(r"objects/pack/pack-[0-9a-f]+\.pack")
_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LARGEST_INDEX = 256 << 20
_LARGEST_TEXT = 16 << 20
_MOST_REFS = 20_000
_MOST_COMMITS = 2_000
_MOST_ASKED = 20  # More commits than this are not looked for: they count as lost
_REFTABLE = re.compile(r"(?:(?:worktrees|modules)/.+/)?reftable/")
_LFS_OBJECT = re.compile(r"(?:modules/.+/)?lfs/objects/.+")
_REFERENCE = re.compile(rb"(?:ref:\s*refs/\S+|[0-9a-f]{40}(?:[0-9a-f]{24})?)\s*")
_LOCK = ".lock"
_STASH = "refs/stash"
_REPLACE = "refs/replace/"

_TODO = re.compile(r"(?:rebase-merge/git-rebase-todo(?:\.backup)?|sequencer/todo)")
_PLAIN_STEP = re.compile(
    rb"\s*(?:#.*|(?:p|pick|r|reword|e|edit|s|squash|f|fixup|d|drop|l|label|t|reset|m|merge|u|update-ref|b|break|noop"
    rb"|revert)(?:\s.*)?)?"
)
_WORDS = re.compile(rb"[\w./:=,^~' \t-]*")
_OBEYED_TEXTS: Mapping[str, re.Pattern[bytes]] = {
    r"BISECT_(?:NAMES|START|TERMS|RUN|HEAD|EXPECTED_REV|ANCESTORS_OK|FIRST_PARENT)": _WORDS,
    r"BISECT_LOG": re.compile(rb"#.*|git bisect [\w./:^~' \t-]*|"),
    r"rebase-(?:merge|apply)/(?:strategy_opts|gpg_sign_opt|apply-opt)": _WORDS,
    r"rebase-merge/strategy": re.compile(rb"(?:ort|recursive|resolve|octopus|ours|subtree)?"),
    r"sequencer/opts": re.compile(
        rb"\[options\]|\t(?!(?i:strategy) )[\w-]+ = [\w.=-]*"
        rb"|\tstrategy = (?:ort|recursive|resolve|octopus|ours|subtree)|"
    ),
    r"rebase-(?:merge|apply)/author-script": re.compile(rb"(?:GIT_AUTHOR_(?:NAME|EMAIL|DATE)='(?:[^']|'\\'')*')?"),
}
"""Files of an unfinished operation that git reads as words of a command, and how their lines look if git wrote them."""


_NO_CHANGE = FileChange("", "modified")


class RepositoryChanges:
    """`before` and `after` read what a changed file was and is. `git` is the project's own, asked only if needed."""

    def __init__(
        self, root: Root, files: Iterable[FileChange], old_content: Content, new_content: Content,
        git: Callable[[], Git | None],
    ) -> None:  # fmt: skip
        self._root, self._before, self._after, self._git = root, old_content, new_content, git
        self._all = tuple(files)
        inside = (file for file in self._all if file.path.startswith(_PREFIX))
        self._files = {decode_path(file.path)[len(_PREFIX) :]: file for file in inside}
        indexes = (file for file in self._files.values() if _INDEX.fullmatch(file.path) and _is_file(file.after))
        self._marks = {
            file.path: [
                read_index_marks(read(file, _LARGEST_INDEX)) for read in (self._read_old_text, self._read_new_text)
            ]
            for file in indexes
        }

    def find_new_gitlinks(self) -> dict[str, str]:
        """Indexes that link repositories which they did not link before, by path with the reason."""
        return {path: GITLINK for path, (was, now) in self._marks.items() if now.gitlinks - was.gitlinks}

    def list_reasons(self) -> tuple[str, ...]:
        """Why a person should look, each as the end of a sentence that begins with `it`."""
        looks = (
            self._describe_hidden_files,
            self._describe_steps,
            self._describe_hidden_history,
            self._describe_unreadable_refs,
            self._describe_lost_refs,
            self._describe_lost_objects,
        )
        return tuple(reason for look in looks for reason in look()) if self._files else ()

    def _describe_hidden_files(self) -> Iterator[str]:
        names = sorted(name for was, now in self._marks.values() for name in now.hidden_paths - was.hidden_paths)
        if names:
            more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
            yield f"hides changes of {os.fsdecode(names[0])}{more} from git (assume-unchanged or skip-worktree)"

    def _describe_steps(self) -> Iterator[str]:
        for full_path, file in self._files.items():
            path = _WITHIN.sub("", full_path, count=1)
            obeyed_texts = (lines for name, lines in _OBEYED_TEXTS.items() if re.fullmatch(name, path))
            pattern = _PLAIN_STEP if _TODO.fullmatch(path) else next(obeyed_texts, None)
            if pattern is None or file.after is None or not _is_file(file.after):
                continue
            if file.after.size > _LARGEST_TEXT:
                yield f"leaves {file.path} so large that its steps were not read"
                continue
            lines = self._read_new_text(file).split(b"\n")
            odd = next((line for line in lines if pattern.fullmatch(line.removesuffix(b"\r")) is None), None)
            if odd is not None:
                yield f"leaves a step in {file.path} that git would carry out: {os.fsdecode(odd[:200])}"

    def _describe_hidden_history(self) -> Iterator[str]:
        new_refs = [path for path, file in self._files.items() if path.startswith(_REPLACE) and _is_file(file.after)]
        was, now = self._read_packed_refs()
        new_refs += [name for name in now if name.startswith(_REPLACE) and name not in was]
        if new_refs:
            yield f"makes git show another object in the place of {new_refs[0].removeprefix(_REPLACE)} ({new_refs[0]})"
        if "shallow" in self._files and _is_file(self._files["shallow"].after):
            yield "cuts off the history that git shows (.git/shallow)"

    def _describe_unreadable_refs(self) -> Iterator[str]:
        """With an unreadable HEAD git finds no repository; an unreadable reference stops commands on all of them."""
        for path, file in self._files.items():
            is_reference = path == "HEAD" or (path.startswith("refs/") and not path.endswith(_LOCK))
            if is_reference and _is_file(file.after) and not self._is_readable_ref(file):
                yield f"leaves .git/{path} in a form that git cannot read"

    def _is_readable_ref(self, file: FileChange) -> bool:
        return _REFERENCE.fullmatch(self._read_new_text(file)) is not None

    def _read_packed_refs(self) -> tuple[dict[str, str], dict[str, str]]:
        file = self._files.get("packed-refs", _NO_CHANGE)
        return parse_packed_refs(self._read_old_text(file)), parse_packed_refs(self._read_new_text(file))

    def _describe_lost_refs(self) -> Iterator[str]:
        deleted_refs = dict(self._find_deleted_refs())
        stash_log = self._files.get(f"logs/{_STASH}", _NO_CHANGE)
        remaining_stashes = set(_parse_logged_ids(self._read_new_text(stash_log)))
        stashes = [id for id in _parse_logged_ids(self._read_old_text(stash_log)) if id not in remaining_stashes]
        if not deleted_refs and not stashes and not any(path.startswith("logs/") for path in self._files):
            return
        remaining_ids = self._collect_remaining_ids()
        commits = {name: id for name, id in deleted_refs.items() if id not in remaining_ids and name != _STASH}
        if commits and not self._can_reach_all(set(commits.values()), remaining_ids):
            first = next(iter(commits))
            more = f" and {len(commits) - 1} more" if len(commits) > 1 else ""
            yield f"deletes {first}{more} from git, and with it commits that no other reference holds"
        forgotten = self._collect_forgotten_ids()
        if forgotten and not commits and not self._can_reach_all(forgotten - remaining_ids, remaining_ids):
            yield f"removes {count(len(forgotten), 'commit')} from git's log of references (reflog)"
        lost_stashes = [id for id in stashes if not self._is_in_tree(id)]
        if lost_stashes:
            yield f"drops {count(len(lost_stashes), 'stashed change')} from git"

    def _find_deleted_refs(self) -> Iterator[tuple[str, str]]:
        was, now = self._read_packed_refs()
        if "packed-refs" not in self._files and any(path.startswith("refs/") for path in self._files):
            was = now = parse_packed_refs(self._read_disk_text("packed-refs"))
        for path, file in self._files.items():
            if not path.startswith("refs/"):
                continue
            if not _is_file(file.before):  # a loose file stands before the packed reference
                id = was.get(path, "") if _is_file(file.after) else ""
            else:
                id = self._read_old_text(file).strip().decode(errors="replace")
            is_held = id in self._collect_logged_ids(path) if self._is_readable_ref(file) else now.get(path) == id
            if _ID.fullmatch(id) and not is_held:
                yield path, id
        for name, id in was.items():
            loose = self._files.get(name)
            was_hidden = self._is_loose(name) or (loose is not None and _is_file(loose.before))
            is_held = now.get(name) == id or (name in now and id in self._collect_logged_ids(name))
            if not was_hidden and not is_held:
                yield name, id

    def _collect_logged_ids(self, ref: str) -> frozenset[str]:
        """The commits that the logs of this reference and of HEAD name afterwards: after a move also the former one."""
        return frozenset(
            id for name in (ref, "HEAD") for id in _parse_logged_ids(self._read_log_after(f"logs/{name}"), both=True)
        )

    def _read_log_after(self, path: str) -> bytes:
        return self._read_new_text(self._files[path]) if path in self._files else self._read_disk_text(path)

    def _collect_forgotten_ids(self) -> frozenset[str]:
        """The commits that logs of references named before and no log names now, of references that are still there."""
        ids: set[str] = set()
        for path, file in self._files.items():
            ref = path.removeprefix("logs/")
            if ref in (path, _STASH) or not _is_file(file.before) or not (ref == "HEAD" or self._is_loose(ref)):
                continue
            now = set(_parse_logged_ids(self._read_log_after(path), both=True))
            ids.update(id for id in _parse_logged_ids(self._read_old_text(file), both=True) if id not in now)
        return frozenset(ids - {"0" * 40, "0" * 64})

    def _read_disk_text(self, path: str) -> bytes:
        with suppress(ToolError):
            return self._root.read_bytes(_PREFIX + path, _LARGEST_TEXT)
        return b""

    def _is_loose(self, name: str) -> bool:
        file = self._files.get(name)
        return self._root.inspect(_PREFIX + name) is not None if file is None else _is_file(file.after)

    def _collect_remaining_ids(self) -> frozenset[str]:
        """The commits that references point to afterwards, with the parents of those that the changes made."""
        ids: set[str] = set()
        packed = parse_packed_refs(self._read_log_after("packed-refs"))
        loose = {path for path, file in self._files.items() if file.after is not None}
        ids.update(id for name, id in packed.items() if name not in loose)
        for path, file in self._files.items():
            if (path.startswith("refs/") or path == "HEAD") and _is_file(file.after):
                ids.add(self._read_new_text(file).strip().decode(errors="replace"))
        if self._root.ground is None:
            ids.update(id for path, id in _read_loose_refs(self._root.path) if path not in self._files)
        return self._add_new_parents(each for each in ids if _ID.fullmatch(each))

    def _add_new_parents(self, ids: Iterable[str]) -> frozenset[str]:
        new = {"".join(match.groups()): file for path, file in self._files.items() if (match := _LOOSE.fullmatch(path))}
        commits, todo = set[str](), [*ids]
        while todo and len(commits) < _MOST_COMMITS:
            id = todo.pop()
            if id in commits:
                continue
            commits.add(id)
            if id in new:
                todo += _parse_parents(self._read_new_text(new[id]))
        return frozenset(commits)

    def _can_reach_all(self, ids: Set[str], remaining_ids: frozenset[str]) -> bool:
        if not ids or len(ids) > _MOST_ASKED:
            return not ids
        with suppress(ToolError):  # without a sandbox git is not asked
            if (git := self._git()) is not None:
                # Commits that the changes made are only on the view: missing ones are left aside among those that stay.
                words = ("rev-list", "--count", "--ignore-missing", *sorted(ids), "--not", *sorted(remaining_ids))
                return all(git.is_confirmed("cat-file", "-e", id) for id in ids) and git.ask(*words) == "0"
        return False

    def _is_in_tree(self, stash: str) -> bool:
        """True if these changes bring the content of the stash into the work tree: it was popped, not dropped."""
        with suppress(ToolError):
            if (git := self._git()) is not None:
                output = git.ask("diff-tree", "-r", "--no-renames", f"{stash}^1", stash)
                blobs = {line.split()[3] for line in output.splitlines() if line.startswith(":")} - {"0" * 40, "0" * 64}
                untracked = git.ask("ls-tree", "-r", f"{stash}^3")
                blobs |= {line.split()[2] for line in untracked.splitlines() if line}
                return bool(blobs) and blobs <= self._collect_blob_ids()
        return False

    def _collect_blob_ids(self) -> set[str]:
        ids: set[str] = set()
        for file in self._all:
            if not file.path.startswith(_PREFIX) and _is_file(file.after):
                with suppress(ToolError):
                    ids |= compute_blob_ids(self._after(file, _LARGEST_TEXT))
        return ids

    def _describe_lost_objects(self) -> Iterator[str]:
        # References in tables are not read here, so every change of them is asked for.
        if any(_REFTABLE.match(path) for path in self._files):
            yield "changes references that git keeps in the format reftable, where it cannot be seen if one is lost"
        for path, file in self._files.items():
            is_object = any(kind.fullmatch(path) for kind in (_LOOSE, _PACK, _PACK_INDEX))
            if is_object and file.before and file.after and file.before.digest != file.after.digest:
                yield f"alters .git/{path}, which git never changes once it is written"
                break
        if removed_ids := set(self._find_object_ids(lambda file: file.after is None, self._before)):
            removed_ids -= set(self._find_object_ids(lambda file: file.before is None, self._after))
        if removed_ids and self._root.ground is None:
            removed_ids -= self._collect_packed_ids()
        if removed_ids:
            yield f"removes {count(len(removed_ids), 'object')} of the history that git keeps"
        stored_files = (file for path, file in self._files.items() if _LFS_OBJECT.fullmatch(path))
        if lost := sum(_is_file(file.before) for file in stored_files):
            yield f"removes or alters {count(lost, 'file')} that Git LFS keeps"

    def _find_object_ids(self, accepts: Callable[[FileChange], bool], content: Content) -> Iterator[str]:
        for path, file in self._files.items():
            if not path.startswith("objects/") or not accepts(file):
                continue
            if match := _LOOSE.fullmatch(path):
                yield "".join(match.groups())
            elif _PACK.fullmatch(path) and (index := f"{path.removesuffix('.pack')}.idx") not in self._files:
                with suppress(ToolError):  # without its pack an index holds nothing
                    yield from list_pack_ids(self._root.read_bytes(_PREFIX + index, _LARGEST_INDEX))
            elif _PACK_INDEX.fullmatch(path) and (file.after is None or self._has_pack(path)):
                with suppress(ToolError):
                    yield from list_pack_ids(content(file, _LARGEST_INDEX))

    def _has_pack(self, index: str) -> bool:
        path = f"{index.removesuffix('.idx')}.pack"
        changed = path in self._files
        return self._files[path].after is not None if changed else self._root.inspect(_PREFIX + path) is not None

    def _collect_packed_ids(self) -> set[str]:
        folder, ids = f"{self._root.path}/{_PREFIX}objects/pack", set[str]()
        with suppress(OSError):
            for name in os.listdir(folder):
                path = f"objects/pack/{name}"
                if _PACK_INDEX.fullmatch(path) and path not in self._files and self._has_pack(path):
                    with suppress(ToolError):
                        ids.update(list_pack_ids(self._root.read_bytes(_PREFIX + path, _LARGEST_INDEX)))
        return ids

    def _read_old_text(self, file: FileChange, most: int = _LARGEST_TEXT) -> bytes:
        with suppress(ToolError):
            return self._before(file, most) if _is_file(file.before) else b""
        return b""

    def _read_new_text(self, file: FileChange, most: int = _LARGEST_TEXT) -> bytes:
        with suppress(ToolError):
            return self._after(file, most) if _is_file(file.after) else b""
        return b""


def parse_packed_refs(data: bytes) -> dict[str, str]:
    lines = (line.split(" ", 1) for line in data.decode(errors="replace").splitlines() if line[:1] not in ("#", "^"))
    return {words[1]: words[0] for words in lines if len(words) == 2 and _ID.fullmatch(words[0])}


def list_pack_ids(data: bytes) -> Iterator[str]:
    """The ids in an index of a pack, of version 2; none of what is none."""
    if data[:8] != b"\xfftOc\0\0\0\2" or len(data) < 8 + 1024:
        return
    (number,) = struct.unpack_from(">I", data, 8 + 1020)
    sha256 = len(data) == 1032 + number * (32 + 8) + 2 * 32  # of each object an id, a checksum, an offset; two trailers
    size = 32 if sha256 else 20
    for at in range(1032, min(1032 + number * size, len(data) - size + 1), size):
        yield data[at : at + size].hex()


def _parse_parents(data: bytes) -> list[str]:
    try:
        kind, _, body = zlib.decompressobj().decompress(data, 1 << 14).partition(b"\0")
    except zlib.error:
        return []
    head = body.partition(b"\n\n")[0].decode(errors="replace").split("\n") if kind.startswith(b"commit ") else []
    return [line[7:] for line in head if line.startswith("parent ")]


def _read_loose_refs(root: str) -> Iterator[tuple[str, str]]:
    base = f"{root}/{_PREFIX}"
    paths = (os.path.join(folder, name) for folder, _, names in os.walk(f"{base}refs") for name in names)
    for path in islice(paths, _MOST_REFS):
        with suppress(OSError), open(path, "rb") as file:
            yield os.path.relpath(path, base), file.read(64).strip().decode(errors="replace")


def _parse_logged_ids(data: bytes, *, both: bool = False) -> list[str]:
    """The commits that the lines of a log lead to; with `both` also those that they come from."""
    words = [line.split(b" ", 2) for line in data.split(b"\n")]
    return [id.decode(errors="replace") for line in words if len(line) == 3 for id in (line[:2] if both else line[1:2])]


def _is_file(state: FileState | None) -> bool:
    return state is not None and state.kind == "file"


_MOST_CONFIGURATIONS = 20
_MOST_HOOKS = 1_000
_NAMING = re.compile(
    rb"^[ \t]*(?:hooksPath|path|fsmonitor|pager|editor|askPass|sshCommand|gitProxy|alternateRefsCommand|attributesFile"
    rb"|textconv|command|clean|smudge|process|driver|helper|program|cmd|[\w-]+[ \t]*=[ \t]*\"?!)[ \t]*=?[ \t]*(.*)$",
    re.IGNORECASE | re.MULTILINE,
)
"""Settings of git whose values name programs, or files with further settings; and aliases that run something."""
_USER_CONFIGURATIONS = ("~/.gitconfig", "~/.config/git/config")


def find_obeyed_files(root: Root, files: Iterable[FileChange]) -> Iterator[str]:
    """Changed files that git runs or reads: each as the end of a sentence that begins with `it`."""
    files = [file for file in files if file.after is not None and not file.path.startswith(_PREFIX)]
    if not files:
        return
    named_paths = _read_project_paths(root) | _read_user_paths()
    linked_paths = _find_linked_hooks(root.path, named_paths)
    for file in files:
        path = decode_path(file.path)
        above = {path, *(path[:at] for at, letter in enumerate(path) if letter == "/")}
        if above & named_paths:
            yield f"changes {path}, which git runs or reads because its configuration names it"
        elif above & linked_paths:
            yield f"changes {path}, which git runs because a hook is a link to it"


def _read_project_paths(root: Root) -> set[str]:
    """The paths that the configuration of the repository names, and the files that it includes from the project."""
    pending, texts = [f"{_PREFIX}config", f"{_PREFIX}config.worktree"], dict[str, bytes]()
    named_paths: set[str] = set()
    while pending and len(texts) < _MOST_CONFIGURATIONS:
        configuration = pending.pop(0)
        if configuration in texts:
            continue
        try:
            texts[configuration] = root.read_bytes(configuration, _LARGEST_TEXT)
        except ToolError:
            continue
        words = _parse_value_words(texts[configuration])
        bases = {"", ".git", os.path.dirname(configuration)}
        paths = {os.path.normpath(os.path.join(base, word)) for word in words for base in bases}
        named_paths |= paths
        inside = (path for path in paths if not os.path.isabs(path) and not path.startswith(".."))
        pending += sorted(path for path in inside if os.path.isfile(os.path.join(root.path, path)))
    return named_paths


def _read_user_paths() -> set[str]:
    """Only relative paths. A word without a slash is a program of the search path, unless it is the folder of hooks."""
    named_paths: set[str] = set()
    for name in _USER_CONFIGURATIONS:
        data = b""
        with suppress(OSError), open(os.path.expanduser(name), "rb") as file:
            data = file.read(_LARGEST_TEXT)
        words = [word for word in _parse_value_words(data) if "/" in word]
        folders = re.findall(rb"(?im)^[ \t]*hooksPath[ \t]*=[ \t]*(\S+)", data)
        words += [os.fsdecode(folder).strip('"') for folder in folders]
        named_paths |= {os.path.normpath(word) for word in words if word[:1] not in "/~"}
    return named_paths


def _parse_value_words(data: bytes) -> list[str]:
    values = _NAMING.findall(data)
    return [os.fsdecode(word) for value in values for word in re.split(rb"[\s\"';|&]+", value) if word]


def _find_linked_hooks(root: str, named_paths: Iterable[str]) -> set[str]:
    """Where links among the hooks lead, relative to the project, which often tracks the scripts that they lead to."""
    top = os.path.realpath(root)
    targets: set[str] = set()
    for folder in {f"{_PREFIX}hooks", *named_paths} - {"."}:
        path = os.path.join(top, folder)
        if os.path.islink(path):
            targets.add(os.path.realpath(path))
        with suppress(OSError), os.scandir(path) as entries:
            links = [entry.path for entry in islice(entries, _MOST_HOOKS) if entry.is_symlink()]
            targets.update(os.path.realpath(link) for link in links)
    return {os.path.relpath(target, top) for target in targets if target != top and is_below(target, top)}


MOST_ASKED = 1_000
_LARGEST_ASKED = 64 << 20  # Larger or more files are not looked up in git
_SMALLEST_TEXT = 8  # A file with fewer bytes holds a number or a word, which commands overwrite often


def find_unrecoverable_paths(
    root: Root, files: Sequence[FileChange], was_made: Callable[[str], bool], git: Callable[[], Git | None]
) -> tuple[str, ...]:
    """The paths. `was_made` tells if an earlier change left bytes with this hash; `git` is asked only if it must be."""
    # Without git's data, and without files that tools can make again: a later command removes those unasked. A change
    # of .gitignore does not exempt files from review.
    rewritten = any(decode_path(file.path).rpartition("/")[2] == ".gitignore" for file in files)
    judged = (file for file in files if not is_in_git(file.path) and not get_cache(file))
    considered = [file for file in judged if rewritten or not file.ignored]
    after_digests = {file.after.digest for file in considered if file.after is not None}
    lost_files = []
    for file in considered:
        digest = "" if file.before is None else file.before.digest
        if _is_removed(root, file) and not (digest and (digest in after_digests or was_made(digest))):
            lost_files.append(file)
    with suppress(ToolError):  # without a sandbox git is not asked, and nothing is known of it
        if 0 < len(lost_files) <= MOST_ASKED and (repository := git()) is not None:
            ids = {file.path: _compute_ids(root, file) for file in lost_files}
            there = repository.find_blobs([each for some in ids.values() for each in some])
            lost_files = [file for file in lost_files if not ids[file.path] & there]
    return tuple(file.path for file in lost_files)


def _is_removed(root: Root, file: FileChange) -> bool:
    """True if a file is gone, or less than a tenth of its size or of its lines is left."""
    before, after = file.before, file.after
    old_size = before.size if before is not None and before.kind == "file" else 0
    new_size = after.size if after is not None and after.kind == "file" else 0
    if old_size > 10 * new_size:
        return True
    if old_size < _SMALLEST_TEXT or file.removed <= 0:
        return False
    try:
        data = root.read_bytes(decode_path(file.path), _LARGEST_ASKED)
    except ToolError:
        return False
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    return 10 * (lines - file.removed) < lines


def _compute_ids(root: Root, file: FileChange) -> frozenset[str]:
    with suppress(ToolError):
        return compute_blob_ids(root.read_bytes(decode_path(file.path), _LARGEST_ASKED))
    return frozenset()
