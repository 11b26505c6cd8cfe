"""A chart as part of a page: matplotlib's SVG with the page's colours, ids of its own, and its marks laid bare.

Colours become CSS variables, so that a drawing follows light, dark and print, and styles become attributes, which a
content-security policy lets pass. All marks stand in one group, which `page.js` moves to zoom; corners of paths are
the numbers drawn, which it turns back into values by `data-x` and `data-y`.
"""

import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping

import numpy as np
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG

from sdefit.display.charts import COLOURS, Band, Chart, Mark, shown, spans
from sdefit.display.plot import WIDTH, panel, styled

_VARIABLES = {colour: f"var(--{name})" for name, colour in COLOURS.items()}
_DROPPED = {"font-family", "stroke-linejoin", "stroke-linecap", "id", "clip-path", "xmlns"}
_PLAIN = {"Date": None, "Creator": None, "Format": None, "Type": None}


def svg(chart: Chart, name: str, width: int = WIDTH, shown_on: str = "") -> Markup:
    """The chart as one SVG element; `name`, from a counter, is the stem of its ids."""
    drawing = _matplotlib(chart, width)
    axes = drawing.find(".//g[@id='axes_1']")
    box = drawing.find(".//clipPath/rect")
    if axes is None or box is None:
        raise AssertionError("matplotlib drew no axes")
    page = ET.Element("svg", _attributes(chart, drawing, shown_on))
    ET.SubElement(ET.SubElement(page, "clipPath", {"id": f"{name}-clip"}), "rect", box.attrib)
    page.extend(_plain(one) for one in axes if not one.get("id", "").startswith("mark-"))
    frame = ET.SubElement(page, "g", {"clip-path": f"url(#{name}-clip)"})
    marks = ET.SubElement(frame, "g", {"class": "marks"})
    drawn = {one.get("id"): one for one in axes}
    # matplotlib defines a shape where it is used first, which for a later mark is in another one.
    defined = {f"#{one.get('id')}": one for one in drawing.iter("path") if one.get("id")}
    for i, mark in enumerate(chart.marks):
        found = drawn.get(f"mark-{i}")
        if found is not None:  # matplotlib leaves out what has no finite point
            facts = {"class": mark.kind} | ({"data-label": shown(mark.label)} if mark.label else {})
            facts |= {"data-tips": json.dumps(tips)} if (tips := _tips(mark)) else {}
            group = ET.SubElement(marks, "g", facts)
            group.extend([_dots(found, defined)] if mark.kind == "dots" else _shapes(found, defined))
    return Markup(ET.tostring(page, encoding="unicode", short_empty_elements=False))


def _tips(mark: Mark) -> list[str]:
    """What the page says of each point that is drawn; one that is not finite is not."""
    if isinstance(mark, Band) or not len(mark.tips):
        return []
    drawn = np.isfinite(mark.x) & np.isfinite(mark.y)
    return [shown(tip, 200) for tip, one in zip(mark.tips, drawn, strict=True) if one]


def _matplotlib(chart: Chart, width: int) -> ET.Element:
    """matplotlib's own drawing, its names without their namespaces."""
    with styled(), io.StringIO() as out:
        FigureCanvasSVG(panel(chart, width)).print_svg(out, metadata=_PLAIN)
        top = ET.fromstring(out.getvalue())
    for one in top.iter():
        one.tag = one.tag.rpartition("}")[2]
        one.attrib = {name.rpartition("}")[2]: value for name, value in one.attrib.items()}
    return top


def _attributes(chart: Chart, drawing: ET.Element, shown_on: str) -> dict[str, str]:
    """What the page's script and a screen reader need to know of a chart."""
    across, up = spans(chart)
    up = tuple(np.log10(up)) if chart.log else up
    facts = {
        "class": f"chart {shown_on}".strip(),
        "role": "img",
        "tabindex": "0",
        "aria-label": shown(chart.alt, 2000),
        "viewBox": drawing.attrib["viewBox"],
        "data-x": " ".join(f"{float(edge)!r}" for edge in across),
        "data-y": " ".join(f"{float(edge)!r}" for edge in up),
        "data-across": shown(chart.across),
    }
    facts |= {f"data-{word}": "1" for word in ("log", "dates") if getattr(chart, word)}
    for word in ("names", "rows"):
        if names := getattr(chart, word):
            facts[f"data-{word}"] = json.dumps([shown(one) for one in names])
    return facts


def _plain(element: ET.Element) -> ET.Element:
    """The element with its style as attributes, and without ids; ticks keep their kind as a class."""
    facts = {name: _value(name, value) for name, value in _styles(element)}
    kind = re.match(r"[xy]tick(?=_)", element.get("id", ""))
    copy = ET.Element(element.tag, facts | ({"class": kind[0]} if kind else {}))
    copy.text = element.text if element.tag == "text" else None
    copy.extend(_plain(one) for one in element if one.tag != "defs")
    return copy


def _shapes(group: ET.Element, defined: Mapping[str, ET.Element]) -> Iterator[ET.Element]:
    """The paths of a mark; one that matplotlib defined first and used then stands where it was used."""
    for one in group.iter():
        if one.tag == "use":
            path = _plain(defined[one.attrib["href"]])
            path.attrib |= {name: _value(name, value) for name, value in _styles(one) if name not in ("href", "x", "y")}
            path.set("transform", f"translate({one.get('x')} {one.get('y')})")
            yield path
        elif one.tag == "path" and not one.get("id"):
            yield _plain(one)


def _styles(element: ET.Element) -> Iterator[tuple[str, str]]:
    pairs = [pair.partition(":")[::2] for pair in element.get("style", "").split(";") if pair]
    for name, value in [*element.attrib.items(), *((n.strip(), v.strip()) for n, v in pairs)]:
        idle = name == "transform" and value.startswith("rotate(-0 ")
        if name not in _DROPPED | {"style"} and not idle:
            yield name, value


def _value(name: str, value: str) -> str:
    """Colours as variables, path data to the hundredth of a unit."""
    if name != "d":
        return _VARIABLES.get(value, value)
    corners = re.findall(r"([MLZz])\s*(?:(-?[\d.e+-]+) (-?[\d.e+-]+))?", value)
    return "".join(f"{pen}{float(x):.2f} {float(y):.2f}" if x else pen for pen, x, y in corners)


def _dots(group: ET.Element, defined: Mapping[str, ET.Element]) -> ET.Element:
    """All dots as one path of strokes of no length with round ends, a few bytes each, whose size zoom leaves alone."""
    uses = list(group.iter("use"))
    d = "".join(f"M{float(use.attrib['x']):.2f} {float(use.attrib['y']):.2f}h0" for use in uses)
    look = dict(_styles(uses[0])) if uses else {}
    numbers = [
        float(one) for use in uses[:1] for one in re.findall(r"-?[\d.]+", defined[use.attrib["href"]].attrib["d"])
    ]
    size = max(numbers, default=0.0) - min(numbers, default=0.0)
    colour = _VARIABLES.get(look.get("fill", ""), "currentColor")
    return ET.Element("path", {"d": d, "stroke": colour, "stroke-width": f"{size:g}",
                               "stroke-opacity": look.get("fill-opacity", look.get("opacity", "1"))})  # fmt: skip
