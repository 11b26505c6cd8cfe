"""Known inputs u(t) between the times at which they were given.

A table of inputs is a pair of its times and of a mapping of names to values at these times, both with a leading
axis of series inside a `Pool`. It is made of plain tuples and dicts, so that a program that takes it can be kept.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import jax.numpy as jnp

from sdefit._types import Array, Scalar

Hold = Literal["linear", "previous"]
Table: TypeAlias = tuple[Array, dict[str, Array]]


class TimeWithInputs(NamedTuple):
    """A time at which a drift is wanted, and the inputs of the series that it belongs to.

    `time` is the user's; `own` is the same time on the clock of the table.
    """

    time: Scalar
    own: Scalar
    table: Table

    def inputs(self, names: Sequence[str], hold: Hold) -> dict[str, Any]:
        """The inputs of these names now: on the line between two rows, or as at the row before.

        The first value holds before the first row and the last one after the last. Rows that repeat the last
        time, as those beyond the end of a shorter series do, change nothing.
        """
        times, values = self.table
        row = jnp.clip(jnp.searchsorted(times, self.own, side="right") - 1, 0, times.size - 1)
        if hold == "previous":
            return {name: values[name][row] for name in names}
        following = jnp.minimum(row + 1, times.size - 1)
        gap = times[following] - times[row]
        fraction = jnp.where(gap > 0, jnp.clip((self.own - times[row]) / jnp.where(gap > 0, gap, 1.0), 0.0, 1.0), 0.0)
        return {name: values[name][row] + fraction * (values[name][following] - values[name][row]) for name in names}
