"""Which languages are coloured: an allow list of lexers by the name that pygments gives them. A lexer is a stranger's
program of regular expressions that runs on a stranger's text; those of rare languages are seldom looked at (S-20)."""

# fmt: off
LEXERS = frozenset({
    "Bash", "Bash Session", "Batchfile", "C", "C#", "C++", "CMake", "CSS", "Clojure", "Common Lisp", "Dart", "Diff",
    "Docker", "Elixir", "Elm", "Erlang", "F#", "Fish", "Fortran", "GDScript", "GLSL", "Go", "GraphQL", "Groovy", "HTML",
    "HTTP", "Haskell", "INI", "JSON", "JSON-LD", "JavaScript", "JSX", "Julia", "Kotlin", "LLVM", "Lua",
    "Makefile", "Markdown", "MySQL", "Nginx configuration file", "Nix", "NumPy", "OCaml", "Objective-C", "PHP",
    "PL/pgSQL", "Perl", "PostgreSQL SQL dialect", "PowerShell", "Properties", "Protocol Buffer", "Python",
    "Python Traceback", "Python console session", "Ruby", "Rust", "S", "SCSS", "SQL", "Sass", "Scala", "Solidity",
    "Swift", "TOML", "TSX", "TeX", "Terraform", "Text only", "TypeScript", "VimL", "Vue", "XML", "YAML", "Zig",
    "reStructuredText",
})
# fmt: on
