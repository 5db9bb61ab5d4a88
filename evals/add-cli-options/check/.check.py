import contextlib
import io
from pathlib import Path

from lister import main

Path(".lines").write_text("b\na\nb\nc\n")


def said(*options):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main([*options, ".lines"])
    return out.getvalue().split()


assert said() == ["a", "b", "b", "c"]
assert said("--reverse") == ["c", "b", "b", "a"]
assert said("--unique") == ["a", "b", "c"]
assert said("--unique", "--reverse") == ["c", "b", "a"]
readme = Path("README.md").read_text()
assert "--reverse" in readme and "--unique" in readme
