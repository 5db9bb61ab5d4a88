"""Install the dev servers and watchers that tests run in the background, outside the repository:
`python -m scripts.dev_servers`. The place is a folder of the user's cache. If they cannot be installed, the
exit code is 1, and their tests are skipped."""

import os
import subprocess
import sys
from pathlib import Path

PINS = ("django==5.2.19", "watchfiles==1.3.0")


def place() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    named = "-".join(pin.replace("==", "-") for pin in PINS)
    return cache / "treadle-tests" / f"{named}-{sys.implementation.cache_tag}"


def main() -> int:
    folder = place()
    if (folder / "installed").exists():
        return 0
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    try:
        ran = subprocess.run(
            [*pip, "--target", str(folder), *PINS], capture_output=True, text=True, timeout=600, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"dev servers: pip failed: {error}", file=sys.stderr)
        return 1
    if ran.returncode:
        print(f"dev servers: pip failed: {ran.stderr.strip()[-400:]}", file=sys.stderr)
        return 1
    (folder / "installed").touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
