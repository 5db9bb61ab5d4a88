"""Sections of a page that are made by a program, between two comments. The rest of the page is left as it is."""

import re


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<=<!-- begin {name} -->\n).*?(?=<!-- end {name} -->)", re.S)


def section(page: str, name: str) -> str:
    """What stands in the section, or nothing if the page has none."""
    found = _pattern(name).search(page)
    return found[0] if found else ""


def with_section(page: str, name: str, text: str) -> str:
    """The page with another text in its section."""
    made, count = _pattern(name).subn(lambda _: text, page)
    if not count:
        raise ValueError(f"the page has no section {name!r}")
    return made
