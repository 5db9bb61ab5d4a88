"""Where a local model's file and its engine are: found among installed packages and in Treadle's home, never loaded
and never imported here."""

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from treadle.errors import ConfigError
from treadle.models.local.catalog import KNOWN, PROVIDER, Weights
from treadle.ports.model import ModelInfo

LIBRARY = "xllamacpp"
FOLDER = "models"
INSTALL = "pip install 'treadle[local]'"
_GGUF = b"GGUF"


def find_library(ref: str) -> Path:
    """The folder that the engine's library is imported from."""
    found = find_spec(LIBRARY)
    if found is None or found.origin is None:
        raise ConfigError(f"{ref} needs the library {LIBRARY}, which is not installed; get it with: {INSTALL}")
    return Path(found.origin).parents[1]


def find_weights(name: str, home: Path | None) -> tuple[ModelInfo, Path]:
    """The model of this name and its file. A name may also be the path of a GGUF file."""
    weights = KNOWN.get(name)
    if weights is None:
        if name.endswith(".gguf"):
            return ModelInfo(PROVIDER, name, window=8_192, max_output=1_024), _checked(Path(name).expanduser())
        raise ConfigError(f"no local model {name!r}; there are {', '.join(KNOWN)}, and any file: local:PATH.gguf")
    path = locate(weights, home)
    if path is None:
        raise ConfigError(
            f"the weights of {weights.info.ref} ({weights.title}, {weights.size / 1e6:,.0f} MB) are not on this "
            f"machine; get them with: treadle models fetch {name}"
        )
    return weights.info, _checked(path)


def locate(weights: Weights, home: Path | None) -> Path | None:
    """The file, if it is here: fetched, or in an installed package that brings it whole."""
    fetched = home / FOLDER / weights.file if home is not None else None
    if fetched is not None and fetched.is_file():
        return fetched
    return _installed(weights) if len(weights.parts) == 1 else None


def _installed(weights: Weights) -> Path | None:
    try:
        files = metadata.files(weights.parts[0].distribution) or ()
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == weights.file and (path := Path(str(file.locate()))).is_file():
            return path
    return None


def _checked(path: Path) -> Path:
    """The path, absolute, of what at least begins like a file of weights."""
    try:
        with path.open("rb") as file:
            begins = file.read(len(_GGUF))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    if begins != _GGUF:
        raise ConfigError(f"{path} is no GGUF file; a fetched one can be deleted and fetched again")
    return path.absolute()
