"""Array aliases and the axis words used in every shape annotation.

Axis words, one per idea: `series`, `samples`, `times`, `state`, `params`. Time is the first axis of a
single series, after `series` and `samples` where those are present.
"""

from collections.abc import Mapping
from typing import TypeAlias

import jax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

Key: TypeAlias = PRNGKeyArray
Seed: TypeAlias = int | jax.Array  # what a user gives as `key`; `dynamics.arguments.as_key` makes a `Key` of it
Scalar: TypeAlias = Float[Array, ""]
Times: TypeAlias = Float[Array, "times"]
Theta: TypeAlias = Float[Array, "params"]
Path: TypeAlias = Float[Array, "times state"]
Trace: TypeAlias = Mapping[str, Array]

__all__ = [
    "Array",
    "Bool",
    "Float",
    "Int",
    "Key",
    "Path",
    "Scalar",
    "Seed",
    "Theta",
    "Times",
    "Trace",
]
