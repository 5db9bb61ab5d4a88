"""The link checker finds dead links, and the repository has none."""

from pathlib import Path

import pytest

from scripts.check_links import anchors, dead_links

ROOT = Path(__file__).parents[2]


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_finds_a_dead_link(tmp_path: Path) -> None:
    write(tmp_path, "README.md", "[here](docs/a.md) [gone](docs/b.md)")
    write(tmp_path, "docs/a.md", "[up](../README.md)\n\n[ref]: missing.png\n")
    assert dead_links(tmp_path) == [
        "README.md: docs/b.md (no such file)",
        "docs/a.md: missing.png (no such file)",
    ]


def test_finds_a_dead_anchor(tmp_path: Path) -> None:
    write(tmp_path, "README.md", "# Start here\n[a](#start-here) [b](#nowhere) [c](docs/deep/a.md#one)")
    write(tmp_path, "docs/deep/a.md", "# Two\n[back](/README.md#start-here)")
    assert dead_links(tmp_path) == [
        "README.md: #nowhere (no such anchor)",
        "README.md: docs/deep/a.md#one (no such anchor)",
    ]


def test_a_link_may_not_leave_the_repository(tmp_path: Path) -> None:
    write(tmp_path, "repository/README.md", "[out](../other.md)")
    write(tmp_path, "other.md", "")
    assert dead_links(tmp_path / "repository") == ["README.md: ../other.md (outside the repository)"]


@pytest.mark.parametrize(
    "text",
    [
        "```md\n[a](gone.md)\n```",
        "`[a](gone.md)`",
        "<!-- [a](gone.md) -->",
        "[a](https://example.org/gone.md)",
        "[a](mailto:someone@example.org)",
    ],
)
def test_code_comments_and_addresses_are_not_links(tmp_path: Path, text: str) -> None:
    write(tmp_path, "README.md", text)
    assert dead_links(tmp_path) == []


def test_anchors_are_those_of_github() -> None:
    text = "# The `loop`, in *outline*\n## Same\n## Same\nUnderlined\n---\n<a id='own'></a>\n```\n# code\n```\n"
    assert anchors(text) == {"the-loop-in-outline", "same", "same-1", "underlined", "own"}


def test_the_repository_has_no_dead_link() -> None:
    assert dead_links(ROOT) == []
