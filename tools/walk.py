"""Draw the walk of a run, docs/figures/walk.svg, from the table of docs/architecture.md: `python -m tools.walk`.

What stands in the boxes is the table's; where they lie is here. A step that has no place, or a place without a step, is
an error.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE, PICTURE = ROOT / "docs" / "architecture.md", ROOT / "docs" / "figures" / "walk.svg"
WIDTH, HEIGHT, GAP = 168, 74, 36

# Left upper corner and kind of each step's box; the frame of a stage is drawn apart.
PLACES = {
    "what was asked for": (20, 20, "given"),
    "of which data": (20, 116, "given"),
    "all settings": (240, 68, ""),
    "ready to compute": (460, 68, ""),
    "source model": (680, 68, "model"),
    "records": (20, 404, "kept"),
    "what was found": (240, 404, "kept"),
    "report": (460, 404, "kept"),
}
STAGE = "each target"
ARROWS = (
    "M188 57 C214 57 214 95 238 95",
    "M188 153 C214 153 214 115 238 115",
    "M408 105H458",
    "M628 105H678",
    "M764 142V216",  # the source model begins the first stage
    "M104 352V402",
    "M188 441H238",
    "M408 441H458",
)
STYLE = """
    .box { fill: #f7fafc; stroke: #4a5568; stroke-width: 1.5 }
    .given { fill: #fdf3dc; stroke: #b7791f } .model { fill: #e6f0fb; stroke: #2b6cb0 }
    .kept { fill: #e8f6ec; stroke: #2f855a }
    .frame { fill: none; stroke: #2b6cb0; stroke-width: 1.5; stroke-dasharray: 6 4 }
    .line { stroke: #4a5568; stroke-width: 1.5; fill: none; marker-end: url(#tip) }
    text { fill: #1a202c; text-anchor: middle } .name { font-weight: 600 } .small { font-size: 12px; fill: #4a5568 }
    @media (prefers-color-scheme: dark) {
      .box { fill: #2d3748; stroke: #a0aec0 } .given { fill: #4a3a12; stroke: #ecc94b }
      .model { fill: #1e3a5f; stroke: #63b3ed } .kept { fill: #1c4532; stroke: #68d391 }
      .frame { stroke: #63b3ed } .line { stroke: #cbd5e0 } text { fill: #f7fafc } .small { fill: #cbd5e0 }
    }
"""


class Step(NamedTuple):
    """A row of the table: the step, what there is afterwards, which file makes it."""

    name: str
    made: str
    rest: str
    file: str


def steps(page: str) -> dict[str, Step]:
    """The rows of the walk's table by name."""
    table = page.partition("## The walk of a run")[2].partition("\n\nThe same as code")[0]
    rows = [re.split(r" \| ", line.strip("| ")) for line in table.splitlines() if line.startswith("| ")][1:]
    found = {}
    for name, afterwards, file in rows:
        made, _, rest = afterwards.partition(": ")
        found[name] = Step(name, re.split(r",? and |, ", made)[0].strip("`"), rest, file.split("`")[1].split(":")[0])
    return found


def draw(page: str) -> str:
    """The picture."""
    found = steps(page)
    stage = found.pop(STAGE)
    if set(found) != set(PLACES):
        raise ValueError(f"tools/walk.py has no place, or one too many, for {sorted(set(found) ^ set(PLACES))}.")
    parts = [_box(found[name], *place) for name, place in PLACES.items()]
    verbs = stage.rest.split(", ")
    if not verbs[0]:
        raise ValueError(f"docs/architecture.md: the row '{STAGE}' must say what a stage does, after a colon.")
    parts.append('<rect class="frame" x="20" y="218" width="828" height="134" rx="10"/>')
    parts.append(_text(434, 242, f"{STAGE}: {stage.made}", "name") + _text(434, 260, stage.file, "small"))
    width = (800 - GAP * (len(verbs) - 1)) / len(verbs)
    for i, verb in enumerate(verbs):
        left = 34 + i * (width + GAP)
        parts.append(f'<rect class="box model" x="{left:g}" y="276" width="{width:g}" height="38" rx="6"/>')
        parts.append(_text(left + width / 2, 300, verb))
        if i:
            parts.append(f'<path class="line" d="M{left - GAP:g} 295H{left - 2:g}"/>')
    parts.append('<path class="line" d="M794 314V338H74V316"/>' + _text(434, 332, "the next target", "small"))
    parts += [f'<path class="line" d="{path}"/>' for path in ARROWS]
    parts.append(_text(742, 436, "each epoch and each measurement", "small"))
    parts.append(_text(742, 454, "is recorded when it happens", "small"))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 868 498" font-family="system-ui, sans-serif" '
        f'font-size="14" role="img" aria-label="The walk of a run, step by step">\n  <style>{STYLE}  </style>\n'
        '  <defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 10 5 0 10z" fill="#718096"/></marker></defs>\n  ' + "\n  ".join(parts) + "\n</svg>\n"
    )


def _box(step: Step, x: int, y: int, kind: str) -> str:
    middle = x + WIDTH / 2
    return (
        f'<rect class="box {kind}" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
        + _text(middle, y + 24, step.name, "name")
        + _text(middle, y + 43, step.made)
        + _text(middle, y + 61, step.file, "small")
    )


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"{f" class={kind!r}" if kind else ""}>{escape(text)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(draw(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
