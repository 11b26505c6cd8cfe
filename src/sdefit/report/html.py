"""One self-contained HTML page with its numbers as CSV files beside it.

report.html          everything inside: style, script, drawings; nothing is fetched
report_data/*.csv    the numbers of every table and figure, all digits
"""

import os
from importlib import resources
from pathlib import Path

import jinja2
import numpy as np

from sdefit.errors import FileError
from sdefit.files import csv_bytes, inside, write
from sdefit.report.fit import fit_page
from sdefit.report.page import Columns, Notes, Page, Text
from sdefit.store import Record


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
        write(path, render(page, folder.name).encode())
    except OSError as problem:
        raise FileError(f"the report {path} cannot be written: {problem.strerror}") from None
    return path


def numbers(page: Page) -> dict[str, Columns]:
    """The numbers of every table and figure on the page, by the name of their CSV file."""
    blocks = [block for section in page.sections for block in section.blocks]
    return {block.name: block.columns for block in blocks if not isinstance(block, Text | Notes)}


def render(page: Page, folder: str) -> str:
    """The page as HTML text; `folder` is where its links to CSV files point."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True)
    template = environment.from_string(_part("page.html"))
    return template.render(page=page, folder=folder, css=_part("page.css"), js=_part("page.js"))


def _part(name: str) -> str:
    return resources.files("sdefit.report").joinpath(name).read_text(encoding="utf-8")


def write_csv(columns: Columns, path: Path) -> None:
    """Columns as a CSV file; floats keep every digit, a missing one is an empty cell; raises `OSError`."""
    values = (column.tolist() if isinstance(column, np.ndarray) else list(column) for column in columns.values())
    write(path, csv_bytes(columns, zip(*values, strict=True)))
