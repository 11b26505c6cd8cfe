"""What a report is made of: sections of tables, figures, facts and notes, before any of it is HTML.

A fit, a comparison and a reproduction differ only in the sections they put on a `Page`.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# The numbers of a table or of a figure: column name → values, all of one length. It is also the CSV file.
Columns = Mapping[str, Sequence[Any] | np.ndarray]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell of a table: what is shown, and the exact value it is sorted and checked by.

    `below` is a second, smaller line; `tone` is "good" or "bad" where the cell says one of them.
    """

    text: str
    value: str
    numeric: bool
    below: str = ""
    tone: str = ""


@dataclasses.dataclass(frozen=True)
class Bar:
    """An interval drawn inside a table's row, as percentages of the row's own width."""

    start: float
    width: float
    dot: float
    tick: float | None
    label: str


@dataclasses.dataclass(frozen=True)
class Table:
    """A sortable table; `name` is the stem of its CSV file, the first column names the row.

    `shown` are the columns of the page where those are not the ones of the CSV file; they may hold `Cell`s.
    """

    name: str
    title: str
    columns: Columns
    caption: str = ""
    heads: Mapping[str, str] = dataclasses.field(default_factory=dict)
    bars: Sequence[Bar | None] = ()
    shown: Columns | None = None
    kind: str = "table"

    @property
    def header(self) -> list[str]:
        return [self.heads.get(name, name) for name in self.shown or self.columns]

    @property
    def rows(self) -> list[list[Cell]]:
        return [[cell(value) for value in row] for row in zip(*(self.shown or self.columns).values(), strict=True)]


@dataclasses.dataclass(frozen=True)
class Matrix:
    """A small matrix shown as shaded cells, with the true one beside it where it is known."""

    title: str
    labels: Sequence[str]
    values: Sequence[Sequence[Cell]]
    shades: Sequence[Sequence[float]]


@dataclasses.dataclass(frozen=True)
class Matrices:
    """Matrices side by side and the table of all their entries."""

    name: str
    title: str
    caption: str
    matrices: Sequence[Matrix]
    columns: Columns
    kind: str = "matrices"


@dataclasses.dataclass(frozen=True)
class Key:
    """One entry of a figure's legend: a small drawing of the mark, and what it stands for."""

    svg: str
    text: str


@dataclasses.dataclass(frozen=True)
class Figure:
    """Panels (SVG text) that share a title, a legend and the numbers they were drawn from."""

    name: str
    title: str
    caption: str
    columns: Columns
    panels: Sequence[str]
    keys: Sequence[Key] = ()
    small: bool = False  # half as wide as the page, where there is room for two
    kind: str = "figure"


@dataclasses.dataclass(frozen=True)
class Facts:
    """Names with their values: settings, versions, a model's properties."""

    name: str
    title: str
    items: Mapping[str, str]
    kind: str = "facts"

    @property
    def columns(self) -> Columns:
        return {"name": list(self.items), "value": list(self.items.values())}


@dataclasses.dataclass(frozen=True)
class Text:
    """Verbatim text, or trusted markup made here (`markup`), with an optional text folded below it."""

    title: str
    body: str = ""
    markup: str = ""
    folded: str = ""
    folded_title: str = ""
    kind: str = "text"


@dataclasses.dataclass(frozen=True)
class Notes:
    """Sentences a reader should not miss, as a list."""

    items: Sequence[str]
    kind: str = "notes"


Block = Table | Matrices | Figure | Facts | Text | Notes


@dataclasses.dataclass(frozen=True)
class Section:
    """A titled part of the page; `id` is its anchor."""

    id: str
    title: str
    blocks: Sequence[Block]


@dataclasses.dataclass(frozen=True)
class Page:
    """A whole report: title, the one sentence that says how it went, and the sections."""

    title: str
    subtitle: str
    ok: bool
    status: str
    sentence: str
    remedy: str
    sections: Sequence[Section]
    footer: str = ""


def number(value: float, digits: int = 4) -> str:
    """A number for reading: `digits` significant digits, a real minus sign, a dash where there is none."""
    if not math.isfinite(value):
        return "–" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e6:
        head, _, power = f"{value:.{digits - 1}e}".partition("e")
        return f"{head}e{int(power)}".replace("-", "−")
    decimals = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    return f"{value:.{decimals}f}".replace("-", "−")


def cell(value: Any) -> Cell:
    """A value as a table shows it; numbers keep every digit in `value`."""
    if isinstance(value, Cell):
        return value
    if isinstance(value, bool | np.bool_):
        return Cell("yes" if value else "no", str(bool(value)).lower(), False)
    if isinstance(value, int | np.integer):
        return Cell(str(value).replace("-", "−"), str(int(value)), True)
    if isinstance(value, float | np.floating):
        return Cell(number(float(value)), repr(float(value)), True)
    return Cell(str(value), str(value), False)
