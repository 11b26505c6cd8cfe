"""How a model prints itself: as a block of text, as LaTeX and as MathML, each from the tree of its formulas.

A drift that carries `formulas` (one read from text) is written out; any other is named.
"""

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

from sdefit.dynamics.expressions import (
    ATOM,
    BINDING,
    FRACTION,
    NAME_PARTS,
    POWER,
    PRODUCT,
    SIGN,
    SUM,
    Formula,
    latex_name,
    number_text,
)

if TYPE_CHECKING:
    from sdefit.dynamics.sde import SDE

_STRUCTURE = {
    "full": "full: G is lower triangular, every entry estimated",
    "diagonal": "diagonal: G = diag(g_1, ..., g_K), one number per state",
    "scalar": "scalar: G = g I, one number for all states",
    "none": "none: G = 0, an ordinary differential equation",
}
_HOLDS = {"linear": "on a line from row to row", "previous": "each as at the row before"}


def text(model: "SDE") -> str:
    """What the model says and assumes, on a few lines."""
    noise = "" if model.diffusion == "none" else " + G dw  (Itô, constant G)"
    rows = [("states", ", ".join(model.states))]
    rows += [*_parameter_rows(model), ("diffusion", _STRUCTURE[model.diffusion])]
    block = [f"{model.name}: dx = f(t, x, θ) dt{noise}", *_drift_lines(model)]
    return "\n".join(block + [f"  {word:<11} {said}" for word, said in rows])


def latex(model: "SDE") -> str:
    """The equations as LaTeX, one line per state; a drift given as a function is written f."""
    formulas = _formulas(model.drift)
    if formulas is None:
        return _latex_any(model)
    lines = [
        rf"\mathrm{{d}} {latex_name(state)} &= \left({formula.latex()}\right) \mathrm{{d}}t{_latex_noise(model, row)}"
        for row, (state, formula) in enumerate(zip(model.states, formulas, strict=True), 1)
    ]
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"


def reference(drift: Any) -> str:
    """Where a drift comes from, as `module:name`."""
    if hasattr(drift, "reference"):
        return drift.reference
    named = drift if hasattr(drift, "__qualname__") else type(drift)
    return f"{named.__module__}:{named.__qualname__}"


def _formulas(drift: Any) -> tuple[Formula, ...] | None:
    return getattr(drift, "formulas", None)


def _drift_lines(model: "SDE") -> list[str]:
    formulas = _formulas(model.drift)
    if formulas is None:
        return [f"  f           the Python function {reference(model.drift)}"]
    width = max(map(len, model.states))
    return [f"  d{state + '/dt':<{width + 3}} = {one}" for state, one in zip(model.states, formulas, strict=True)]


def _parameter_rows(model: "SDE") -> list[tuple[str, str]]:
    width = max(map(len, model.params), default=0)
    said = [f"{name:<{width}}  {one}" for name, one in model.parameters] or ["none"]
    rows = [("parameters" if i == 0 else "", one) for i, one in enumerate(said)]
    return rows + ([("inputs", f"{', '.join(model.inputs)}  {_HOLDS[model.hold]}")] if model.inputs else [])


def _latex_noise(model: "SDE", row: int) -> str:
    if len(model.states) == 1 and model.diffusion != "none":
        return r" + G \,\mathrm{d}w"
    match model.diffusion:
        case "none":
            return ""
        case "scalar":
            entries = [("g", row)]
        case _:
            columns = [row] if model.diffusion == "diagonal" else range(1, row + 1)
            entries = [(f"G_{{{row},{column}}}", column) for column in columns]
    return "".join(rf" + {entry} \,\mathrm{{d}}w_{{{column}}}" for entry, column in entries)


def _latex_any(model: "SDE") -> str:
    noise = {"none": "", "scalar": r" + g \,\mathrm{d}\mathbf{w}"}.get(model.diffusion, r" + G \,\mathrm{d}\mathbf{w}")
    states = ", ".join(map(latex_name, model.states))
    left = rf"\mathrm{{d}}\mathbf{{x}} = f(t, \mathbf{{x}}, \theta) \,\mathrm{{d}}t{noise}"
    return rf"{left}, \quad \mathbf{{x}} = ({states})^\top"


# MathML. Each piece is its elements, how tightly it holds together, and how deep its elements nest.
_MathPiece = tuple[list[ET.Element], int, int]
_DEEPEST = 60  # nested fractions, roots and powers that a browser still draws so that one can read them
_GREEK: dict[str, str] = dict(
    zip(
        "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi "
        "psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega".split(),
        "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ",
        strict=True,
    )
)


