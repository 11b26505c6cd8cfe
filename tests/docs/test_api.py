"""Every public name stands on a page of the API reference, with an example that gives what its docstring shows.

All examples run in one process, after the lines with which the first page begins, so that they share what is compiled.
"""

import doctest
import re
from pathlib import Path
from typing import Any

import pytest
from test_docs import FENCE, ROOT

import sdefit as sf

API = ROOT / "docs" / "api"
FOUND = doctest.DocTestFinder(exclude_empty=False)
SHOWN = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def examples(name: str) -> list[doctest.DocTest]:
    """The examples of a public name and of its members."""
    return FOUND.find(getattr(sf, name), f"sf.{name}", module=False)


def test_every_public_name_is_on_one_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in API.glob("*.md"))
    assert sorted(re.findall(r"^::: sdefit\.(\w+)$", pages, re.MULTILINE)) == sorted(dir(sf))


@pytest.mark.parametrize("name", dir(sf))
def test_every_public_name_has_an_example(name: str) -> None:
    own = examples(name)[0]
    assert own.name == f"sf.{name}"
    assert own.examples


@pytest.mark.docs
def test_the_examples_of_the_api_give_what_they_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    begin: dict[str, Any] = {}
    (block,) = FENCE.finditer((API / "index.md").read_text(encoding="utf-8"))
    exec(block["body"], begin)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=SHOWN)
    for name in dir(sf):
        for example in examples(name):
            example.globs = dict(begin)
            runner.run(example, out=said.append)
    assert runner.tries > len(dir(sf))
    assert not runner.failures, "".join(said)
