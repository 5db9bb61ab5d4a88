import re
from pathlib import Path

names = ["LICENSE", "README.md", "docs/guide/configure.md", "docs/guide/install.md", "docs/manual.md"]
found = sorted(str(path) for path in Path().rglob("*") if path.is_file() and not path.name.startswith("."))
assert found == names, found
links = [(page, link) for page in Path().rglob("*.md") for link in re.findall(r"\]\(([^)]+)\)", page.read_text())]
assert len(links) == 8, links
broken = [(str(page), link) for page, link in links if not (page.parent / link).is_file()]
assert not broken, broken
