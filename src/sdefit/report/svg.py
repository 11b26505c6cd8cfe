"""A `Chart` as SVG text for a page: colours are CSS variables, so it follows light, dark and print."""

from collections.abc import Iterable
from html import escape

import numpy as np

from sdefit.report.charts import Band, Chart, Dots, Line, Mark, log_ticks, spans, tick_labels, ticks

WIDTH, WIDE, HEIGHT, SQUARE = 440, 900, 250, 340
LEFT, RIGHT, TOP, BOTTOM = 50, 10, 30, 40


class Frame:
    """Where numbers land on the sheet."""

    def __init__(self, chart: Chart, width: int) -> None:
        self.log, self.width, self.right = chart.log, width, width - RIGHT
        self.height = SQUARE if chart.square else HEIGHT
        (self.x0, self.x1), up = spans(chart)
        self.y0, self.y1 = (np.log10(up[0]), np.log10(up[1])) if self.log else up
        self.ticks = log_ticks(*up) if self.log else ticks(*up, about=6)
        below = list(range(len(chart.names))) if chart.names else ticks(self.x0, self.x1, about=width // 80)
        self.below = list(zip(below, chart.names or tick_labels(below), strict=True))

    def x(self, value: np.ndarray | float) -> np.ndarray:
        return LEFT + (np.asarray(value, float) - self.x0) / (self.x1 - self.x0) * (self.right - LEFT)

    def y(self, value: np.ndarray | float) -> np.ndarray:
        value = np.asarray(value, float)
        if self.log:
            value = np.log10(np.where(value > 0, value, np.nan))
        up = self.height - BOTTOM - (value - self.y0) / (self.y1 - self.y0) * (self.height - TOP - BOTTOM)
        return np.clip(up, -1e4, 1e4)  # a point far outside must not overflow the sheet's numbers


def draw(chart: Chart, name: str) -> str:
    """The chart as one SVG element; `name` makes its ids its own on the page."""
    return _draw(chart, name, WIDTH, "")


def draw_alone(chart: Chart, name: str) -> str:
    """The chart twice: as wide as the page, and as narrow as a phone; the style sheet shows one of them."""
    return _draw(chart, f"{name}-wide", WIDE, " on-wide") + _draw(chart, f"{name}-narrow", WIDTH, " on-narrow")


def _draw(chart: Chart, name: str, width: int, shown: str) -> str:
    frame = Frame(chart, width)
    sheet = f'x="{LEFT}" y="{TOP - 4}" width="{frame.right - LEFT}" height="{frame.height - TOP - BOTTOM + 8}"'
    return "".join(
        [
            f'<svg class="chart{shown}" role="img" aria-label="{escape(chart.alt)}"',
            f' viewBox="0 0 {width} {frame.height}">',
            f'<clipPath id="{name}"><rect {sheet}/></clipPath>',
            f'<text class="name" x="{LEFT}" y="17">{escape(chart.title)}</text>',
            *_grid(frame),
            *_labels(chart, frame),
            f'<g clip-path="url(#{name})">',
            *(_mark(mark, frame) for mark in chart.marks),
            "</g></svg>",
        ]
    )


def _grid(frame: Frame) -> Iterable[str]:
    """Horizontal lines at the ticks with their numbers, and the numbers below."""
    bottom = frame.height - BOTTOM
    for tick, text in zip(frame.ticks, tick_labels(frame.ticks, frame.log), strict=True):
        y = float(frame.y(tick))
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{frame.right}"/>'
        yield f'<text class="tick" text-anchor="end" x="{LEFT - 7}" y="{y + 4:.1f}">{text}</text>'
    yield f'<path class="axis" d="M{LEFT} {bottom}H{frame.right}"/>'
    for tick, text in frame.below:
        place = f'x="{float(frame.x(tick)):.1f}" y="{bottom + 17}"'
        yield f'<text class="tick" text-anchor="middle" {place}>{escape(text)}</text>'


def _labels(chart: Chart, frame: Frame) -> Iterable[str]:
    for text, y in ((chart.across, frame.height - 6), (chart.up, 17)):
        if text:
            yield f'<text class="tick" text-anchor="end" x="{frame.right}" y="{y}">{escape(text)}</text>'


def _mark(mark: Mark, frame: Frame) -> str:
    match mark:
        case Line():
            dash = f' stroke-dasharray="{mark.dash}"' if mark.dash else ""
            return (
                f'<path class="line" d="{_path(frame.x(mark.x), frame.y(mark.y))}" stroke="var(--{mark.colour})"'
                f' stroke-width="{mark.width}" opacity="{mark.opacity}"{dash}/>'
            )
        case Band():
            x = np.concatenate([mark.x, mark.x[::-1]])
            y = np.concatenate([mark.upper, mark.lower[::-1]])
            fill = f'fill="var(--{mark.colour})" opacity="{mark.opacity}"'
            return f'<path class="band" d="{_path(frame.x(x), frame.y(y))}Z" {fill}/>'
        case Dots():
            # A stroke of no length with round ends is a dot: a few bytes each.
            d = "".join(f"M{x:.1f} {y:.1f}h.01" for x, y in _finite(frame.x(mark.x), frame.y(mark.y)))
            stroke = f'stroke="var(--{mark.colour})" stroke-width="{mark.size}" opacity="{mark.opacity}"'
            return f'<path class="dots" d="{d}" {stroke}/>'


def _path(x: np.ndarray, y: np.ndarray) -> str:
    """Path data through the points, broken where one is not a number."""
    parts, pen = [], "M"
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if a != a or b != b:
            pen = "M"
            continue
        parts.append(f"{pen}{a:.1f} {b:.1f}")
        pen = "L"
    return "".join(parts) or "M0 0"


def _finite(x: np.ndarray, y: np.ndarray) -> Iterable[tuple[float, float]]:
    keep = np.isfinite(x) & np.isfinite(y)
    return zip(x[keep].tolist(), y[keep].tolist(), strict=True)


def draw_key(mark: Mark) -> str:
    """The mark as it looks in a legend."""
    match mark:
        case Line():
            dash = f' stroke-dasharray="{mark.dash}"' if mark.dash else ""
            shape = f'<path d="M1 6H25" stroke="var(--{mark.colour})" stroke-width="2.4"{dash}/>'
        case Band():
            shape = f'<rect x="1" y="1" width="24" height="10" rx="2" fill="var(--{mark.colour})" opacity="0.3"/>'
        case Dots():
            shape = f'<circle cx="13" cy="6" r="3" fill="var(--{mark.colour})"/>'
    return f'<svg viewBox="0 0 26 12" aria-hidden="true">{shape}</svg>'
