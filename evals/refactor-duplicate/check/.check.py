import ast
from pathlib import Path

from authors import author_key
from text import clean
from titles import title_key

assert title_key("  The  Tempest ") == "tempest"
assert author_key("Ada  LOVELACE") == "lovelace ada"
assert clean(" A  b ") == "a b"
defined = [
    path.name
    for path in Path().glob("*.py")
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.FunctionDef) and node.name == "clean"
]
assert defined == ["text.py"], defined
