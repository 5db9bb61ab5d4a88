from pathlib import Path

import app
from store.reading import find_value

assert app.answer("b") == (2, "b: 2") and app.answer("c") == (None, "c: nothing")
assert find_value("a", [("a", 3)]) == 3
left = [str(path) for path in Path().rglob("*") if path.suffix in (".py", ".md") and path.name != ".check.py" and "get_data" in path.read_text()]
assert not left, left
assert "find_value" in Path("README.md").read_text()
