"""Which files a set of changes would remove for good (S-16): their bytes are neither in the project's repository, nor
left by an earlier change, nor by the same changes in another place. Looks, and changes nothing."""

from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress

from treadle.errors import ToolError
from treadle.lines.changes import cache_of, in_git
from treadle.protocol.files import FileChange, decode_path
from treadle.workspace.git import Git, blob_ids
from treadle.workspace.root import Root

MOST_ASKED = 1_000
_LARGEST_ASKED = 64 << 20
"""What is larger, or more, is not looked for in git."""


def unrecoverable(
    root: Root, files: Sequence[FileChange], made: Callable[[str], bool], git: Callable[[], Git | None]
) -> tuple[str, ...]:
    """The paths. `made` says of a hash whether an earlier change left such bytes; `git` is asked only if it must be."""
    left = {file.after.digest for file in files if file.after is not None}
    lost = [file for file in _removed(files) if not _known(file, left, made)]
    if not lost or len(lost) > MOST_ASKED:
        return tuple(file.path for file in lost)
    with suppress(ToolError):  # without a sandbox git is not asked, and nothing is known of it
        if (repository := git()) is not None:
            ids = {file.path: _ids(root, file) for file in lost}
            there = repository.has_blobs([each for some in ids.values() for each in some])
            lost = [file for file in lost if not ids[file.path] & there]
    return tuple(file.path for file in lost)


def _removed(files: Sequence[FileChange]) -> Iterable[FileChange]:
    """Files of which next to nothing is left: gone, emptied, less than a tenth of it, or something else by now. What
    tools can make again is left aside; but who changes what is ignored does not decide thereby what counts."""
    rewritten = any(decode_path(file.path).rpartition("/")[2] == ".gitignore" for file in files)
    for file in files:
        before, after = file.before, file.after
        had = before.size if before is not None and before.kind == "file" else 0
        has = after.size if after is not None and after.kind == "file" else 0
        aside = in_git(file.path) or cache_of(file) or (file.ignored and not rewritten)
        if had > 10 * has and not aside:
            yield file


def _known(file: FileChange, left: Container[str], made: Callable[[str], bool]) -> bool:
    digest = "" if file.before is None else file.before.digest
    return bool(digest) and (digest in left or made(digest))


def _ids(root: Root, file: FileChange) -> frozenset[str]:
    try:
        data = root.read_bytes(decode_path(file.path), _LARGEST_ASKED)
    except ToolError:
        return frozenset()
    return blob_ids(len(data), (data,))
