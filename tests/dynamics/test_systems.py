"""The four systems: their formulas, truths, names and set-ups."""

import jax
import numpy as np
import pytest

from sdefit.dynamics import systems
from sdefit.errors import ModelError

MODELS = {
    "ornstein_uhlenbeck": (systems.ornstein_uhlenbeck, "ou"),
    "double_well": (systems.double_well, "dw"),
    "lotka_volterra": (systems.lotka_volterra, "lv"),
    "lorenz63": (systems.lorenz63, "l63"),
}


def formula(name, x, th):
    """The drifts of the paper, θ by number."""
    match name:
        case "ornstein_uhlenbeck":
            return [th[0] * (th[1] - x[0])]
        case "double_well":
            return [th[0] * x[0] * (th[1] - x[0] ** 2)]
        case "lotka_volterra":
            return [th[0] * x[0] - th[1] * x[0] * x[1], -th[2] * x[1] + th[3] * x[0] * x[1]]
        case _:
            return [th[0] * (x[1] - x[0]), x[0] * (th[1] - x[2]) - x[1], x[0] * x[1] - th[2] * x[2]]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_drift_is_the_formula_of_the_paper(name, seed):
    model = MODELS[name][0]()
    rng = np.random.default_rng(seed)
    x, theta = rng.normal(size=len(model.states)), rng.uniform(0.5, 2.0, size=len(model.free))
    answer = model.f(jax.numpy.zeros(()), jax.numpy.asarray(x), jax.numpy.asarray(theta))
    np.testing.assert_allclose(answer, formula(name, x, theta), rtol=1e-13)


@pytest.mark.parametrize("name", MODELS)
def test_a_full_name_and_a_short_one_give_the_same_set_up(name):
    make, short = MODELS[name]
    assert systems.get(name) is systems.get(short)
    assert systems.get(name).model == make() and hash(systems.get(name).model) == hash(make())
    assert make().name == name


def test_states_parameters_and_diffusion():
    made = {name: make() for name, (make, _) in MODELS.items()}
    assert {n: m.states for n, m in made.items()} == {
        "ornstein_uhlenbeck": ("x",),
        "double_well": ("x",),
        "lotka_volterra": ("prey", "predator"),
        "lorenz63": ("x", "y", "z"),
    }
    assert {n: {k: str(p) for k, p in m.params.items()} for n, m in made.items()} == {
        "ornstein_uhlenbeck": {"rate": "positive", "level": "real"},
        "double_well": {"a": "real", "b": "real"},
        "lotka_volterra": dict.fromkeys("abcd", "positive"),
        "lorenz63": dict.fromkeys(("sigma", "rho", "beta"), "positive"),
    }
    assert [m.diffusion for m in made.values()] == ["full", "full", "full", "scalar"]


def test_the_truths_are_those_of_the_study():
    rows = {
        name: (*s.params.values(), s.G.tolist(), s.x0.tolist(), s.times[-1], len(s.times), s.noise)
        for name, s in systems.setups().items()
    }
    lv_G, l63_G = [[0.2, 0.0], [0.1, 0.3]], (np.sqrt(10.0) * np.eye(3)).tolist()
    assert rows == {
        "ou": (0.5, 1.0, [[0.5]], [10.0], 20.0, 51, 0.0),
        "dw": (0.1, 4.0, [[0.5]], [0.0], 20.0, 51, 0.2),
        "dw_code": (0.1, 4.0, [[0.5]], [0.0], 20.0, 51, 0.1),
        "lv": (2.0, 1.0, 4.0, 1.0, lv_G, [5.0, 3.0], 2.0, 51, 0.1),
        "lv_noiseless": (2.0, 1.0, 4.0, 1.0, lv_G, [5.0, 3.0], 2.0, 51, 0.0),
        "lv_text": (2.0, 1.0, 4.0, 1.0, lv_G, [3.0, 5.0], 20.0, 51, 0.0),
        "l63": (10.0, 28.0, 8 / 3, l63_G, [-7.0, -7.0, -7.0], 5.0, 201, 1.0),
    }


@pytest.mark.parametrize("name", systems.setups())
def test_each_set_up_simulates(name):
    setup = systems.get(name)
    # This key's path of lv_text is one of those that stay finite.
    series = setup.simulate(key=jax.random.key(0))
    assert series.states == setup.model.states
    assert series.values.shape == (len(setup.times), len(setup.x0)) and np.all(np.isfinite(series.values))
    np.testing.assert_array_equal(series.path[0], setup.x0)
    np.testing.assert_array_equal(series.times, setup.times)
    assert np.array_equal(series.values, series.path) == (setup.noise == 0)


def test_a_set_up_gives_many_paths_and_cannot_be_changed():
    setup = systems.get("dw")
    assert len(setup.simulate(key=jax.random.key(0), paths=4, step=0.1)) == 4
    with pytest.raises(ValueError, match="read-only"):
        setup.x0[0] = 1.0


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ModelError, match=r"one of ou, dw, lv, l63, .*lotka_volterra.*, not 'lorenz'"):
        systems.get("lorenz")
