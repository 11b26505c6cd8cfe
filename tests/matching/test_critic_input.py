"""What the critic sees: standardised entries, or one unit for all as in the published code."""

import jax.numpy as jnp
import numpy as np
import pytest

from sdefit.matching.critic_input import CriticInput
from sdefit.matching.derivative_samples import DerivativeSamples


def samples_of(seed: int, unit: float = 1.0) -> DerivativeSamples:
    """Draws at uneven times, the last two rows not observed; `unit` of the user's times in one of ours."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0.0, 9.0, (1, 12)), axis=1)
    dz, x, o = rng.normal(2.0, 3.0, (3, 64, 1, 12, 2))
    seen = np.arange(12)[None] < 10
    return DerivativeSamples(*(jnp.asarray(a) for a in (dz * unit, x, o, times / unit, seen)), jnp.ones(()))


@pytest.mark.parametrize("seed", range(3))
def test_standardised_data_have_mean_0_and_spread_1(seed):
    samples = samples_of(seed)
    seen = np.asarray(CriticInput.standardised(samples)(samples.dz))
    # The square of the unit of an entry is its variance and 1e-4 of the mean square of all: 1e-4 (2² + 3²)/3² more.
    np.testing.assert_allclose(seen[:, :20].mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(seen[:, :20].std(axis=0), 1.0, rtol=2e-4)
    assert np.all(seen[:, 20:] == 0)  # rows at which nothing was observed


@pytest.mark.parametrize("seed", range(3))
def test_in_normalised_time_it_is_the_published_code_s(seed):
    """There times are divided by their standard deviation, and ż is that of standardised states over such times."""
    samples = samples_of(seed)
    seen = np.asarray(CriticInput.in_normalised_time(samples)(samples.dz)).reshape(64, 12, 2)
    expected = np.asarray(samples.dz)[:, 0, :10] * np.std(np.asarray(samples.times)[0, :10])
    np.testing.assert_allclose(seen[:, :10], expected, rtol=1e-6)
    assert np.all(seen[:, 10:] == 0)


@pytest.mark.parametrize("kind", [CriticInput.standardised, CriticInput.in_normalised_time])
def test_the_unit_of_time_leaves_no_trace(kind):
    minutes, hours = samples_of(0), samples_of(0, 60.0)
    np.testing.assert_allclose(kind(hours)(hours.dz), kind(minutes)(minutes.dz), rtol=1e-5, atol=1e-6)
