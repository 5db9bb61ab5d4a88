"""Builds the sdist, and from it the wheel, looks at what they hold, installs the wheel into a clean environment that
has no checkout, and tries the program there (U-01).

python -m scripts.try_package                  # dependencies come from the environment that runs this; no network
python -m scripts.try_package --index 3.12     # dependencies come from the package index, for this Python
"""

import argparse
import os
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
    "treadle/cli/commands/demo.py",
    "treadle/stores/sqlite/migrations/0001_begin.sql",
    "treadle/testing/fake_openai.py",
)
PATIENCE_S = 600


class Wrong(Exception):
    """A package that must not be published, in a sentence."""


def run(*words: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE_S
    )
    if done.returncode:
        raise Wrong(f"{' '.join(str(word) for word in words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


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


def install(wheel: Path, folder: Path, python: str) -> Path:
    """A clean environment with the wheel; its `bin`. Dependencies are those of this environment, or of the index."""
    home = folder / "environment"
    if python:
        run(f"python{python}", "-m", "venv", home, cwd=folder)
        run(home / "bin" / "python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)
        return home / "bin"
    venv.create(home, with_pip=False, symlinks=True)
    own = home / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", str(own), "install", "--quiet", "--no-deps", "--no-index")
    run(*pip, "--disable-pip-version-check", wheel, cwd=folder)
    (packages,) = home.glob("lib/python*/site-packages")
    # Only the folders: what their own .pth files add, such as a checkout, stays out.
    shared = [path for path in sys.path if path.endswith("site-packages") and os.path.isdir(path)]
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in shared), encoding="utf-8")
    return home / "bin"


def try_out(programs: Path, folder: Path) -> None:
    """As somebody who has just installed it."""
    home = folder / "home"
    home.mkdir()
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home), "LANG": "C.UTF-8"}
    treadle = programs / "treadle"
    where = run(programs / "python", "-c", "import treadle; print(treadle.__file__)", cwd=home, env=env).strip()
    if not Path(where).is_relative_to(programs.parent):
        raise Wrong(f"treadle was imported from {where}, not from the wheel")
    said = {words: run(treadle, *words, cwd=home, env=env) for words in (("--version",), ("--help",), ("demo",))}
    for words, expected in ((("--version",), "treadle "), (("--help",), "Commands:"), (("demo",), "made once")):
        if expected not in said[words]:
            raise Wrong(f"treadle {words[0]} does not say {expected!r}:\n{said[words]}")
    run(treadle, "completion", "bash", cwd=home, env=env)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--index", default="", metavar="VERSION", help="a Python, with dependencies from the index")
    wanted = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="treadle-package-") as made:
            folder = Path(made).resolve()
            sdist, wheel = build(folder)
            names = check_names(wheel)
            try_out(install(wheel, folder, wanted.index), folder)
            print(f"{sdist.name} and {wheel.name} ({len(names)} files) work in a clean environment")
    except Wrong as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
