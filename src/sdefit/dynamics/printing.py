"""How a model prints itself: as a block of text and as LaTeX, each from the tree of its formulas.

A part that carries `formulas` (one read from text) is written out; any other is named.
"""

from typing import TYPE_CHECKING, Any

from sdefit.dynamics.description import (
    ONE,
    ZERO,
    Column,
    NoiseTerm,
    columns,
    drift_formulas,
    hidden_states,
    noise_count,
    noise_terms,
)
from sdefit.dynamics.expressions import POWER, SUM, Formula, Number, latex_name, number_text
from sdefit.dynamics.formula_functions import SpreadEquation
from sdefit.dynamics.laws import Law
from sdefit.dynamics.mathml import mathml as mathml

if TYPE_CHECKING:
    from sdefit.dynamics.sde import SDE

_STRUCTURE = {
    "full": "full: G is lower triangular, every entry estimated",
    "diagonal": "diagonal: G = diag(g_1, ..., g_K), one number per state",
    "scalar": "scalar: G = g I, one number for all states",
    "none": "none: G = 0, an ordinary differential equation",
}
_HOLDS = {"linear": "on a line from row to row", "previous": "each as at the row before"}
_INITIAL = {"rest": "at rest, where f = 0", "stationary": "the stationary distribution"}


def text(model: "SDE") -> str:
    """What the model says and assumes, on a few lines."""
    noise = {"none": "", "given": " + g(t, x, θ) dw  (Itô)"}.get(model.diffusion, " + G dw  (Itô, constant G)")
    rows = [("states", ", ".join(model.states)), *_parameter_rows(model)]
    if model.diffusion != "given":
        rows.append(("diffusion", _STRUCTURE[model.diffusion]))
    if model.general:
        rows += _general_rows(model)
    block = [f"{model.name}: dx = f(t, x, θ) dt{noise}", *_motion_lines(model)]
    return "\n".join(block + [f"  {word:<11} {said}" for word, said in rows])


def reference(function: Any) -> str:
    """Where a function comes from, as `module:name`."""
    if hasattr(function, "reference"):
        return function.reference
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"


def _motion_lines(model: "SDE") -> list[str]:
    formulas, terms = drift_formulas(model), noise_terms(model)
    width = max(map(len, model.states))
    if formulas is None:
        lines = [f"  f           the Python function {reference(model.drift)}"]
    elif terms is not None:
        every = zip(model.states, formulas, terms, strict=True)
        return [f"  d{state:<{width}} = {_whole(drift, noise)}" for state, drift, noise in every]
    else:
        lines = [f"  d{state + '/dt':<{width + 3}} = {one}" for state, one in zip(model.states, formulas, strict=True)]
    if model.g_function is not None:
        lines.append(f"  g           the Python function {reference(model.g_function)}")
    return lines


def _whole(drift: Formula, noise: list[NoiseTerm]) -> str:
    said = [] if drift == ZERO and noise else [f"{drift.factor}*dt"]
    said += [one.name if one.formula == ONE else f"{one.formula.factor}*{one.name}" for one in noise]
    return " + ".join(said)


def _parameter_rows(model: "SDE") -> list[tuple[str, str]]:
    width = max(map(len, model.params), default=0)
    said = [f"{name:<{width}}  {one}" for name, one in model.parameters] or ["none"]
    rows = [("parameters" if i == 0 else "", one) for i, one in enumerate(said)]
    return rows + ([("inputs", f"{', '.join(model.inputs)}  {_HOLDS[model.hold]}")] if model.inputs else [])


def _general_rows(model: "SDE") -> list[tuple[str, str]]:
    """What is observed, what is hidden, where the states begin and what is estimated."""
    rows = [("observed" if i == 0 else "", _column(one)) for i, one in enumerate(columns(model))]
    if model.h_function is not None and columns(model)[0].formula is None:
        rows.append(("h", f"the Python function {reference(model.h_function)}"))
    if hidden := hidden_states(model):
        rows.append(("hidden", ", ".join(hidden)))
    rows.append(("initial", _initial(model)))
    estimated = list(model.free)
    estimated += ["G"] if model.diffusion not in ("given", "none") else []
    estimated += [f"the sd of {one.name}" for one in columns(model) if one.law.estimated]
    return [*rows, ("estimated", ", ".join(estimated) or "nothing")]


def _column(column: Column) -> str:
    named = column.is_state and column.formula is not None and str(column.formula) == column.name
    left = column.name if named or column.formula is None else f"{column.name} = {column.formula}"
    return f"{left}, {column.law.name}, sd {_spread(column.law)}"


def _spread(law: Law) -> str:
    match law.sd:
        case None:
            return "estimated"
        case SpreadEquation(formula=formula):
            return str(formula)
        case float(number):
            return number_text(number)
    return f"from the Python function {reference(law.sd)}"


