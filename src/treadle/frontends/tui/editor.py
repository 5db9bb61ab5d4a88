"""The person's own editor for a text, while the app is put aside."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from treadle.base.process_folders import process_folder_prefix


def edited(text: str) -> str | None:
    """Return the text after the person edited it; None if there is no editor, or it failed."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix=process_folder_prefix()) as folder:
        path = Path(folder) / "message.md"
        path.write_text(text, encoding="utf-8")
        try:
            completed = subprocess.run([*shlex.split(editor), str(path)])
        except (OSError, ValueError):
            return None
        return path.read_text(encoding="utf-8", errors="replace") if completed.returncode == 0 else None
