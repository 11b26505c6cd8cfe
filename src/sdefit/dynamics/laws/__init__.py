"""Observation laws: how what is measured is distributed about h(t, x, θ)."""

from sdefit.dynamics.laws.law import Law as Law
from sdefit.dynamics.laws.law import Spread as Spread
from sdefit.dynamics.laws.lognormal import Lognormal as Lognormal
from sdefit.dynamics.laws.normal import Normal as Normal

LAWS: dict[str, type[Law]] = {one.name: one for one in (Normal, Lognormal)}


def normal(sd: Spread = None) -> Normal:
    """Normal observation noise: y = h(t, x) + e, e ~ N(0, sd²).

    **Arguments**
    - `sd`: the standard deviation: None if it is to be estimated, a number if it is known, or a formula. A formula may
      name states, parameters and inputs: `sd="s*x"` grows with the state, `sd="se"` is a column of standard errors
      (an input of the model). In `sf.SDE` a callable `sd(t, x, p)` stands for a formula.

    >>> sf.equations("dx = rate*(level - x)", noise={"x": sf.normal(sd=0.1)}).observations
    ('x',)
    """
    return Normal(sd)


def lognormal(sd: Spread = None) -> Lognormal:
    """Multiplicative observation noise: log y = log h(t, x) + e, e ~ N(0, sd²); y and h must be positive.

    **Arguments**
    - `sd`: the standard deviation of log y, as for `sf.normal`.

    >>> model = sf.equations("dx = a*x*dt + s*x*dw", noise={"x": "lognormal"})
    >>> model.laws[0].name
    'lognormal'
    """
    return Lognormal(sd)
