import contextlib
import io
import types
import unittest
from pathlib import Path

RIGHT = Path(".slug.txt").read_text()
WRONG = [
    RIGHT.replace("char.lower()", "char"),
    RIGHT.replace("+ 1 +", "+"),
    RIGHT.replace("return \"untitled\"", "return \"\""),
    RIGHT.replace("> longest", ">= longest"),
    RIGHT.replace('"-" + word', '"_" + word'),
    RIGHT.replace("longest=40", "longest=30"),
    RIGHT.replace("isalnum", "isalpha"),
    RIGHT.replace("            break", "            pass"),
]
TESTS = compile(Path("test_slug.py").read_text(), "test_slug.py", "exec")


def passes(source):
    import sys

    module = types.ModuleType("slug")
    exec(source, module.__dict__)
    sys.modules["slug"] = module
    tests = types.ModuleType("test_slug")
    exec(TESTS, tests.__dict__)
    suite = unittest.defaultTestLoader.loadTestsFromModule(tests)
    with contextlib.redirect_stderr(io.StringIO()):
        result = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
    return result.wasSuccessful() and result.testsRun > 0


assert passes(RIGHT), "the tests fail for the function as it is"
assert all(wrong != RIGHT for wrong in WRONG)
caught = [not passes(wrong) for wrong in WRONG]
assert sum(caught) >= 6, f"only {sum(caught)} of {len(caught)} mistakes are caught"
