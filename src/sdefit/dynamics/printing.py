"""How a model prints itself: as a block of text and as LaTeX.

A drift that carries `formulas` (one read from text) is written out; any other is named.
"""

from typing import TYPE_CHECKING, Any

from sdefit.dynamics.expressions import Formula, latex_name

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
    match model.diffusion:
        case "none":
            return ""
        case "scalar":
            entries = [("g", row)]
        case "diagonal":
            entries = [(f"G_{{{row},{row}}}", row)]
        case _:
            entries = [(f"G_{{{row},{column}}}", column) for column in range(1, row + 1)]
    return "".join(rf" + {entry} \,\mathrm{{d}}w_{{{column}}}" for entry, column in entries)


def _latex_any(model: "SDE") -> str:
    noise = {"none": "", "scalar": r" + g \,\mathrm{d}\mathbf{w}"}.get(model.diffusion, r" + G \,\mathrm{d}\mathbf{w}")
    states = ", ".join(map(latex_name, model.states))
    left = rf"\mathrm{{d}}\mathbf{{x}} = f(t, \mathbf{{x}}, \theta) \,\mathrm{{d}}t{noise}"
    return rf"{left}, \quad \mathbf{{x}} = ({states})^\top"
