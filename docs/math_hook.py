"""Turns the formulas of a page into MathML when the site is built, so that no script has to do it in the browser."""

import html
import re

from latex2mathml.converter import convert

# What pymdownx.arithmatex leaves for `$...$` (a span) and `$$...$$` (a div).
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(html_text: str, **_) -> str:
    """The page with every formula as MathML."""
    return FORMULA.sub(as_mathml, html_text)


def as_mathml(match: re.Match[str]) -> str:
    display = "block" if match[1] == "div" else "inline"
    return convert(html.unescape(match[2]), display=display)
