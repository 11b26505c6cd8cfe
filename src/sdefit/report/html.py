"""One self-contained HTML page with its numbers as CSV files beside it.

report.html          everything inside: style, script, drawings; nothing is fetched
report_data/*.csv    the numbers of every table and figure, all digits

Everything that comes from a result is escaped by one template. A content-security policy in the page lets run our own
script and style alone.
"""

import base64
import functools
import hashlib
import itertools
import os
import re
from importlib import resources
from pathlib import Path

import jinja2
import numpy as np
from markupsafe import Markup

from sdefit.display.notebook import prose, tree
from sdefit.errors import FileError
from sdefit.files import csv_bytes, inside, write
from sdefit.report.fit import fit_page
from sdefit.report.page import Columns, Figure, Notes, Page, Text
from sdefit.store import Record

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,80}")


def write_fit(record: Record, path: str | os.PathLike[str]) -> Path:
    """Write the report of one fit to `path`, its data to a folder beside it; returns the path."""
    return write_page(fit_page(record), path)


def write_page(page: Page, path: str | os.PathLike[str]) -> Path:
    """Write any page and the CSV file of each of its tables and figures."""
    path = Path(path)
    try:
        folder = inside(path.parent, f"{path.stem}_data")
        folder.mkdir(parents=True, exist_ok=True)
        for name, columns in numbers(page).items():
            write_csv(columns, inside(folder, f"{name}.csv"))
        write(path, render(page, folder.name).encode(errors="replace"))
    except OSError as problem:
        raise FileError(f"the report {path} cannot be written: {problem.strerror}") from None
    return path


def numbers(page: Page) -> dict[str, Columns]:
    """The numbers of every table and figure on the page, by the name of their CSV file."""
    blocks = [block for section in page.sections for block in section.blocks if not isinstance(block, Text | Notes)]
    for block in blocks:
        if not _NAME.fullmatch(block.name):
            raise ValueError(f"a block's name is an id and a file's name, made by us, which {block.name!r} cannot be")
    return {block.name: block.columns for block in blocks}


def render(page: Page, folder: str) -> str:
    """The page as HTML text; `folder` is where its links to CSV files point."""
    css, js = _part("page.css"), _part("page.js")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"prose": prose, "tree": tree}
    environment.globals["drawings"] = functools.partial(_drawings, count=itertools.count(1))
    template = environment.from_string(_part("page.html"))
    return template.render(page=page, folder=folder, css=Markup(css), js=Markup(js), policy=_policy(css, js))


def _policy(css: str, js: str) -> str:
    """Nothing is fetched, and only our own style and script are applied and run."""
    return f"default-src 'none'; img-src data:; style-src {_digest(css)}; script-src {_digest(js)}; base-uri 'none'"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _drawings(figure: Figure, count: "itertools.count[int]") -> list[Markup]:
    """Its charts as SVG; one that is alone twice, as wide as the page and as narrow as a phone: the style shows one."""
    from sdefit.display.plot import WIDE, WIDTH  # here, not above: matplotlib takes half a second
    from sdefit.report.svg import svg

    sizes = [(WIDE, "on-wide"), (WIDTH, "on-narrow")] if figure.alone else [(WIDTH, "")]
    return [svg(chart, f"chart-{next(count)}", *size) for chart in figure.charts for size in sizes]


def _part(name: str) -> str:
    return resources.files("sdefit.report").joinpath(name).read_text(encoding="utf-8")


def write_csv(columns: Columns, path: Path) -> None:
    """Columns as a CSV file; floats keep every digit, a missing one is an empty cell; raises `OSError`."""
    values = (column.tolist() if isinstance(column, np.ndarray) else list(column) for column in columns.values())
    write(path, csv_bytes(columns, zip(*values, strict=True)))
