"""Closed forms of noise that depends on its own state."""

from sdefit.dynamics.noise_shapes.one_sided import Linear as Linear
from sdefit.dynamics.noise_shapes.one_sided import NamedPower as NamedPower
from sdefit.dynamics.noise_shapes.one_sided import Power as Power
from sdefit.dynamics.noise_shapes.shape import NoiseShape as NoiseShape
from sdefit.dynamics.noise_shapes.shape import array_module as array_module
from sdefit.dynamics.noise_shapes.two_sided import Hyperbolic as Hyperbolic
from sdefit.dynamics.noise_shapes.two_sided import Jacobi as Jacobi
from sdefit.dynamics.noise_shapes.two_sided import Logistic as Logistic
