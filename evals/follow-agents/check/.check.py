from pathlib import Path

from triangle import area

assert abs(area(3, 4, 5) - 6) < 1e-9
for sides in ((1, 1, 3), (0, 1, 1), (-3, 4, 5)):
    try:
        area(*sides)
    except ValueError:
        continue
    raise SystemExit(f"no ValueError for {sides}")
assert Path("triangle.py").read_text().splitlines()[0].strip() == "# module: triangle"
assert Path("MODULES.txt").read_text().split() == ["circle", "square", "triangle"]
assert area.__doc__
