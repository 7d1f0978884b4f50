"""The curves of `benchmarks.tradeoff` as an SVG of a few kilobytes, for a README.

A row of panels per benchmark: accuracy over tokens per base forward, and over milliseconds; the
points of one line differ in the threshold, which a point's title tells. Knows
the figures by their names, nothing of how they came about.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

WIDTH, PANEL_WIDTH, PANEL_HEIGHT = 860, 420, 250
LEFT, RIGHT, TOP, BOTTOM = 56, 92, 34, 44
BACKGROUND, GRID, TEXT, FAINT = "#1e1e2e", "#313244", "#cdd6f4", "#9399b2"
COLOURS = {"ar": "#f9e2af", "verified": "#a6e3a1", "free": "#89b4fa"}
#: `free` grows paler with fewer steps.
STEP_COLOURS = {1: "#f38ba8", 2: "#cba6f7"}
X_AXES = (
    ("tokens_per_forward", "tokens per base forward"),
    ("decode_ms_p50", "ms to fill a hole, context encoded (median)"),
)
TICKS = 5

Point = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A range of values on a stretch of pixels."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, values: Sequence[float], start: float, end: float) -> Scale:
        """Leaves a tenth of the range free on both sides."""
        low, high = min(values), max(values)
        room = (high - low) / 10 or max(abs(high) / 10, 0.01)
        return cls(low=max(0.0, low - room), high=high + room, start=start, end=end)

    def at(self, value: float) -> float:
        """The pixel of a value."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """Round values to write at the axis: about `TICKS` of them."""
        rough = (self.high - self.low) / TICKS
        ten = 10.0 ** math.floor(math.log10(rough))
        step = next(ten * factor for factor in (1, 2, 5, 10) if ten * factor >= rough)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [number * step for number in range(first, last + 1)]


def draw(figures: Mapping[str, object]) -> str:
    """The whole picture; with no curve in the figures it has a title only."""
    rows = [(name, part) for name, part in figures.items() if isinstance(part, dict)]
    height = 40 + PANEL_HEIGHT * len(rows)
    title = f"{figures.get('model', '')}: accuracy and what it costs"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" '
        'font-family="ui-monospace,Menlo,Consolas,monospace" font-size="11">',
        f"  <title>{escape(title)}</title>",
        f'  <rect width="{WIDTH}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
        _text(20, 26, title, TEXT, size=14),
    ]
    for row, (name, part) in enumerate(rows):
        for column, (axis, words) in enumerate(X_AXES):
            heading = f"{name}, {part['accuracy']}, n = {part['n']}" if column == 0 else ""
            lines.append(
                f'  <g transform="translate({column * PANEL_WIDTH},{40 + row * PANEL_HEIGHT})">'
            )
            lines.append(_text(20, 16, heading, FAINT))
            lines += _panel(part["points"], str(part["accuracy"]), axis, words)
            lines.append("  </g>")
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(points: Sequence[Point], accuracy: str, axis: str, words: str) -> list[str]:
    if not points:
        return []
    across = Scale.around([p[axis] for p in points], LEFT, PANEL_WIDTH - RIGHT)
    up = Scale.around([p[accuracy] for p in points], PANEL_HEIGHT - BOTTOM, TOP)
    lines = [*_axes(across, up), _text(LEFT, PANEL_HEIGHT - 10, words, FAINT)]
    for name, line in _curves(points).items():
        colour = _colour(line[0])
        places = [(across.at(p[axis]), up.at(p[accuracy])) for p in line]
        if len(line) > 1:
            path = " ".join(f"{x},{y}" for x, y in places)
            lines.append(f'    <polyline points="{path}" fill="none" stroke="{colour}"/>')
        for point, (x, y) in zip(line, places, strict=True):
            tip = escape(f"{point['label']}: {point[accuracy]:.1%} at {point[axis]:g}")
            lines.append(
                f'    <circle cx="{x}" cy="{y}" r="4" fill="{colour}"><title>{tip}</title></circle>'
            )
        x, y = max(places)
        lines.append(_text(x + 8, y + 4, name, colour))
    return lines


def _axes(across: Scale, up: Scale) -> list[str]:
    lines = []
    for value in up.ticks():
        y = up.at(value)
        lines.append(f'    <path d="M{across.start} {y}H{across.end}" stroke="{GRID}"/>')
        lines.append(_text(LEFT - 8, y + 4, f"{100 * value:.6g} %", FAINT, anchor="end"))
    for value in across.ticks():
        x = across.at(value)
        lines.append(f'    <path d="M{x} {up.start}V{up.end}" stroke="{GRID}"/>')
        lines.append(_text(x, up.start + 16, f"{value:.6g}", FAINT, anchor="middle"))
    return lines


def _curves(points: Sequence[Point]) -> dict[str, list[Point]]:
    """The points that belong on one line: `free` with the same steps, by threshold."""
    curves: dict[str, list[Point]] = {}
    for point in sorted(points, key=lambda p: (p["mode"], p["steps"], p["threshold"])):
        name = _name(point["steps"]) if point["mode"] == "free" else str(point["label"])
        curves.setdefault(name, []).append(point)
    return curves


def _name(steps: int) -> str:
    return f"free, {steps} step{'s' if steps > 1 else ''}"


def _colour(point: Point) -> str:
    free = point["mode"] == "free"
    named = STEP_COLOURS.get(point["steps"]) if free else None
    return named or COLOURS[point["mode"]]


def _text(
    x: float, y: float, words: str, colour: str, *, anchor: str = "start", size: int = 11
) -> str:
    more = f' text-anchor="{anchor}"' if anchor != "start" else ""
    more += f' font-size="{size}"' if size != 11 else ""
    return f'    <text x="{x:g}" y="{y:g}" fill="{colour}"{more}>{escape(words)}</text>'
