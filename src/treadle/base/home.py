"""The location of Treadle's data. Separate from the settings, so that looking up the path imports nothing else."""

from collections.abc import Mapping
from pathlib import Path

HOME_VARIABLE = "TREADLE_HOME"


def home_of(environment: Mapping[str, str]) -> Path:
    """$TREADLE_HOME, or the platform's folder for such data."""
    folder = environment.get(HOME_VARIABLE, "")
    if folder:
        return Path(folder).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("treadle")
