"""The desktop around the terminal: pictures for models that can see, the clipboard, and the person's own editor.
Programs are looked for when they are needed: the first frame does without them."""

import asyncio
import mimetypes
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from treadle.errors import InvalidInput

PNG = b"\x89PNG\r\n\x1a\n"
PATIENCE_S = 10.0
COPY_S = 5.0


def guess_picture_kind(path: str) -> str:
    """The media type, if the name is that of a picture which models take; else nothing."""
    from treadle.protocol.content import PICTURE_KINDS  # here: the first frame of the app does without

    kind = mimetypes.guess_type(path)[0] or ""
    return kind if kind in PICTURE_KINDS else ""


def find_picture(text: str) -> str:
    """The path of a picture that is there, if the text is nothing but that, as when a file is dragged to a terminal."""
    path = text.strip().strip("'\"").replace("\\ ", " ")
    if not path or "\n" in path or not guess_picture_kind(path):
        return ""
    picture = Path(path).expanduser()
    return str(picture) if picture.is_file() else ""


def read_picture(path: str) -> tuple[str, bytes]:
    if not (kind := guess_picture_kind(path)):
        raise InvalidInput(f"{path} is no picture that a model could take")
    try:
        return kind, Path(path).expanduser().read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error


def find_clipboard_command(environment: Mapping[str, str]) -> list[str]:
    """The command that prints the picture of the clipboard as PNG on this machine; empty if there is none."""
    commands = {
        "wl-paste": ["--no-newline", "--type", "image/png"],
        "xclip": ["-selection", "clipboard", "-target", "image/png", "-out"],
        "pngpaste": ["-"],
    }
    return _find_program(commands, environment, shutil.which)


def _find_program(
    commands: Mapping[str, list[str]], environment: Mapping[str, str], find: Callable[[str], str | None]
) -> list[str]:
    """The first of these programs that is installed and has the display that it needs, with its arguments."""
    displays = {"wl-paste": "WAYLAND_DISPLAY", "wl-copy": "WAYLAND_DISPLAY", "xclip": "DISPLAY", "xsel": "DISPLAY"}
    for name, arguments in commands.items():
        if (name not in displays or environment.get(displays[name])) and (program := find(name)):
            return [program, *arguments]
    return []


async def save_clipboard_picture(folder: Path | None) -> str:
    """The path of a file with the picture of the clipboard; InvalidInput if there is none, or no way to get it."""
    command = find_clipboard_command(os.environ)
    if not command:
        hint = "install wl-clipboard, xclip or pngpaste, or paste the path of a picture"
        raise InvalidInput(f"the clipboard cannot be read here: {hint}")
    from treadle.base.subprocesses import kill_group, start_program

    process = await start_program(command, os.environ, stdin=asyncio.subprocess.DEVNULL)
    try:
        data, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    except TimeoutError as error:
        raise InvalidInput(f"{command[0]} does not answer") from error
    finally:
        kill_group(process.pid)
    if not data.startswith(PNG):
        raise InvalidInput("there is no picture in the clipboard")

    def save() -> str:
        place = None if folder is None else folder / "pictures"
        if place is not None:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, path = tempfile.mkstemp(".png", "clipboard-", place)
        with open(descriptor, "wb") as file:
            file.write(data)
        return path

    return await asyncio.to_thread(save)


def find_copy_command(environment: Mapping[str, str]) -> list[str]:
    """The program that takes the clipboard's text on its input, never one of the project (S-09); empty: none."""
    from treadle.base.subprocesses import find_program_outside

    commands = {"wl-copy": [], "xclip": ["-selection", "clipboard", "-in"], "xsel": ["--clipboard", "--input"]}
    commands |= {"pbcopy": [], "clip.exe": []}
    return _find_program(commands, environment, lambda name: find_program_outside(name, os.getcwd()))


async def copy_to_desktop(text: str) -> None:
    if not (command := find_copy_command(os.environ)):
        return
    from treadle.base.subprocesses import run_program

    try:
        await run_program(command, cwd=os.getcwd(), env=os.environ, stdin_data=text.encode(), timeout_s=COPY_S)
    except OSError:  # the terminal has it in any case
        return


def edit_text(text: str) -> str | None:
    """Return the text after the person edited it; None if there is no editor, or it failed."""
    import shlex
    import subprocess

    from treadle.base.process_folders import make_folder_prefix

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix=make_folder_prefix()) as folder:
        path = Path(folder) / "message.md"
        path.write_text(text, encoding="utf-8")
        try:
            completed = subprocess.run([*shlex.split(editor), str(path)])
        except (OSError, ValueError):
            return None
        return path.read_text(encoding="utf-8", errors="replace") if completed.returncode == 0 else None
