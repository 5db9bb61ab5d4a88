"""Install the MCP servers of others that the tests use, outside the repository: `python -m scripts.mcp_servers`. Their
versions stand in tests/conformance/mcp_servers.json; the place is $TREADLE_TEST_MCP, or a folder of the user's cache.
What cannot be installed is reported with exit code 1, and its tests are skipped."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

PINS = Path(__file__).parents[1] / "tests" / "conformance" / "mcp_servers.json"


def place() -> Path:
    named = os.environ.get("TREADLE_TEST_MCP", "")
    return Path(named) if named else Path.home() / ".cache" / "treadle-tests" / "mcp"


def main() -> int:
    folder, pins = place(), json.loads(PINS.read_text())
    if _read_installed_pins(folder) == pins:
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    npm = pins["npm"] | ({_node_package(): pins["node"]} if _node_package() else {})
    done = [_npm(folder, npm), _pypi(folder, pins["pypi"])]
    if not all(done):
        return 1
    (folder / "installed.json").write_text(json.dumps(pins))
    return 0


def _read_installed_pins(folder: Path) -> object:
    try:
        return json.loads((folder / "installed.json").read_text())
    except (OSError, ValueError):
        return None


def node() -> str:
    """A Node that the conformance suite runs on: it needs version 22, which may be newer than the installed one."""
    newer = place() / "node_modules" / _node_package() / "bin" / "node"
    return str(newer) if _node_package() and newer.exists() else shutil.which("node") or ""


def _node_package() -> str:
    """The package of npm that holds nothing but Node itself, for this machine."""
    processor = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine(), "")
    return f"node-{sys.platform}-{processor}" if processor and sys.platform in ("linux", "darwin") else ""


def _npm(folder: Path, pins: dict[str, str]) -> bool:
    npm = shutil.which("npm")
    if npm is None:
        print("mcp servers: there is no npm, so those of npm are not tried", file=sys.stderr)
        return False
    wanted = [f"{name}@{version}" for name, version in pins.items()]
    return _ran([npm, "install", "--no-fund", "--no-audit", "--silent", "--prefix", str(folder), *wanted])


def _pypi(folder: Path, pins: dict[str, str]) -> bool:
    python = folder / "venv" / "bin" / "python"
    if not python.exists() and not _ran([sys.executable, "-m", "venv", str(folder / "venv")]):
        return False
    wanted = [f"{name}=={version}" for name, version in pins.items()]
    return _ran([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted])


def _ran(command: list[str]) -> bool:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"mcp servers: {command[0]} failed: {error}", file=sys.stderr)
        return False
    if ran.returncode:
        print(f"mcp servers: {' '.join(command[:3])} failed: {ran.stderr.strip()[-400:]}", file=sys.stderr)
    return ran.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
