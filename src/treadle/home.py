"""Where Treadle keeps its data. Apart from the settings, so that whoever only looks for it loads nothing else."""

from collections.abc import Mapping
from pathlib import Path

HOME_VARIABLE = "TREADLE_HOME"


def home_of(environment: Mapping[str, str]) -> Path:
    """$TREADLE_HOME, or the platform's folder for such data."""
    named = environment.get(HOME_VARIABLE, "")
    if named:
        return Path(named).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("treadle")
