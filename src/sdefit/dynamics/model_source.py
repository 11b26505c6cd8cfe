"""The text of a model and what stands beside it, so that `equations` makes the same model of them again."""

from typing import TYPE_CHECKING, Any, NamedTuple

from sdefit.dynamics.description import ZERO
from sdefit.dynamics.equations import observation_of
from sdefit.dynamics.formula_functions import DiffusionEquations, Equations, ObservationEquations, SpreadEquation
from sdefit.dynamics.grammar import Grammar, grammar
from sdefit.dynamics.laws import Law, Normal

if TYPE_CHECKING:
    from sdefit.dynamics.sde import SDE


class Source(NamedTuple):
    """What `equations` takes to make a model again."""

    text: str
    diffusion: Any  # None beside whole equations, which say it
    hidden: list[str]
    laws: dict[str, Law]  # of the columns that are not normal with an estimated standard deviation


def source(model: "SDE") -> Source:
    """The model's text as its user wrote it, or written anew where parts of the model were replaced since."""
    drift = model.drift
    assert isinstance(drift, Equations)  # asked only of models read from text
    found = grammar(drift.text, model.observations)
    text, written = drift.text, _says(found, model)
    if not written:
        text = _written(model, drift)
        found = grammar(text, model.observations)
    hidden = [one for one in model.states if one not in model.observations]
    return Source(
        text=text,
        diffusion=None if found.whole else _diffusion(model, as_given=written),
        hidden=[] if found.columns or model.h_function is not None else hidden,
        laws={name: _law(law, as_given=written) for name, law in _laws(model, found).items()},
    )


def _says(found: Grammar, model: "SDE") -> bool:
    """Whether the text says all that the model is."""
    g, h = model.g_function, model.h_function
    if found.whole:
        size = len(found.noises)
        made = DiffusionEquations(found.states, size, found.entries, found.noises) if size else None
        noise = g == made and (size > 0 or model.diffusion == "none")
    else:
        noise = not isinstance(g, DiffusionEquations) or g.given is not None
    if found.columns:
        seen = model.observations == found.columns and h == observation_of(found)
    else:
        seen = not isinstance(h, ObservationEquations)
    return noise and seen


def _written(model: "SDE", drift: Equations) -> str:
    """The text of a model's own formulas."""
    g, h = model.g_function, model.h_function
    rows = [f"d{state}/dt = {formula}" for state, formula in zip(model.states, drift.formulas, strict=True)]
    if isinstance(g, DiffusionEquations) and g.given is None:
        rows = []
        for row, (state, formula) in enumerate(zip(model.states, drift.formulas, strict=True)):
            noise = [f"{one.formula.factor}*dw_n{one.column}" for one in g.entries if one.row == row]
            said = [] if formula == ZERO and noise else [f"{formula.factor}*dt"]
            rows.append(f"d{state} = " + " + ".join(said + noise))
    if isinstance(h, ObservationEquations):
        rows += [f"{name} = {one}" for name, one in zip(model.observations, h.formulas, strict=True)]
    return "\n".join(rows)


def _diffusion(model: "SDE", *, as_given: bool) -> Any:
    g = model.g_function
    if not isinstance(g, DiffusionEquations):
        return model.diffusion if g is None else g
    if as_given:
        return g.given if isinstance(g.given, str) else [list(row) for row in g.given]
    cells: list[list[Any]] = [[0] * g.columns for _ in g.states]
    for one in g.entries:
        cells[one.row][one.column] = str(one.formula)
    return cells


def _laws(model: "SDE", found: Grammar) -> dict[str, Law]:
    """The laws that must be said: those that are not plain, and those by which a line is known to be a column."""
    every = zip(model.observations, model.laws, strict=True)
    doubtful = found.columns if not found.whole else ()
    return {name: law for name, law in every if law != Normal() or (name in doubtful and name.startswith("d"))}


def _law(law: Law, *, as_given: bool) -> Law:
    """The law with its standard deviation as a number, as text or as a function of Python."""
    if not isinstance(law.sd, SpreadEquation):
        return law
    return type(law)(law.sd.text if as_given else str(law.sd.formula))
