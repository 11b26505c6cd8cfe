"""The examples of README and docs run as a reader would run them: top to bottom, page by page, in an empty folder.

On a page, in its order: a block with `title="name"` is written to that file, a `python` block is run (all in
one namespace), and the lines of a `sh` block that start with `sdefit` are run. Blocks marked `console` or
`text` are only shown.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))  # run by test_tutorials.py, which pins what they claim
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page not in TUTORIALS)]
FENCE = re.compile(r"^```(?P<info>\w+[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


def script(page: Path) -> str:
    """One Python program that does what the blocks of the page say, each at the page's own line numbers."""
    text = page.read_text(encoding="utf-8")
    steps = ["import os, pathlib, subprocess, sys", "space = {'__name__': '__main__'}"]
    for block in FENCE.finditer(text):
        line = text[: block.start("body")].count("\n")
        steps += step(block["info"], block["body"], page.name, line)
    return "\n".join(steps)


def step(info: str, body: str, page: str, line: int) -> list[str]:
    if title := re.search(r'title="([^"]+)"', info):
        return [f"pathlib.Path({title[1]!r}).write_text({body!r}, encoding='utf-8')"]
    match info.split()[0]:
        case "python":
            return [f"exec(compile({'\n' * line + body!r}, {page!r}, 'exec'), space)"]
        case "sh":
            commands = [c for c in body.replace("\\\n", " ").splitlines() if c.startswith("sdefit ")]
            return [f"subprocess.run({c!r}, shell=True, check=True, stdin=subprocess.DEVNULL)" for c in commands]
    return []


def runs_something(page: Path) -> bool:
    return any(word in script(page) for word in ("exec(", "subprocess.run("))


def run(page: Path, folder: Path) -> Path:
    """The folder `folder/reader` in which the blocks of the page were run, beside the data of a clone."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "MPLBACKEND": "agg",
        "SDEFIT_CACHE": "on",
    }
    program = folder / "page.py"
    program.write_text(script(page), encoding="utf-8")
    reader = folder / "reader"
    shutil.copytree(ROOT / "docs" / "data", reader / "docs" / "data")
    done = subprocess.run(
        [sys.executable, program], cwd=reader, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, f"{page.relative_to(ROOT)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return reader


@pytest.mark.docs
@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES if runs_something(p)])
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    run(page, tmp_path)


def test_readme_has_examples_that_run() -> None:
    # Guards the collector itself: a README whose blocks were not recognised would pass the test above unread.
    text = script(ROOT / "README.md")
    assert "exec(compile(" in text
    assert "subprocess.run('sdefit fit" in text


def test_the_tests_that_reliability_names_are_there():
    named = re.findall(r"`((?:tests|experiments)/[^`]+)`", (ROOT / "docs" / "reliability.md").read_text())
    assert len(named) > 10 and [name for name in named if not (ROOT / name).is_file()] == []


def test_pictures_are_small_and_readme_and_every_tutorial_show_one() -> None:
    folder = ROOT / "docs" / "pictures"
    script = (folder / "make.py").read_text(encoding="utf-8")
    for picture in folder.glob("*.png"):
        assert picture.stat().st_size < 100_000, picture
        assert f"def {picture.stem}() -> Figure:" in script, picture
    for page in (ROOT / "README.md", ROOT / "docs" / "tutorial.md", *TUTORIALS):
        shown = re.findall(r"\]\(([^)]*\.png)\)", page.read_text(encoding="utf-8"))
        assert shown and all((page.parent / path).is_file() for path in shown), page
