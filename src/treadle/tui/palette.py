"""The sixteen colours of terminals on a light ground, each dark enough to be read there."""

from rich.terminal_theme import TerminalTheme

_DARK = [(0, 0, 0), (160, 40, 40), (38, 105, 20), (128, 88, 0), (45, 85, 185), (115, 55, 150), (0, 98, 135)]
LIGHT = TerminalTheme((247, 247, 247), (0, 0, 0), [*_DARK, (247, 247, 247)], [(100, 100, 100), *_DARK[1:], (0, 0, 0)])
