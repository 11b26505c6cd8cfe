"""The model as a value: its parts, its refusals, and how it prints itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import fixed, interval, positive, real
from sdefit.dynamics.sde import SDE
from sdefit.errors import ModelError

LV = """
dprey     = a*prey - b*prey*predator
dpredator = -c*predator + d*prey*predator
"""


def drift(t, x, p):
    return p["rate"] * (p["level"] - x) + p["push"] * t


def model(**changes):
    parts = {
        "drift": drift,
        "states": ["x"],
        "params": {"rate": positive(0.5), "push": fixed(2.0), "level": real()},
        "diffusion": "full",
    }
    return SDE(**(parts | changes))


def test_the_vector_of_free_parameters():
    made = model()
    assert made.free == ("rate", "level")
    assert made.bounds.lower == (0.0, -np.inf)
    assert made.starts[0] == 0.5
    assert np.isnan(made.starts[1])
    assert made.named(jnp.asarray([1.0, 3.0])) == {"rate": 1.0, "push": 2.0, "level": 3.0}


@pytest.mark.parametrize("seed", range(3))
def test_the_drift_is_the_formula(seed):
    t, x, rate, level = np.random.default_rng(seed).normal(size=4)
    value = jax.jit(model().f)(jnp.asarray(t), jnp.asarray([x]), jnp.asarray([rate, level]))
    np.testing.assert_allclose(value, [rate * (level - x) + 2 * t], rtol=1e-14)


def test_a_drift_may_return_a_list():
    made = model(drift=lambda t, x, p: [x[1], -1], states=["x", "v"], params={})
    np.testing.assert_array_equal(made.f(jnp.asarray(0.0), jnp.asarray([1.0, 2.0]), jnp.zeros(0)), [2.0, -1.0])


def test_a_drift_of_the_wrong_length_is_refused():
    made = model(states=["x", "y"], drift=lambda t, x, p: x[:1])
    with pytest.raises(ModelError, match=r"must return 2 number\(s\), one per state, but returned shape \(1,\)"):
        made.f(jnp.asarray(0.0), jnp.zeros(2), jnp.zeros(2))


def test_equal_parts_make_equal_models():
    assert model() == model()
    assert hash(model()) == hash(model())
    assert model() != model(diffusion="diagonal")
    assert model() != model(params={"rate": positive(0.6), "push": fixed(2.0), "level": real()})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"drift": 3}, r"drift must be a callable f\(t, x, p\), not int"),
        ({"states": "x"}, r"states must be a list of names, not the string 'x'; write \['x'\]"),
        ({"states": []}, r"states must be one or more names, each a line of text, not \[\]"),
        ({"states": ["x", 1]}, r"states must be one or more names, each a line of text, not \['x', 1\]"),
        ({"states": [" "]}, "states must be one or more names"),
        ({"states": ["x\ny"]}, "states must be one or more names"),
        ({"states": {"x"}}, "states must be a list of names, not set"),
        ({"states": ["x", "x"]}, r"states must be different names, not \['x', 'x'\]"),
        ({"states": ["rate"]}, "a name must be a state or a parameter, but 'rate' is both"),
        ({"params": ["rate"]}, "params must be a mapping of names to ranges, not list"),
        ({"params": {1: real()}}, "params must be one or more names"),
        ({"params": {"rate": "positive"}}, "parameter 'rate' must be sf.real"),
        ({"diffusion": "lower"}, "diffusion must be one of full, diagonal, scalar, none, not 'lower'"),
        ({"diffusion": ["full"]}, r"diffusion must be one of full, diagonal, scalar, none, not \['full'\]"),
        ({"name": 3}, "name must be text, not 3"),
    ],
)
def test_a_wrong_part_is_refused_in_one_line(changes, message):
    with pytest.raises(ModelError, match=message) as caught:
        model(**changes)
    assert "\n" not in str(caught.value)


def test_a_drift_that_holds_arrays_is_refused():
    class Net:
        __hash__ = None  # pyright: ignore[reportAssignmentType]

        def __call__(self, t, x, p):
            return x

    with pytest.raises(ModelError, match="drift must be a function or hashable object, but a Net"):
        model(drift=Net())


def test_a_model_of_equations_prints_itself():
    made = equations(LV, {"a": positive(1), "c": interval(0, 10), "d": 1.0}, name="lotka_volterra")
    assert str(made) == (
        "lotka_volterra: dx = f(t, x, θ) dt + G dw  (Itô, constant G)\n"
        "  dprey/dt     = a*prey - b*prey*predator\n"
        "  dpredator/dt = -c*predator + d*prey*predator\n"
        "  states      prey, predator\n"
        "  parameters  a  positive, start 1\n"
        "              b  real\n"
        "              c  in (0, 10)\n"
        "              d  fixed at 1\n"
        "  diffusion   full: G is lower triangular, every entry estimated"
    )
    assert repr(made).startswith("SDE('lotka_volterra', ")


def test_a_model_of_a_function_says_so():
    text = str(model())
    assert f"  f           the Python function {__name__}:drift\n" in text
    assert "Itô, constant G" in text


def test_an_ode_prints_no_noise():
    made = equations("dx = -x", diffusion="none")
    assert str(made).startswith("model: dx = f(t, x, θ) dt\n")
    assert "parameters  none" in str(made)
    assert "w" not in made.latex()


def test_inputs_are_printed():
    assert "  inputs      u" in str(equations("dx = u - x", inputs=["u"]))


NOISE = {
    "full": (r"G_{1,1} \,\mathrm{d}w_{1}", r"G_{2,1} \,\mathrm{d}w_{1} + G_{2,2} \,\mathrm{d}w_{2}"),
    "diagonal": (r"G_{1,1} \,\mathrm{d}w_{1}", r"G_{2,2} \,\mathrm{d}w_{2}"),
    "scalar": (r"g \,\mathrm{d}w_{1}", r"g \,\mathrm{d}w_{2}"),
}


@pytest.mark.parametrize("diffusion", NOISE)
def test_latex_of_equations(diffusion):
    first, second = NOISE[diffusion]
    assert equations(LV, diffusion=diffusion).latex() == (
        "\\begin{aligned}\n"
        r"\mathrm{d} \mathit{prey} &= \left(a \, \mathit{prey} - b \, \mathit{prey} \, \mathit{predator}\right) "
        r"\mathrm{d}t + " + first + " \\\\\n"
        r"\mathrm{d} \mathit{predator} &= "
        r"\left(-c \, \mathit{predator} + d \, \mathit{prey} \, \mathit{predator}\right) \mathrm{d}t + "
        + second
        + "\n\\end{aligned}"
    )


def test_latex_of_a_function_is_the_general_form():
    assert model(states=["x_1"]).latex() == (
        r"\mathrm{d}\mathbf{x} = f(t, \mathbf{x}, \theta) \,\mathrm{d}t + G \,\mathrm{d}\mathbf{w}, "
        r"\quad \mathbf{x} = (x_{1})^\top"
    )
