"""Results as a notebook shows them: a short piece of HTML in which everything that comes from a result is escaped."""

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

MOST = 12  # rows that are shown

_HEAD = Markup("<th style='text-align:left'>{}</th>")
_CELL = Markup("<td style='text-align:left'>{}</td>")


def prose(text: str) -> Markup:
    """A sentence whose names stand in backticks, as HTML."""
    parts = re.split(r"`([^`]*)`", text)
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if i % 2 else part for i, part in enumerate(parts))


def tree(element: ET.Element) -> Markup:
    """A tree of elements as markup, its text and attributes escaped."""
    return Markup(ET.tostring(element, encoding="unicode", short_empty_elements=False))


def as_html(
    title: str,
    rows: Sequence[Mapping[str, Any]] = (),
    notes: Sequence[str] = (),
    equations: ET.Element | None = None,
) -> str:
    """A title, a tree of MathML, a table of the first rows, and sentences below it."""
    parts = [Markup("<p><strong>{}</strong></p>").format(title)] + ([] if equations is None else [tree(equations)])
    if rows:
        head = Markup("").join(map(_HEAD.format, rows[0]))
        body = [Markup("").join(_CELL.format(_text(value)) for value in row.values()) for row in rows[:MOST]]
        lines = Markup("").join(Markup("<tr>{}</tr>").format(line) for line in [head, *body])
        parts.append(Markup("<table>{}</table>").format(lines))
    more = [f"{len(rows) - MOST} more rows are not shown."] if len(rows) > MOST else []
    parts += [Markup("<p>{}</p>").format(prose(sentence)) for sentence in [*more, *notes]]
    return str(Markup("<div>{}</div>").format(Markup("").join(parts)))


def _text(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return "–" if math.isnan(value) else f"{value:.4g}"


def by_state(times: np.ndarray, names: Sequence[str], **columns: np.ndarray) -> list[dict[str, Any]]:
    """One plain mapping for each time and state, of arrays (times, state)."""
    cells = np.stack(list(columns.values()), -1).tolist()
    return [
        {"time": float(t), "state": name, **dict(zip(columns, row, strict=True))}
        for t, states in zip(times, cells, strict=True)
        for name, row in zip(names, states, strict=True)
    ]
