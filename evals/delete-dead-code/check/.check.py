from pathlib import Path

from reader import read

assert not Path("legacy.py").exists()
assert read("a,b") == ["a", "b"]
try:
    read("a;b", 1)
except ValueError:
    pass
else:
    raise SystemExit("version 1 is still read")
for path in ("reader.py", "NOTES.md"):
    assert "legacy" not in Path(path).read_text(), path
