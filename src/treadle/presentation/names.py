"""What has a long name, where there is little room."""

from treadle.inert import inert_line


def model_name(ref: str, width: int = 0) -> str:
    """A model; one that is a file by the file's own name: which folder it lies in says little."""
    provider, colon, name = inert_line(ref).partition(":")
    if colon and name.startswith(("/", "./", "../", "~")):
        name = name.rpartition("/")[2]
    shown = f"{provider}{colon}{name}"
    return f"{provider}{colon}{tail(name, max(6, width - len(provider) - 1))}" if 0 < width < len(shown) else shown


def tail(text: str, width: int) -> str:
    """The end of a path, or of a name, says more than its beginning."""
    return text if len(text) <= width else f"…{text[1 - width :]}"
