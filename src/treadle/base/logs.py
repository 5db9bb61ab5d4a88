"""The log of the program (the logger `treadle`): each line is inert, also the errors and names in it (S-22). A
fact stays on its line, so that it cannot pass for another record."""

import logging
from traceback import format_exception

from treadle.base.inert import InertText, make_inert, make_inert_line

LONGEST_FACT = 2_000
MOST_LINES = 200  # of a traceback, the last ones


def log_debug(text: str, *facts: object) -> None:
    _log(logging.DEBUG, text, *map(_format_fact, facts))


def log_info(text: str, *facts: object) -> None:
    _log(logging.INFO, text, *map(_format_fact, facts))


def log_warning(text: str, *facts: object) -> None:
    _log(logging.WARNING, text, *map(_format_fact, facts))


def log_error(text: str, *facts: object) -> None:
    _log(logging.ERROR, text, *map(_format_fact, facts))


def log_traceback(text: str, error: BaseException) -> None:
    """An unexpected error with its stack."""
    lines = "".join(format_exception(error)).split("\n")[-MOST_LINES:]
    _log(logging.ERROR, f"{text}\n%s", make_inert("\n".join(map(_format_fact, lines))))


def make_last_resort_inert() -> None:
    """For the command line: records that no handler takes go to standard error, those of other libraries too."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_InertFormatter())


class _InertFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> InertText:
        return make_inert(super().format(record))


def _format_fact(value: object) -> InertText:
    return make_inert_line(str(value), LONGEST_FACT)


def _log(level: int, text: str, *facts: InertText) -> None:
    """`text` is the template of one of the functions above, with a %s for each fact."""
    logging.getLogger("treadle").log(level, make_inert(text), *facts, stacklevel=3)
