"""A model's equations as MathML, which browsers draw by themselves, each from the tree of its formulas."""

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from sdefit.dynamics.description import (
    ONE,
    ZERO,
    Column,
    columns,
    drift_formulas,
    noise_count,
    noise_terms,
)
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
    number_text,
)
from sdefit.dynamics.formula_functions import SpreadEquation

if TYPE_CHECKING:
    from sdefit.dynamics.sde import SDE

# Each piece is its elements, how tightly it holds together, and how deep its elements nest.
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
    """The equations as MathML: a table with one row for each state, and for what is observed of a general model.

    Raises ValueError for a formula that nests too deep to be read as mathematics.
    """
    formulas = drift_formulas(model)
    math = ET.Element("math", {"display": "block"})
    table = ET.SubElement(math, "mtable")
    if formulas is None:
        noise = {"none": [], "scalar": [_mo("+"), _mi("g"), *_differential("w", "bold")]}.get(
            model.diffusion, [_mo("+"), _mi("G"), *_differential("w", "bold")]
        )
        noise = [_mo("+"), *_call("g"), *_differential("w", "bold")] if model.diffusion == "given" else noise
        _equation(table, _differential("x", "bold"), [*_call("f"), *_differential("t"), *noise])
    else:
        for row, (state, formula) in enumerate(zip(model.states, formulas, strict=True), 1):
            left = [_upright("d"), _math_name(state)]
            noise = _math_terms(model, row) if model.diffusion == "given" else _math_noise(model, row)
            drift = [] if formula == ZERO and noise else [*_brackets(_formula(formula)), *_differential("t")]
            _equation(table, left, [*drift, *(noise if drift else noise[1:])])
    if model.general:
        for column in columns(model):
            _equation(table, *_observed(column))
        _initial(table, model)
    return math


def _formula(formula: Formula, floor: int = 0) -> list[ET.Element]:
    """The formula, in brackets unless it holds together tighter than `floor`."""
    return _math_inside(formula.walk(_math_number, lambda name: ([_math_name(name)], ATOM, 0), _math_apply), floor)


def _call(name: str, bold: str = "x") -> list[ET.Element]:
    return [_mi(name), *_brackets([_mi("t"), _mo(","), _mi(bold, "bold"), _mo(","), _mi("θ")])]


def _math_terms(model: "SDE", row: int) -> list[ET.Element]:
    """The noises of one state's equation where the diffusion is given, each with a plus before it."""
    terms = noise_terms(model)
    if terms is None:
        g = _element("msub", _mi("g"), _mn(str(row)))
        return [_mo("+"), g, *_call("g")[1:], *_differential("w", "bold")]
    pieces: list[ET.Element] = []
    for number, _, formula in terms[row - 1]:
        w = _element("msub", _mi("w"), _mn(str(number))) if noise_count(model) > 1 else _mi("w")
        pieces += [_mo("+"), *([] if formula == ONE else [*_formula(formula, SUM), _space()]), _upright("d"), w]
    return pieces


def _observed(column: Column) -> tuple[list[ET.Element], list[ET.Element]]:
    """Both sides of y = h(t, x, θ) + ε, or of its logarithm."""
    name = _math_name(column.name)
    left = _element("msup", name, _upright("obs")) if column.is_state else name
    right = _call("h") if column.formula is None else _formula(column.formula)
    error = _element("msub", _mi("ε"), _math_name(column.name))
    law = [
        _mo(","),
        _space(),
        error,
        _mo("∼"),
        _mi("𝒩"),
        *_brackets([_mn("0"), _mo(","), *_variance(column)]),
    ]
    noise = [_mo("+"), _element("msub", _mi("ε"), _math_name(column.name)), *law]
    if column.law.name == "lognormal":
        return [_upright("log"), left], [_upright("log"), *_brackets(right), *noise]
    return [left], [*right, *noise]


def _variance(column: Column) -> list[ET.Element]:
    sd = column.law.sd
    if isinstance(sd, SpreadEquation):
        base = _row(_formula(sd.formula, POWER))
    elif isinstance(sd, float):
        base = _row(_math_number(sd)[0])
    else:
        base = _element("msub", _mi("σ"), _math_name(column.name))
    return [_element("msup", base, _mn("2"))]


def _initial(table: ET.Element, model: "SDE") -> None:
    """Where the states begin, if the model says so."""
    first = _element("msub", _mi("t"), _mn("1"))
    if model.initial == "rest":
        _equation(table, [_mi("f"), *_brackets([first])], [_mn("0")])
    elif model.initial == "stationary":
        _equation(table, [_mi("x", "bold"), *_brackets([first])], [_upright("stationary")], "∼")
    elif not isinstance(model.initial, str | None):
        for name, mean, std in model.initial:
            at = _element("msub", _mi("t"), _mn("1"))
            number = _math_number(mean)[0]
            spread = _element("msup", _row(_math_number(std)[0]), _mn("2"))
            law = [_mi("𝒩"), *_brackets([*number, _mo(","), spread])]
            sides = [_math_name(name), *_brackets([at])], (law if std else number)
            _equation(table, *sides, "∼" if std else "=")


def _equation(table: ET.Element, left: list[ET.Element], right: list[ET.Element], mark: str = "=") -> None:
    row = ET.SubElement(table, "mtr")
    for cell in (left, [_mo(mark), *right]):
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
