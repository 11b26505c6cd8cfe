"""What a report is made of: sections of tables, figures, facts and notes, before any of it is HTML.

A fit, a comparison and a reproduction differ only in the sections they put on a `Page`.
"""

import dataclasses
import math
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sdefit.display.charts import Chart, Mark, keys

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
class Table:
    """A sortable table; `name` is the stem of its CSV file, the first column names the row.

    `shown` are the columns of the page where those are not the ones of the CSV file; they may hold `Cell`s.
    """

    name: str
    title: str
    columns: Columns
    caption: str = ""
    heads: Mapping[str, str] = dataclasses.field(default_factory=dict)
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
    shades: Sequence[Sequence[int]]


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
class Figure:
    """Charts that share a title, a legend and the numbers they were drawn from."""

    name: str
    title: str
    caption: str
    columns: Columns
    charts: Sequence[Chart]
    alone: bool = False  # one chart as wide as the page
    kind: str = "figure"

    @property
    def keys(self) -> Sequence[Mark]:
        return keys(self.charts)

    @property
    def small(self) -> bool:
        """Whether it is half as wide as the page, where there is room for two."""
        return len(self.charts) == 1 and not self.alone


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
    """Verbatim text, or in its place the root of a tree of MathML, with an optional text folded below it."""

    title: str
    body: str = ""
    math: ET.Element | None = None
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
class Group:
    """Quantities that are estimated equally well, one short text for each; `tone` is "good", "caution" or "bad"."""

    title: str
    tone: str
    items: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What stands at the top of a page: how it went, what is known how well, and all that objects."""

    tone: str
    headline: str
    sentence: str = ""
    remedy: str = ""
    groups: Sequence[Group] = ()
    objections: Sequence[str] = ()
    remarks: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Page:
    """A whole report: title, verdict and sections."""

    title: str
    subtitle: str
    verdict: Verdict
    sections: Sequence[Section]
    footer: str = ""


def as_number(value: Any, default: float = math.nan) -> float:
    """A stored number, or the default where none is stored."""
    return default if value is None else float(value)


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
    if isinstance(value, np.datetime64):
        text = str(value).replace("T", " ").removesuffix(" 00:00:00")
        return Cell(text, str(value), False)
    return Cell(str(value), str(value), False)
