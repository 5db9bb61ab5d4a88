"""Builds the sdist, and from it the wheel, looks at what they hold, installs them into clean environments that have
no checkout, and tries the program there (U-01).

python -m scripts.try_package                  # dependencies come from the environment that runs this; no network
python -m scripts.try_package pip pipx uv      # dependencies come from the package index, installed in these ways
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
OUTSIDE = ("tests", "bench", "scripts", "docs", "examples", "deploy")
"""Folders of the repository that no wheel may hold."""
NEEDED = (
    "treadle/py.typed",
    "treadle/frontends/cli/commands/demo.py",
    "treadle/adapters/stores/sqlite/migrations/0001_begin.sql",
    "treadle/testing/fake_openai.py",
)
PATIENCE_S = 600
NO_INDEX = ("error sending request", "Failed to establish a new connection", "Temporary failure in name resolution")
"""What installers say when they cannot reach the index."""


class Wrong(Exception):
    """A package that must not be published, in a sentence."""


class Untried(Exception):
    """A way to install it that cannot be tried here."""


def run(*words: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE_S
    )
    said = done.stdout + done.stderr
    if done.returncode and any(words in said for words in NO_INDEX):
        raise Untried("the index cannot be reached")
    if done.returncode:
        raise Wrong(f"{' '.join(str(word) for word in words)}: exit {done.returncode}\n{said}")
    return said


def build(folder: Path) -> tuple[Path, Path]:
    """The sdist from the repository, and the wheel from nothing but the sdist, as pip would make it."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=source)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def check_names(wheel: Path) -> list[str]:
    """Everything of the package, and nothing else."""
    names = zipfile.ZipFile(wheel).namelist()
    tops = {PurePosixPath(name).parts[0] for name in names}
    if odd := {top for top in tops if top != "treadle" and not top.endswith(".dist-info")}:
        raise Wrong(f"{wheel.name} holds {', '.join(sorted(odd))}")
    sources = ROOT / "src"
    made = {str(path.relative_to(sources)) for path in sources.rglob("*") if path.is_file()}
    wanted = {name for name in made if "__pycache__" not in name}
    if lost := wanted - set(names):
        raise Wrong(f"{wheel.name} lacks {', '.join(sorted(lost)[:5])}")
    if missing := [name for name in NEEDED if name not in names]:
        raise Wrong(f"{wheel.name} lacks {', '.join(missing)}")
    return names


def offline(sdist: Path, wheel: Path, folder: Path) -> Path:
    """The wheel with the dependencies of this environment; the folder of its programs."""
    home = folder / "offline"
    venv.create(home, with_pip=False, symlinks=True)
    own = home / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", str(own), "install", "--quiet", "--no-deps", "--no-index")
    # What is run is compiled then; to compile all of it first takes longer than all that is tried.
    run(*pip, "--no-compile", "--disable-pip-version-check", wheel, cwd=folder)
    (packages,) = home.glob("lib/python*/site-packages")
    # Only the folders: what their own .pth files add, such as a checkout, stays out.
    shared = [path for path in sys.path if path.endswith("site-packages") and os.path.isdir(path)]
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in shared), encoding="utf-8")
    return home / "bin"


def by_pip(sdist: Path, wheel: Path, folder: Path) -> Path:
    home = folder / "pip"
    venv.create(home, with_pip=True, symlinks=True)
    run(home / "bin" / "python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    return home / "bin"


def by_pipx(sdist: Path, wheel: Path, folder: Path) -> Path:
    """From the sdist, as `pipx install .` does it: it is built in an environment of its own."""
    home = folder / "pipx"
    places = {"PIPX_HOME": str(home), "PIPX_BIN_DIR": str(home / "bin"), "PIPX_MAN_DIR": str(home / "man")}
    pipx = program("pipx", folder)
    run(pipx, "install", "--python", sys.executable, sdist, cwd=folder, env={**os.environ, **places})
    return home / "bin"


def by_uv(sdist: Path, wheel: Path, folder: Path) -> Path:
    home = folder / "uv"
    places = {"UV_TOOL_DIR": str(home / "tools"), "UV_TOOL_BIN_DIR": str(home / "bin"), "UV_LINK_MODE": "copy"}
    uv = program("uv", folder)
    run(uv, "tool", "install", "--python", sys.executable, wheel, cwd=folder, env={**os.environ, **places})
    return home / "bin"


def program(name: str, folder: Path) -> Path | str:
    """An installer: the one that is here, or the newest of the index."""
    if found := shutil.which(name):
        return found
    home = folder / f"{name}-itself"
    venv.create(home, with_pip=True, symlinks=True)
    run(home / "bin" / "python", "-m", "pip", "install", "--quiet", name, cwd=folder)
    return home / "bin" / name


WAYS = {"offline": offline, "pip": by_pip, "pipx": by_pipx, "uv": by_uv}


def try_out(programs: Path, folder: Path) -> None:
    """As somebody who has just installed it."""
    home = Path(tempfile.mkdtemp(prefix="home-", dir=folder))
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home), "LANG": "C.UTF-8"}
    treadle = programs / "treadle"
    own = treadle.resolve().parent
    where = run(own / "python", "-c", "import treadle; print(treadle.__file__)", cwd=home, env=env).strip()
    if not Path(where).is_relative_to(own.parent):
        raise Wrong(f"treadle was imported from {where}, not from the wheel")
    said = {words: run(treadle, *words, cwd=home, env=env) for words in (("--version",), ("--help",), ("demo",))}
    for words, expected in ((("--version",), "treadle "), (("--help",), "Commands:"), (("demo",), "made once")):
        if expected not in said[words]:
            raise Wrong(f"treadle {words[0]} does not say {expected!r}:\n{said[words]}")
    run(treadle, "completion", "bash", cwd=home, env=env)


def try_installation(way: str, sdist: Path, wheel: Path, folder: Path) -> str:
    try:
        try_out(WAYS[way](sdist, wheel, folder), folder)
    except Untried as reason:
        return f"not tried, {reason}"
    return "works in a clean environment"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"how to install it: {', '.join(WAYS)}")
    ways = parser.parse_args(arguments).ways or ["offline"]
    if unknown := [way for way in ways if way not in WAYS]:
        parser.error(f"there is no way {unknown[0]!r}; the ways are {', '.join(WAYS)}")
    try:
        with tempfile.TemporaryDirectory(prefix="treadle-package-") as made:
            folder = Path(made).resolve()
            sdist, wheel = build(folder)
            names = check_names(wheel)
            print(f"{sdist.name} and {wheel.name} ({len(names)} files)", flush=True)
            for way in ways:
                print(f"{way}: {try_installation(way, sdist, wheel, folder)}", flush=True)
    except Wrong as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
