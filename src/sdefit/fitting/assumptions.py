"""What a fit takes for granted, in sentences."""

from sdefit.dynamics.description import hidden_states
from sdefit.dynamics.sde import SDE


def assumptions(model: SDE) -> list[str]:
    """The kind of equation, of noise and of beginning, and what is estimated."""
    kind = model.diffusion
    shapes = {"none": "no process noise (an ODE)", "given": "the diffusion that the model gives"}
    held = [f"{name} = {p.value:g}" for name, p in model.parameters if p.value is not None]
    first = f"Itô equation with {shapes.get(kind, f'a constant {kind} G')}; {_noise(model)}."
    estimated = f"Estimated: {', '.join(model.free) or 'no parameter'}. Fixed: {', '.join(held) or 'none'}."
    return [first, *_hidden(model), estimated]


def _noise(model: SDE) -> str:
    if all(law.name == "normal" and law.estimated for law in model.laws):
        per = "state" if model.observations == model.states else "observed column"
        return f"independent Gaussian observation noise, one variance per {per}"
    return "independent observation noise: " + ", ".join(
        f"{name} {law.name}, standard deviation {'estimated' if law.estimated else 'given'}"
        for name, law in zip(model.observations, model.laws, strict=True)
    )


def _hidden(model: SDE) -> list[str]:
    """Which states are hidden, and where the states begin."""
    said = []
    if hidden := hidden_states(model):
        said.append(f"{', '.join(hidden)} {'are' if len(hidden) > 1 else 'is'} not measured (hidden).")
    if isinstance(model.initial, str):
        words = {"rest": "at rest", "stationary": "in their stationary distribution"}
        said.append(f"The states begin {words[model.initial]}.")
    elif model.initial:
        said.append(f"It is given where {', '.join(name for name, *_ in model.initial)} begins.")
    return said
