"""How far a fit can be trusted: `intervals` with their verdict, `profile` likelihoods, and a `forecast`.

From the ground up: `bootstrap` (data simulated from a fit and fitted again), `quantities` (what gets an interval),
`errors` (standard errors from a method's own information), `ends` (of intervals), `verdict` (identified or not),
`intervals`.
"""

from sdefit.uncertainty.forecast import Forecast as Forecast
from sdefit.uncertainty.forecast import forecast as forecast
from sdefit.uncertainty.intervals import Intervals as Intervals
from sdefit.uncertainty.intervals import degrees_of_freedom as degrees_of_freedom
from sdefit.uncertainty.intervals import intervals as intervals
from sdefit.uncertainty.profile import Profile as Profile
from sdefit.uncertainty.profile import profile as profile
