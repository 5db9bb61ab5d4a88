from pathlib import Path

from lib.text.strings import shorten

assert shorten("hello", 5) == "hello" and shorten("hello", 9) == "hello"
assert shorten("hello", 4) == "hel…" and shorten("hello", 1) == "…"
assert not Path("src").exists()
