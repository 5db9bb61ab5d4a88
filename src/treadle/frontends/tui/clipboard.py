"""The desktop's clipboard, by the programs that are there for it."""

import os
from collections.abc import Mapping

TIMEOUT_S = 5.0


def copy_command(environment: Mapping[str, str]) -> list[str]:
    """The program that takes the clipboard's text on its standard input; empty if there is none. Never one of
    the project (S-09)."""
    from treadle.base.subprocesses import program_outside  # the first frame does without it

    def find(name: str) -> str | None:
        return program_outside(name, os.getcwd())

    if environment.get("WAYLAND_DISPLAY") and (program := find("wl-copy")):
        return [program]
    if environment.get("DISPLAY") and (program := find("xclip")):
        return [program, "-selection", "clipboard", "-in"]
    if environment.get("DISPLAY") and (program := find("xsel")):
        return [program, "--clipboard", "--input"]
    if program := find("pbcopy") or find("clip.exe"):
        return [program]
    return []


async def copy_to_desktop(text: str) -> None:
    if not (command := copy_command(os.environ)):
        return
    from treadle.base.subprocesses import run_program

    try:
        await run_program(command, cwd=os.getcwd(), env=os.environ, stdin_data=text.encode(), timeout_s=TIMEOUT_S)
    except OSError:  # the terminal has it in any case
        return