def mathml(model: "SDE") -> ET.Element:
    """The equations as MathML, which browsers draw by themselves: a table with one row for each state.

    Raises ValueError for a formula that nests too deep to be read as mathematics.
    """
    formulas = _formulas(model.drift)
    math = ET.Element("math", {"display": "block"})
    table = ET.SubElement(math, "mtable")
    if formulas is None:
        noise = {"none": [], "scalar": [_mo("+"), _mi("g"), *_differential("w", "bold")]}.get(
            model.diffusion, [_mo("+"), _mi("G"), *_differential("w", "bold")]
        )
        drift = [_mi("f"), *_brackets([_mi("t"), _mo(","), _mi("x", "bold"), _mo(","), _mi("θ")])]
        _equation(table, _differential("x", "bold"), [*drift, *_differential("t"), *noise])
        return math
    for row, (state, formula) in enumerate(zip(model.states, formulas, strict=True), 1):
        drift = formula.walk(_math_number, lambda name: ([_math_name(name)], ATOM, 0), _math_apply)[0]
        left = [_upright("d"), _math_name(state)]
        _equation(table, left, [*_brackets(drift), *_differential("t"), *_math_noise(model, row)])
    return math


def _equation(table: ET.Element, left: list[ET.Element], right: list[ET.Element]) -> None:
    row = ET.SubElement(table, "mtr")
    for cell in (left, [_mo("="), *right]):
        ET.SubElement(row, "mtd").append(_element("mrow", *cell))


def _math_noise(model: "SDE", row: int) -> list[ET.Element]:
    if model.diffusion == "none":
        return []
    if len(model.states) == 1:
        return [_mo("+"), _mi("G"), *_differential("w")]
    columns = range(1, row + 1) if model.diffusion == "full" else [row]
    pieces: list[ET.Element] = []
    for column in columns:
        place = _element("mrow", _mn(str(row)), _mo(","), _mn(str(column)))
        entry = _mi("g") if model.diffusion == "scalar" else _element("msub", _mi("G"), place)
        pieces += [_mo("+"), entry, _space(), _upright("d"), _element("msub", _mi("w"), _mn(str(column)))]
    return pieces


def _math_number(value: float) -> _MathPiece:
    digits, _, exponent = number_text(value).partition("e")
    if not exponent:
        return [_mn(digits)], ATOM, 0
    return [_mn(digits), _mo("·"), _element("msup", _mn("10"), _mn(str(int(exponent)).replace("-", "−")))], PRODUCT, 1


def _math_apply(word: str, *given: _MathPiece) -> _MathPiece:
    deep = max(piece[2] for piece in given) + (word in ("/", "**", "sqrt"))
    if deep > _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} nested fractions, roots and powers")
    first, last = given[0], given[-1]
    match word:
        case "negate":
            return [_mo("−"), *_math_inside(first, SIGN)], SIGN, deep
        case "/":
            return [_element("mfrac", _row(first[0]), _row(last[0]))], FRACTION, deep
        case "**":
            return [_element("msup", _row(_math_inside(first, POWER)), _row(last[0]))], POWER, deep
        case "sqrt":
            return [_element("msqrt", *first[0])], ATOM, deep
        case "abs":
            return [_mo("|"), *first[0], _mo("|")], ATOM, deep
        case "+" | "-" | "*":
            signed = (last[0], SUM, last[2]) if last[1] == SIGN else last
            left, right = _math_inside(first, BINDING[word] - 1), _math_inside(signed, BINDING[word])
            times = _mo("·") if right[0].tag == "mn" else _space()
            return [*left, times if word == "*" else _mo(word.replace("-", "−")), *right], BINDING[word], deep
    return [_upright(word), *_brackets(first[0])], ATOM, deep


def _math_inside(piece: _MathPiece, floor: int) -> list[ET.Element]:
    return _brackets(piece[0]) if piece[1] <= floor else piece[0]


def _brackets(pieces: list[ET.Element]) -> list[ET.Element]:
    return [_element("mrow", _mo("("), *pieces, _mo(")"))]


def _math_name(name: str) -> ET.Element:
    """A name with its subscript: Greek letters for `theta_1` and `theta1`, italic letters for words."""
    found = NAME_PARTS.fullmatch(name)
    if not found:
        return _mi(name, "name")
    base, digits, word = found.groups()
    stem = _mi(_GREEK.get(base, base), "name" if len(base) > 1 and base not in _GREEK else "")
    if not digits and not word:
        return stem
    return _element("msub", stem, _mn(digits) if digits else _mi(word) if len(word) == 1 else _upright(word))


def _element(tag: str, *children: ET.Element) -> ET.Element:
    element = ET.Element(tag)
    element.extend(children)
    return element


def _row(pieces: list[ET.Element]) -> ET.Element:
    return pieces[0] if len(pieces) == 1 else _element("mrow", *pieces)


def _leaf(tag: str, text: str, **attributes: str) -> ET.Element:
    element = ET.Element(tag, attributes)
    element.text = text
    return element


def _mi(text: str, look: str = "") -> ET.Element:
    return _leaf("mi", text, **({"class": look} if look else {}))


def _upright(text: str) -> ET.Element:
    return _leaf("mi", text, mathvariant="normal")


def _mn(text: str) -> ET.Element:
    return _leaf("mn", text)


def _mo(text: str) -> ET.Element:
    return _leaf("mo", text)


def _space() -> ET.Element:
    return ET.Element("mspace", {"width": "0.17em"})


def _differential(name: str, look: str = "") -> list[ET.Element]:
    return [_space(), _upright("d"), _mi(name, look)]
