"""The two programs that search: ripgrep, and our own where there is none. Both work in a directory that is held open,
never go through a link, and write the same. Which command line, and what of ripgrep may not be used, is decided here.

ripgrep opens files by path, so a directory that is swapped for a link at the right moment can make it look outside.
Therefore nothing it says is believed but numbers: names are checked and lines read again through the root (`search`).
"""

import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

from treadle.adapters.workspace.paths.glob import expand
from treadle.adapters.workspace.paths.ignore import FOLDERS
from treadle.adapters.workspace.search.scan import MAX_FILE, SearchJob
from treadle.base.subprocesses import program_outside

TIMEOUT_S = 30.0

# No configuration of the user's or the project's, no preprocessor, no archive, no file above the directory.
_SAFE = (
    "--no-config",
    "--no-messages",
    "--color=never",
    "--no-follow",
    "--no-pre",
    "--no-search-zip",
    "--no-mmap",
    "--null",
    "--hidden",
    "--no-require-git",
    "--no-ignore-dot",
    "--no-ignore-exclude",
    "--no-ignore-global",
    "--no-ignore-parent",
)
# The lines themselves are left out, however long: their numbers are enough.
_NUMBERS = (
    "--heading",
    "--with-filename",
    "--line-number",
    "--column",
    "--max-columns=1",
    "--no-max-columns-preview",
    "--crlf",
    "--engine=auto",
    f"--max-filesize={MAX_FILE}",
    "--no-context-separator",
)
_NO_UTF8 = (
    r"(?-u)[\xC0\xC1\xF5-\xFF]|(?:^|[\x00-\x7F])[\x80-\xBF]|[\xC2-\xF4](?:[^\x80-\xBF]|$)|[\xC2-\xDF][\x80-\xBF]{2}"
)
"""Bytes that valid UTF-8 does not have. Some other texts that have none of them are valid UTF-8 as well."""
_PLAIN_NAME = re.compile(r"[\w.*?-]+")


@cache
def ripgrep(root: str) -> str | None:
    """The program, beside the interpreter or on the path; never one that the project brings along (S-09)."""
    bundled = os.path.join(os.path.dirname(sys.executable), "rg") if sys.executable else ""
    if bundled and os.access(bundled, os.X_OK):
        return bundled
    return program_outside("rg", root)


def command(program: str | None, job: SearchJob) -> list[str]:
    """The command line for a job; without a program, of our own one."""
    return _build_scan_command(job) if program is None else _ripgrep(program, job)


def environment() -> dict[str, str]:
    """Nothing that could configure a program: no RIPGREP_CONFIG_PATH, no PYTHON…, no keys."""
    return {name: os.environ[name] for name in ("SYSTEMROOT", "TMPDIR") if name in os.environ}


def _ripgrep(program: str, job: SearchJob) -> list[str]:
    argv = [program, *_SAFE, *(f"--glob=!{folder}" for folder in FOLDERS)]
    if job.rules >= 0:
        argv.append(f"--ignore-file=/dev/fd/{job.rules}")
    if not job.pattern:
        return [*argv, "--files", "--", "."]
    argv += _NUMBERS
    argv.append("--ignore-case" if job.ignore_case else "--case-sensitive")
    if job.literal:
        argv.append("--fixed-strings")
    return [*argv, *_types(job), f"--regexp={job.pattern}", "--", "-" if job.stdin else "."]


def list_other_encodings(program: str, job: SearchJob) -> list[str]:
    """The command line of ripgrep that names the files whose bytes are no valid UTF-8, each ended by a NUL."""
    names = _ripgrep(program, msgspec.structs.replace(job, pattern=""))[:-3]
    more = ("--files-with-matches", "--encoding=none", f"--max-filesize={MAX_FILE}", *_types(job))
    return [*names, *more, f"--regexp={_NO_UTF8}", "--", "."]


def _types(job: SearchJob) -> list[str]:
    """A type, and not a glob: a glob would bring back what .gitignore names."""
    names = _plain_names(job.include)
    return [*(f"--type-add=wanted:{name}" for name in names), "--type=wanted"] if names else []


def _plain_names(include: str) -> Sequence[str]:
    """Globs of the last name, which spare reading what cannot match; none if it takes more than those to tell."""
    if not include:
        return ()
    names = [pattern.rpartition("/")[2] for pattern in expand(include)]
    return names if all(_PLAIN_NAME.fullmatch(name) for name in names) else ()


def _build_scan_command(job: SearchJob) -> list[str]:
    # Isolated, and with our own search path: the working directory is the project's, whose modules must not run.
    path = [str(Path(__file__).resolve().parents[4]), *(folder for folder in sys.path if os.path.isabs(folder))]
    run = "from treadle.adapters.workspace.search.scan import main\nsys.exit(main(sys.argv[1]))"
    code = f"import sys; sys.path[:] = {path!r}\n{run}"
    job = msgspec.structs.replace(job, seconds=int(TIMEOUT_S) + 5)
    return [sys.executable, "-I", "-S", "-c", code, msgspec.json.encode(job).decode()]
