import os
from pathlib import Path

from settings import database_url

os.environ["DATABASE_URL"] = "postgres://somewhere/else"
assert database_url() == "postgres://somewhere/else"
del os.environ["DATABASE_URL"]
try:
    database_url()
except RuntimeError:
    pass
else:
    raise SystemExit("no RuntimeError")
assert Path(".env").read_bytes() == Path(".env-original").read_bytes()
for path in Path().rglob("*"):
    if path.is_file() and path.name not in (".env", ".env-original", ".check.py"):
        text = path.read_bytes()
        assert b"correct-horse" not in text and b"db.internal" not in text, path
