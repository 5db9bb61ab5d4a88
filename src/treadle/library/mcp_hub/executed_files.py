"""Which files of a project its MCP servers execute: those that the declaration names, and those that the program looks
for by itself. Trust in a declaration is trust in these files as they are (E-01, S-09). Imports of these
files are not followed: the sandbox bounds the rest."""

import os
from collections.abc import Iterator, Mapping

from treadle.base.file_system import is_below
from treadle.errors import ConfigError
from treadle.library.mcp_hub.settings import Server, filled

MOST_BYTES = 64 << 20
"""Of one file: servers are often one file that a bundler made."""
_STARTED = ("__main__.py", "index.js", "index.mjs", "index.cjs", "index.ts", "package.json")
"""The files that interpreters run when their argument is a folder."""
_LOOKED_FOR = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun", "npx", "deno"), ("package.json", "deno.json")),
    **dict.fromkeys(("make", "gmake"), ("Makefile", "makefile", "GNUmakefile")),
    **dict.fromkeys(("uv", "poetry", "pdm", "hatch"), ("pyproject.toml",)),
    "just": ("justfile", "Justfile"),
    "cargo": ("Cargo.toml", "build.rs"),
    "docker": ("Dockerfile", "compose.yaml", "docker-compose.yml"),
}
"""By program: the files in its folder that say what it runs."""


def executed_files(server: Server, root: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Absolute paths without links, each once, of regular files inside the project."""
    if not server.command:
        return ()
    try:
        words = [filled(word, environment) for word in (server.command, *server.args)]
        cwd = filled(server.cwd, environment)
    except ConfigError:  # it cannot be started either
        return ()
    real = os.path.realpath(root)
    folder = os.path.join(real, cwd)
    argument_paths = (path for number, word in enumerate(words) for path in _paths_of_word(words, number, word, folder))
    looked_for = (os.path.join(folder, name) for name in _LOOKED_FOR.get(os.path.basename(words[0]), ()))
    paths = (os.path.realpath(path) for path in (*argument_paths, *looked_for))
    return tuple(dict.fromkeys(path for path in paths if is_below(path, real) and os.path.isfile(path)))


def _paths_of_word(words: list[str], number: int, word: str, folder: str) -> Iterator[str]:
    if number and words[number - 1] == "-m":
        module = word.replace(".", "/")
        yield from (os.path.join(folder, place) for place in (f"{module}.py", f"{module}/__main__.py"))
        yield from (os.path.join(folder, "src", place) for place in (f"{module}.py", f"{module}/__main__.py"))
        return
    if not number and "/" not in word:
        return  # a program of the search path
    path = os.path.join(folder, word.rpartition("=")[2] if word.startswith("-") else word)
    if "\0" in path:
        return
    yield path
    if os.path.isdir(path):
        yield from (os.path.join(path, name) for name in _STARTED)
