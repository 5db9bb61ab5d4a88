"""How a command ended, written down so that a full disk cannot prevent it and, at last, a power cut cannot take it."""

import os

from treadle.adapters.sandbox.supervisor.folder import EXIT, SYNCED
from treadle.adapters.sandbox.supervisor.recorder import Recorder, sync_path

_EXIT_SIZE = 1024


def reserve_exit() -> None:
    """Take the space for the end now: when the disk is full, it can still be written."""
    with open(f"{EXIT}.new", "wb") as file:
        file.write(b" " * _EXIT_SIZE)


def write_exit(ending: str, code: int, left_behind: bool, recorder: Recorder, error: str) -> None:
    recorder.close()
    error_text = (error or recorder.trouble).replace("\\", "/").replace('"', "'")
    text = (
        f'{{"ending": "{ending}", "code": {code}, "left_behind": {"true" if left_behind else "false"}, '
        f'"size": {recorder.size}, "lines": {recorder.lines}, "error": "{error_text}"}}'
    )
    with open(f"{EXIT}.new", "r+b") as file:
        file.write(text.encode().ljust(_EXIT_SIZE))
    os.replace(f"{EXIT}.new", EXIT)


def sync_exit(recorder: Recorder, *, layer: bool = False) -> None:
    """`layer`: the files that the command wrote on its view must survive, too: they may be committed much later."""
    try:
        recorder.sync()
        if layer:
            os.sync()
        for name in (EXIT, "."):
            sync_path(name)
        with open(SYNCED, "wb"):
            pass
    except OSError:
        pass  # a worker that finds no such mark after a power cut takes the command for lost
