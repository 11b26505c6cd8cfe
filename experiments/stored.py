"""Rows as every experiment here keeps them: CSV, within bzip2 where the name says so (.csv.bz2)."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from sdefit import result
from sdefit.bench import provenance

WARNINGS = {one.name for one in vars(result).values() if isinstance(one, result.Status) and one.severity == "warning"}


def read(paths: Sequence[Path]) -> pd.DataFrame:
    return pd.concat([pd.read_csv(path) for path in paths])


def write(rows: pd.DataFrame, path: Path, digits: int = 6) -> None:
    """The same rows give the same bytes: neither CSV nor bzip2 holds a time or a name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows.to_csv(path, index=False, float_format=f"%.{digits}g", lineterminator="\n")


def signed(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with what made them."""
    return rows.assign(**{name: provenance.facts()[name] for name in ("commit", "dirty", "source")})


def failed(status: pd.Series) -> pd.Series:
    """Whether each fit failed: one with a warning did not, it is the optimum that was asked for."""
    return ~status.isin({"ok", *WARNINGS})
