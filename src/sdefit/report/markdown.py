"""The tables of a page as Markdown, for a repository or a wiki."""

from pathlib import Path

from sdefit.files import put
from sdefit.report.page import Cell, Facts, Page, Table


def write_markdown(page: Page, path: Path) -> None:
    """Write the page's tables and facts as Markdown."""
    put(path, markdown(page).encode())


def markdown(page: Page) -> str:
    """Title, status, and every table and list of facts under the titles of their sections."""
    parts = [
        f"# {page.title}",
        page.subtitle,
        " ".join(filter(None, [page.verdict.headline, page.verdict.sentence, page.verdict.remedy])),
    ]
    for section in page.sections:
        blocks = [_block(block) for block in section.blocks if isinstance(block, Table | Facts)]
        if blocks:
            parts += [f"## {section.title}", *blocks]
    return "\n\n".join(parts) + "\n"


def _block(block: Table | Facts) -> str:
    if isinstance(block, Facts):
        head, rows = ["", ""], [[name, value] for name, value in block.items.items()]
    else:
        head, rows = block.header, [[_text(cell) for cell in row] for row in block.rows]
    lines = [_line(head), "|---" * len(head) + "|", *map(_line, rows)]
    caption = "" if isinstance(block, Facts) else block.caption
    return "\n\n".join(filter(None, [f"### {block.title}", "\n".join(lines), caption]))


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _text(cell: Cell) -> str:
    return f"{cell.text} ({cell.below})" if cell.below else cell.text
