"""Models, data and fits that the tests of general models share: hidden states, a given diffusion, several columns."""

import functools

import numpy as np

import sdefit as sf

SPRING = "dx = v*dt\ndv = (-k*x - c*v)*dt + s*dw\nx = x"
FILTER = sf.ESGF(boundary=0.0, starts=2)  # maximum likelihood without priors, from few starts: the tests are short
TRUTH = {"k": 4.0, "c": 0.4, "s": 1.0}


def positives(*names):
    return {name: sf.positive() for name in names}


@functools.cache
def spring(text=SPRING, **settings):
    """A damped spring of which the position is seen; the same object each time, as a user would have it."""
    return sf.equations(text, params=positives("k", "c", "s"), **settings)


@functools.cache
def spring_series(rows=61, seed=1):
    return sf.simulate(spring(), TRUTH, {"x": 0.5, "v": 0.0}, np.arange(rows) * 0.1, noise=0.1, key=seed)


@functools.cache
def spring_fit():
    return sf.fit(spring(), spring_series(), FILTER)


CIR = "dx = k*(mu - x)*dt + s*sqrt(x)*dw"


@functools.cache
def square_root(**settings):
    return sf.equations(CIR, params=positives("k", "mu", "s"), **settings)


@functools.cache
def square_root_series(rows=61, mu=1.0, seed=1):
    """Far from 0 for the usual level, and near it for a low one."""
    return sf.simulate(
        square_root(), {"k": 2.0, "mu": mu, "s": 0.3}, {"x": mu}, np.arange(rows) * 0.1, noise=0.02, key=seed
    )


def values(fit):
    """All that is estimated, in the order θ, σ."""
    return np.array([*(fit.params[name] for name in fit.model.free), *fit.noise])
