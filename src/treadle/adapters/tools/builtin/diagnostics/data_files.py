"""Files that are data: parsed here, in the process, and said where they are broken."""

import json
import re

from treadle.adapters.tools.builtin.diagnostics.diagnostic import Diagnostic

_AT = re.compile(r"\(at line (\d+), column (\d+)\)")
_WITH_COMMENTS = re.compile(
    r"(?:^|/)(?:tsconfig[^/]*|jsconfig[^/]*|\.eslintrc|\.?devcontainer)\.json$|(?:^|/)\.vscode/"
)
"""JSON that may have comments by custom: not judged."""


def diagnose(path: str, data: bytes) -> tuple[str, list[Diagnostic]] | None:
    """Return the name of the checker and its findings; None if there is no checker for such a file."""
    ending = path.rpartition(".")[2].lower()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return "utf-8", [Diagnostic(path, data[: error.start].count(b"\n") + 1, 0, "error", str(error), "utf-8")]
    match ending:
        case "json" if not _WITH_COMMENTS.search(path):
            return "json", _json(path, text)
        case "toml":
            return "toml", _toml(path, text)
        case "yaml" | "yml":
            return _yaml(path, text)
        case _:
            return None


def _json(path: str, text: str) -> list[Diagnostic]:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return [Diagnostic(path, error.lineno, error.colno, "error", error.msg, "json")]
    except RecursionError:
        return [Diagnostic(path, 0, 0, "warning", "nested too deeply to be read", "json")]
    return []


def _toml(path: str, text: str) -> list[Diagnostic]:
    import tomllib

    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        at = _AT.search(message)
        line, column = (int(at[1]), int(at[2])) if at else (0, 0)
        return [Diagnostic(path, line, column, "error", _AT.sub("", message).strip(), "toml")]
    except RecursionError:
        return [Diagnostic(path, 0, 0, "warning", "nested too deeply to be read", "toml")]
    return []


def _yaml(path: str, text: str) -> tuple[str, list[Diagnostic]] | None:
    """With PyYAML, if it happens to be installed."""
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return None
    try:
        for _event in yaml.parse(text, Loader=yaml.SafeLoader):
            pass
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
        return "yaml", [Diagnostic(path, line, column, "error", error.problem or str(error), "yaml")]
    except (yaml.YAMLError, RecursionError) as error:
        return "yaml", [Diagnostic(path, 0, 0, "error", str(error), "yaml")]
    return "yaml", []