def _initial(model: "SDE") -> str:
    if isinstance(model.initial, str | None):
        return _INITIAL[model.initial] if model.initial else "unknown"
    said = [
        f"{name} ~ N({number_text(mean)}, {number_text(std)}²)" if std else f"{name} = {number_text(mean)}"
        for name, mean, std in model.initial
    ]
    rest = "" if len(model.initial) == len(model.states) else "; the others unknown"
    return ", ".join(said) + rest


def latex(model: "SDE") -> str:
    """The equations as LaTeX, one line per state and, of a general model, per column; a function is written f."""
    formulas = drift_formulas(model)
    if formulas is None and not model.general:
        return _latex_any(model)
    lines = [_latex_any(model, " &")]
    if formulas is not None:
        every = enumerate(zip(model.states, formulas, strict=True), 1)
        lines = [_latex_motion(model, row, state, formula) for row, (state, formula) in every]
    if model.general:
        lines += [*map(_latex_column, columns(model)), *_latex_initial(model)]
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"


def _latex_motion(model: "SDE", row: int, state: str, formula: Formula) -> str:
    noise = _latex_noise(model, row)
    drift = "" if formula == ZERO and model.diffusion == "given" and noise else (
        rf"\left({formula.latex()}\right) \mathrm{{d}}t"
    )  # fmt: skip
    return rf"\mathrm{{d}} {latex_name(state)} &= " + (drift + noise if drift else noise.removeprefix(" + "))


def _latex_noise(model: "SDE", row: int) -> str:
    if model.diffusion == "given":
        return _latex_terms(model, row)
    if len(model.states) == 1 and model.diffusion != "none":
        return r" + G \,\mathrm{d}w"
    match model.diffusion:
        case "none":
            return ""
        case "scalar":
            entries = [("g", row)]
        case _:
            places = [row] if model.diffusion == "diagonal" else range(1, row + 1)
            entries = [(f"G_{{{row},{column}}}", column) for column in places]
    return "".join(rf" + {entry} \,\mathrm{{d}}w_{{{column}}}" for entry, column in entries)


def _latex_terms(model: "SDE", row: int) -> str:
    terms = noise_terms(model)
    if terms is None:
        return rf" + g_{{{row}}}(t, \mathbf{{x}}, \theta) \,\mathrm{{d}}\mathbf{{w}}"
    said = ""
    for number, _, formula in terms[row - 1]:
        w = rf"\mathrm{{d}}w_{{{number}}}" if noise_count(model) > 1 else r"\mathrm{d}w"
        said += f" + {w}" if formula == ONE else rf" + {formula.latex(SUM)} \,{w}"
    return said


def _latex_any(model: "SDE", align: str = "") -> str:
    given = {"none": "", "scalar": r" + g \,\mathrm{d}\mathbf{w}",
             "given": r" + g(t, \mathbf{x}, \theta) \,\mathrm{d}\mathbf{w}"}  # fmt: skip
    noise = given.get(model.diffusion, r" + G \,\mathrm{d}\mathbf{w}")
    states = ", ".join(map(latex_name, model.states))
    left = rf"\mathrm{{d}}\mathbf{{x}}{align or ' '}= f(t, \mathbf{{x}}, \theta) \,\mathrm{{d}}t{noise}"
    return rf"{left}, \quad \mathbf{{x}} = ({states})^\top"


def _latex_column(column: Column) -> str:
    """y = h(t, x, θ) + ε, or its logarithm."""
    name = latex_name(column.name)
    left = rf"{{{name}}}^{{\mathrm{{obs}}}}" if column.is_state else name
    right = r"h(t, \mathbf{x}, \theta)" if column.formula is None else column.formula.latex()
    if column.law.name == "lognormal":
        left, right = rf"\log {left}", rf"\log\left({right}\right)"
    error = rf"\varepsilon_{{{name}}}"
    return (
        rf"{left} &= {right} + {error}, \quad {error} \sim \mathcal{{N}}\left(0, {_latex_spread(column)}^{{2}}\right)"
    )


def _latex_spread(column: Column) -> str:
    match column.law.sd:
        case SpreadEquation(formula=formula):
            return formula.latex(POWER)
        case float(number):
            return Formula((Number(number),)).latex(POWER)
    return rf"\sigma_{{{latex_name(column.name)}}}"


def _latex_initial(model: "SDE") -> list[str]:
    if model.initial == "rest":
        return [r"f(t_1, \mathbf{x}(t_1), \theta) &= 0"]
    if model.initial == "stationary":
        return [r"\mathbf{x}(t_1) &\sim \text{the stationary distribution}"]
    if isinstance(model.initial, str | None):
        return []
    return [_latex_start(*one) for one in model.initial]


def _latex_start(name: str, mean: float, std: float) -> str:
    number, spread = (Formula((Number(one),)).latex(floor) for one, floor in ((mean, 0), (std, POWER)))
    law = rf"&\sim \mathcal{{N}}\left({number}, {spread}^{{2}}\right)" if std else f"&= {number}"
    return f"{latex_name(name)}(t_1) {law}"
