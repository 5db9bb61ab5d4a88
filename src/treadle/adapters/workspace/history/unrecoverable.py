"""Which files a set of changes would remove for good (S-16): their bytes are neither in the project's repository, nor
left by an earlier change, nor by the same changes in another place that is not ignored. Looks, and changes nothing."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from treadle.adapters.workspace.git import Git, blob_ids
from treadle.adapters.workspace.root import Root
from treadle.diff.changes import cache_of, in_git
from treadle.errors import ToolError
from treadle.protocol.files import FileChange, decode_path

MOST_ASKED = 1_000
_LARGEST_ASKED = 64 << 20
"""Larger or more files are not looked up in git."""
_SMALLEST_TEXT = 8
"""A file with fewer bytes holds a number or a word, such as a port or a counter: commands overwrite those often."""


def unrecoverable(
    root: Root, files: Sequence[FileChange], was_made: Callable[[str], bool], git: Callable[[], Git | None]
) -> tuple[str, ...]:
    """The paths. `made` says of a hash whether an earlier change left such bytes; `git` is asked only if it must be."""
    # Without git's data, and without files that tools can make again: a later command removes those unasked. A change
    # of .gitignore does not exempt files from review.
    rewritten = any(decode_path(file.path).rpartition("/")[2] == ".gitignore" for file in files)
    judged = (file for file in files if not in_git(file.path) and not cache_of(file))
    considered = [file for file in judged if rewritten or not file.ignored]
    after_digests = {file.after.digest for file in considered if file.after is not None}
    lost_files = []
    for file in considered:
        digest = "" if file.before is None else file.before.digest
        if _is_removed(root, file) and not (digest and (digest in after_digests or was_made(digest))):
            lost_files.append(file)
    if not lost_files or len(lost_files) > MOST_ASKED:
        return tuple(file.path for file in lost_files)
    with suppress(ToolError):  # without a sandbox git is not asked, and nothing is known of it
        if (repository := git()) is not None:
            ids = {file.path: _ids(root, file) for file in lost_files}
            there = repository.has_blobs([each for some in ids.values() for each in some])
            lost_files = [file for file in lost_files if not ids[file.path] & there]
    return tuple(file.path for file in lost_files)


def _is_removed(root: Root, file: FileChange) -> bool:
    """True if next to nothing is left of a file: it is gone, emptied or something else by now, less than a tenth of its
    size is left, or less than a tenth of its lines."""
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


def _ids(root: Root, file: FileChange) -> frozenset[str]:
    try:
        data = root.read_bytes(decode_path(file.path), _LARGEST_ASKED)
    except ToolError:
        return frozenset()
    return blob_ids(len(data), (data,))
