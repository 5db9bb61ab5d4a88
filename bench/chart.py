"""A bar chart in SVG, a panel a figure, on a logarithmic scale. Owns shapes and colours; knows no scenario."""

import math
from collections.abc import Sequence
from html import escape

import msgspec

BAR, GAP, TITLE, LABEL, PLOT, MARGIN = 16, 4, 34, 118, 300, 16
COLOURS = {"floor": "#9aa5b1", "treadle": "#0b7a5e", "peer": "#d08c3f"}
TEXT = "#22303c"


class Bar(msgspec.Struct, frozen=True):
    label: str
    kind: str
    value: float
    shown: str


class Panel(msgspec.Struct, frozen=True):
    title: str
    bars: Sequence[Bar]
    target: float | None = None

    @property
    def height(self) -> int:
        return TITLE + len(self.bars) * (BAR + GAP) + MARGIN


def draw(panels: Sequence[Panel], columns: int = 2) -> str:
    """The whole picture: panels in rows, each as high as the tallest of its row."""
    width = LABEL + PLOT + 70 + MARGIN
    rows = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    shapes: list[str] = []
    top = MARGIN
    for row in rows:
        for column, panel in enumerate(row):
            shapes += _panel(panel, MARGIN + column * width, top)
        top += max(panel.height for panel in row)
    size = f'width="{MARGIN + columns * width}" height="{top + MARGIN}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12" fill="{TEXT}">',
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            *shapes,
            "</svg>\n",
        ]
    )


def _panel(panel: Panel, left: int, top: int) -> list[str]:
    values = [bar.value for bar in panel.bars if bar.value > 0] + ([panel.target] if panel.target else [])
    low = math.log10(min(values)) - 0.5
    high = max(math.log10(max(values)), low + 1)

    def length(value: float) -> float:
        return PLOT * max(0.0, (math.log10(value) - low) / (high - low)) if value > 0 else 0.0

    shapes = [_text(left, top + 14, panel.title, 'font-weight="bold"')]
    for number, bar in enumerate(panel.bars):
        y = top + TITLE - 8 + number * (BAR + GAP)
        colour = COLOURS[bar.kind]
        wide = length(bar.value)
        shapes.append(_text(left + LABEL - 6, y + 12, bar.label, 'text-anchor="end"'))
        shapes.append(f'<rect x="{left + LABEL}" y="{y}" width="{wide:.1f}" height="{BAR}" fill="{colour}"/>')
        shapes.append(_text(left + LABEL + wide + 5, y + 12, bar.shown))
    if panel.target:
        x = left + LABEL + length(panel.target)
        y = top + TITLE - 12
        bottom = y + len(panel.bars) * (BAR + GAP) + 4
        shapes.append(
            f'<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{bottom}" stroke="{TEXT}" stroke-dasharray="3 3"/>'
        )
    return shapes


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(text)}</text>'
