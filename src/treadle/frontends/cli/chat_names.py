"""The chats that a shell offers for completion: ids and titles, newest first, without a noticeable delay. So nothing of
Treadle is loaded, and the file of the SQLite store is read directly; a test ensures that this agrees with the store.
Without such a file, no chats are offered."""

import os
import sqlite3
from pathlib import Path

from treadle.base.inert import inert_line

MOST = 100
_NEWEST = "SELECT id, title FROM chats WHERE archived = 0 ORDER BY updated_ms DESC, id DESC LIMIT ?"


def newest() -> list[str]:
    """Lines of id, tab and title."""
    file = _database()
    if file is None or not file.is_file():
        return []
    try:
        connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=1)
        try:
            rows = connection.execute(_NEWEST, (MOST,)).fetchall()
        finally:
            connection.close()
    except sqlite3.Error:
        return []
    return [f"{inert_line(str(chat))}\t{inert_line(str(title or ''), 60)}" for chat, title in rows]


def _database() -> Path | None:
    home = Path(os.environ.get("TREADLE_HOME") or _usual_home()).expanduser()
    store = os.environ.get("TREADLE_STORE") or _configured(home / "config.toml")
    if "://" in store:
        return None
    return Path(store).expanduser() if store else home / "treadle.db"


def _usual_home() -> str:
    from platformdirs import user_data_dir

    return user_data_dir("treadle")


def _configured(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    if "store" not in text:
        return ""
    import tomllib

    try:
        return str(tomllib.loads(text).get("store", ""))
    except tomllib.TOMLDecodeError:
        return ""
