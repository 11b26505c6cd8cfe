"""AReS on data whose answer is known: units, what it keeps of the game, a critic that cannot live, and its recipe."""

import dataclasses
import functools

import numpy as np
import pytest

from contract import KEY, TIMES, is_finite, ou_series, quick, relaxing
from sdefit.data import Series
from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import fixed
from sdefit.errors import ModelError
from sdefit.fitting import Fit, fit
from sdefit.methods.ares import AReS

METHOD = quick("ares")  # settings, model and shape of the contract suite wherever possible: programs are shared


@functools.cache
def ou_fit() -> Fit:
    return fit(relaxing(), ou_series(1), METHOD, key=KEY)


def numbers(found: Fit) -> np.ndarray:
    """Every estimate of a fit in one row: θ, G, σ."""
    return np.concatenate([list(found.params.values()), found.G.ravel(), found.noise])


def test_it_keeps_the_way_it_went():
    """The distance and θ after every step until the game ends, and both roads to ż before and after."""
    found = ou_fit()
    loss, theta = found.trace["loss"], found.trace["theta"]
    assert loss.shape == (METHOD.steps,) and theta.shape == (METHOD.steps, 2)
    steps = int(np.isfinite(loss).sum())
    assert found.status.ok and 75 <= steps < METHOD.steps and found.trace["restarts"] == 0
    assert np.all(np.isfinite(theta[:steps])) and np.all(np.isnan(theta[steps:])) and np.all(np.isnan(loss[steps:]))
    assert np.all(theta[:steps, 0] > 0)
    data, before, after = (found.trace[f"derivatives_{name}"] for name in ("data", "model_before", "model_after"))
    assert data.shape == before.shape == after.shape == (16, 1, TIMES, 1)

    def apart(one):
        return np.mean((np.mean(one, axis=0) - np.mean(data, axis=0)) ** 2)

    assert apart(after) < apart(before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("time", "state", "factors"), [(60.0, 1.0, [1 / 60, 1, 60**-0.5, 1]), (1 / 3600, 1e-6, [3600, 1e-6, 60e-6, 1e-6])]
)
def test_estimates_turn_with_the_units(time, state, factors):
    """Rate, level, G and σ of the same data in other units, to 1e-3: the critic has seven digits."""
    one = ou_series(1)
    found = fit(relaxing(), Series(one.times * time, one.values * state), METHOD, key=KEY)
    np.testing.assert_allclose(numbers(found), numbers(ou_fit()) * factors, rtol=1e-3)


def test_a_critic_that_cannot_live_is_a_status():
    """Weights clipped at 1e-30 leave no slope: every replacement dies too, and the status says so."""
    method = AReS(samples=32, batch=16, starts=2, critic_steps=1, refinements=0, clip=1e-30)
    found = fit(relaxing(), ou_series(1), method, key=KEY)
    assert found.status.name == "dead_critic" and "sf.MaRS()" in found.status.remedy
    assert found.trace["restarts"] == method.restarts
    assert is_finite(found)


@pytest.mark.slow
def test_the_recipe_of_the_paper():
    """All steps are played, each at most √10 learning rates long (Adam's b2 is .9), and θ, still moving, is not ok."""
    method = dataclasses.replace(AReS.paper("ou"), steps=100, critic_steps=5)
    found = fit(relaxing(), ou_series(1), method, key=KEY, start={"rate": 0.4, "level": 2.0})
    loss, theta = found.trace["loss"], found.trace["theta"]
    assert loss.shape == (100,) and np.all(np.isfinite(loss)) and is_finite(found)
    np.testing.assert_allclose(theta[-1], list(found.params.values()))
    assert found.status.name == "not_converged"
    moves = np.abs(np.diff(np.column_stack([np.log(theta[:, 0]), theta[:, 1]]), axis=0))
    assert np.all(moves <= 1e-3 * np.sqrt(10) * (1 + 1e-5)) and np.all(moves.mean(axis=0) > 1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "cubic"}, "kernel must be one of .*, not 'cubic'"),
        ({"samples": 7}, "samples must be even .*, not 7"),
        ({"batch": 48}, r"batch must be even and divide samples \(256\), not 48"),
        ({"batch": 0}, "batch must be a whole number of at least 2, not 0"),
        ({"steps": 0}, "steps must be a whole number of at least 1, not 0"),
        ({"critic_steps": True}, "critic_steps must be a whole number of at least 1, not True"),
        ({"restarts": -1}, "restarts must be a whole number of at least 0, not -1"),
        ({"critic_rate": 0.0}, "critic_rate must be a number above 0, not 0.0"),
        ({"clip": -0.01}, "clip must be a number above 0, not -0.01"),
        ({"penalty": -1.0}, "penalty must be 0 or a number above it, not -1.0"),
        ({"tolerance": float("nan")}, "tolerance must be 0 or a number above it, not nan"),
    ],
)
def test_bad_settings_are_refused_in_one_line(settings, message):
    with pytest.raises(ModelError, match=message) as refusal:
        AReS(**settings)
    assert "\n" not in str(refusal.value)


def test_a_model_without_free_parameters_is_refused():
    model = equations("dx = rate*(1 - x)", params={"rate": fixed(0.8)})
    with pytest.raises(ModelError, match="AReS needs one or more free parameters, but all are fixed"):
        fit(model, ou_series(1), METHOD, key=KEY)
