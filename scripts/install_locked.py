"""Installs a lock file with pip and shows the progress: `python scripts/install_locked.py requirements-run.lock`. Loads
nothing but the standard library: it runs in an environment that is still empty."""

import re
import subprocess
import sys
from pathlib import Path

_PACKAGE = re.compile(r"(?:Collecting|Requirement already satisfied:) ([A-Za-z0-9_.-]+)")


def install(lock: Path) -> int:
    total = len(re.findall(r"^[A-Za-z0-9_.-]+(?:\[[^]]*\])?==", lock.read_text(encoding="utf-8"), re.M))
    words = ["install", "--progress-bar", "off", "--require-hashes", "-r", str(lock)]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    pip = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert pip.stdout is not None
    lines: list[str] = []
    count = 0
    for line in pip.stdout:
        lines.append(line)
        if match := _PACKAGE.match(line.strip()):
            count += 1
            show(f"package {count} of {total}: {match[1]}", last=False)
        elif line.startswith("Installing collected packages"):
            count = line.count(",") + 1
            show(f"unpacking {count} packages", last=False)
    code = pip.wait()
    show(f"{count} packages are installed" if not code else "the installation failed", last=True)
    if code:
        sys.stderr.write("".join(lines[-20:]))
    return code


def show(text: str, *, last: bool) -> None:
    """On a terminal one line that changes, else a line each."""
    start, end = ("\r\033[K", "\n" if last else "") if sys.stderr.isatty() else ("", "\n")
    sys.stderr.write(f"{start}  {text}{end}")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(install(Path(sys.argv[1])))
