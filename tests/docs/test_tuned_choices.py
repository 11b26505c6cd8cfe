"""Every number that the package was given by choice is on the page of tuned choices, with its value."""

import ast
import dataclasses
from pathlib import Path

import pytest

from sdefit import methods

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tuned_choices.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("|")]
# Rooms that compute; the others read, write and draw.
ROOMS = ("data", "diagnosis", "dynamics", "gp", "inference", "matching", "methods", "optimise", "ssm", "uncertainty")
FILES = [file for room in ROOMS for file in sorted((ROOT / "src" / "sdefit" / room).rglob("*.py"))]
# Numbers of a language, a calendar or a benchmark, not of an estimate.
ELSEWHERE = ("parser.py", "expressions.py", "printing.py", "model_file.py", "arguments.py", "clock.py", "simulate.py")


def constants() -> list[tuple[str, str, tuple[float, ...]]]:
    """File, name and numbers of each constant of a module."""
    found = []
    for file in [*FILES, ROOT / "src" / "sdefit" / "priors.py"]:
        if file.name in ELSEWHERE or "systems" in file.parts:
            continue
        for one in ast.parse(file.read_text()).body:
            if isinstance(one, ast.Assign) and (numbers := numbers_in(one.value)):
                names, path = ast.unparse(one.targets[0]), file.relative_to(ROOT / "src" / "sdefit")
                pairs = (
                    [(names, numbers)] if "," not in names else zip(names.strip("()").split(", "), numbers, strict=True)
                )
                found += [(str(path), name, value if isinstance(value, tuple) else (value,)) for name, value in pairs]
    return found


def numbers_in(node: ast.expr) -> tuple[float, ...]:
    """The numbers of a number or a tuple of them; none of anything else."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    try:
        values = [ast.literal_eval(part) for part in parts]
    except ValueError:
        return ()
    return tuple(values) if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values) else ()


def row_of(*words: str) -> str:
    rows = [row for row in ROWS if all(f"`{word}`" in row for word in words)]
    assert rows, f"no row of docs/tuned_choices.md has {' and '.join(words)}"
    return " ".join(rows)


def test_there_are_constants_to_look_for():
    names = {name for _, name, _ in constants()}
    assert {"WIDTH_THETA", "HELD_BACK", "_WEAK", "_NOT", "SPANS"} <= names


@pytest.mark.parametrize(("file", "name", "values"), constants(), ids=lambda one: one if isinstance(one, str) else "")
def test_every_named_constant_is_on_the_page_with_its_value(file, name, values):
    row = row_of(name, file)
    assert all(f"{value:g}" in row for value in values), (
        f"{file}: {name} is {values}, and docs/tuned_choices.md has {row}"
    )


@pytest.mark.parametrize("method", methods.names())
def test_every_numeric_setting_of_a_method_is_on_the_page_with_its_default(method):
    kind = type(methods.get(method)())
    for field in dataclasses.fields(kind):
        values = field.default if isinstance(field.default, tuple) else (field.default,)
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            row = row_of(f"{kind.__name__}.{field.name}")
            assert all(f"{value:g}" in row for value in values), f"{kind.__name__}.{field.name} is {field.default}"
