"""The shape of the house: what import-linter does not check."""

import ast
import inspect
from pathlib import Path

import pytest

import sdefit
from sdefit.methods import get, names

SOURCE = Path(sdefit.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
assert len(MODULES) > 100  # else there is nothing to check
LONGEST = 60  # lines of a function


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_imports_what_another_room_keeps_to_itself(module):
    room = module.relative_to(SOURCE).parts[0]
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sdefit."):
            parts = node.module.split(".")[1:] + [alias.name for alias in node.names]
            private = [part for part in parts[1:] if part.startswith("_") and not part.startswith("__")]
            assert not private or parts[0] == room, f"{node.module} is private to {parts[0]}"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_function_is_longer_than_a_screen(module):
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < LONGEST, node.name


@pytest.mark.parametrize("name", names())
def test_a_method_is_final_and_one_step_from_an_abstract_class(name):
    method = get(name)
    assert not method.__subclasses__()
    assert all(inspect.isabstract(parent) for parent in method.__bases__)
