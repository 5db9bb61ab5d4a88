"""The desktop's clipboard, by the programs that are there for it."""

import os
import shutil
from collections.abc import Mapping

TIMEOUT_S = 5.0


def copy_command(environment: Mapping[str, str]) -> list[str]:
    """The program that takes the clipboard's text on its standard input; empty if there is none."""
    if environment.get("WAYLAND_DISPLAY") and (program := shutil.which("wl-copy")):
        return [program]
    if environment.get("DISPLAY") and (program := shutil.which("xclip")):
        return [program, "-selection", "clipboard", "-in"]
    if environment.get("DISPLAY") and (program := shutil.which("xsel")):
        return [program, "--clipboard", "--input"]
    if program := shutil.which("pbcopy") or shutil.which("clip.exe"):
        return [program]
    return []


async def copy_to_desktop(text: str) -> None:
    if not (command := copy_command(os.environ)):
        return
    from treadle.subprocesses import run_program  # the first frame does without it

    try:
        await run_program(command, cwd=os.getcwd(), env=os.environ, given=text.encode(), timeout_s=TIMEOUT_S)
    except OSError:  # the terminal has it in any case
        return
