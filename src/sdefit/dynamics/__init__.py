"""Models, their parameters, simulation, and the four systems of the paper."""

from sdefit.dynamics import systems as systems
from sdefit.dynamics.equations import equations as equations
from sdefit.dynamics.parameters import Bounds as Bounds
from sdefit.dynamics.parameters import Parameter as Parameter
from sdefit.dynamics.parameters import fixed as fixed
from sdefit.dynamics.parameters import interval as interval
from sdefit.dynamics.parameters import positive as positive
from sdefit.dynamics.parameters import real as real
from sdefit.dynamics.sde import SDE as SDE
from sdefit.dynamics.simulate import simulate as simulate
