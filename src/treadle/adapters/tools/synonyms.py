"""Names of arguments in other products, by tool (T-09): models bring these names along. A name is only taken for
another if nothing else could be meant; `coerce` decides that."""

from collections.abc import Mapping

_FOLDER = (
    "directory",
    "dir",
    "dir_path",
    "directory_path",
    "DirectoryPath",
    "folder",
    "target_directory",
    "relative_workspace_path",
    "SearchDirectory",
    "SearchPath",
    "root",
)

_CONTENT = ("contents", "text", "file_text", "file_content", "fileContent", "CodeContent")

SYNONYMS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "read_file": {
        "start_line": ("start", "startLine", "line_start", "StartLine"),
        "end_line": ("end", "endLine", "line_end", "EndLine"),
    },
    "write_file": {"content": _CONTENT},
    "edit_file": {
        "old_str": ("old_string", "oldString", "old_text", "oldText", "search", "find", "old"),
        "new_str": ("new_string", "newString", "new_text", "newText", "replace", "replacement", "new"),
        "line": ("line_number", "lineNumber", "start_line"),
        "replace_all": ("replaceAll", "all"),
        "content": _CONTENT,
    },
    "apply_patch": {"patch": ("input", "diff", "patch_text", "patchText", "text")},
    "ask_user": {"options": ("choices",)},
    "list_directory": {"path": _FOLDER},
    "find_files": {
        "path": _FOLDER,
        "pattern": ("glob", "glob_pattern", "query", "name", "filename", "file_pattern", "Pattern"),
        "ignore_case": ("case_insensitive", "-i"),
    },
    "grep_search": {
        "path": _FOLDER,
        "pattern": ("query", "regex", "search", "search_term", "text", "q", "Query"),
        "include": ("glob", "include_pattern", "includePattern", "file_pattern", "file_glob", "Includes"),
        "ignore_case": ("case_insensitive", "CaseInsensitive", "-i"),
        "context": ("context_lines", "lines_of_context", "-C"),
        "output": ("output_mode",),
        "literal": ("fixed_strings", "-F"),
    },
}
