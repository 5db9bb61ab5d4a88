"""Compiled Python files do not get from a view into the project (S-23). Python runs a `.pyc` instead of its source, and
a person cannot see whether it says the same; Python makes it again when it is needed.

Two exceptions. A tracked file is a file of the project like any other, and is shown. In a folder of installed packages
a `.pyc` comes with the source that the same command installed: that source is not read either, and without the compiled
files every later command would compile the packages anew.
"""

from collections.abc import Sequence

from treadle.diff.changes import cache_of, is_folder
from treadle.protocol.files import FileChange, decode_path

_FOLDER = "__pycache__"
_SUFFIXES = (".pyc", ".pyo")
_INSTALLED = ("site-packages", "dist-packages")


def without_compiled(files: Sequence[FileChange]) -> tuple[FileChange, ...]:
    """The changes without compiled files, and without folders that would only hold those. Removals stay."""
    present = [file for file in files if file.after is not None]
    if not any(file.path.endswith(_SUFFIXES) for file in present):
        return tuple(files)
    sources = {decode_path(file.path) for file in present}
    dropped = {file.path for file in present if is_compiled(file) and not _is_installed(file, sources)}
    used_folders = {file.path.rpartition("/")[0] for file in present if file.path not in dropped}
    for file in present:
        empty = is_folder(file) and file.before is None and file.path not in used_folders
        if empty and file.path.rpartition("/")[2] == _FOLDER:
            dropped.add(file.path)
    return tuple(file for file in files if file.path not in dropped)


def is_compiled(file: FileChange) -> bool:
    return file.path.endswith(_SUFFIXES) and not is_folder(file) and not file.tracked


def _is_installed(file: FileChange, sources: set[str]) -> bool:
    """True for a file among installed packages whose source the same changes write."""
    path = decode_path(file.path)
    folder, _, name = path.rpartition("/")
    if not (cache_of(file) or file.ignored) or not set(_INSTALLED).intersection(folder.split("/")):
        return False
    source_folder = folder.removesuffix(f"/{_FOLDER}")
    return f"{source_folder}/{name.partition('.')[0]}.py" in sources
