"""Results on disk: a `Record` in one NetCDF file, and `Results`, an append-only folder of many rows."""

from sdefit.store.findings import read_finding as read_finding
from sdefit.store.record import Record as Record
from sdefit.store.record import axes as axes
from sdefit.store.record import padded as padded
from sdefit.store.record import plain as plain
from sdefit.store.record import read as read
from sdefit.store.record import write as write
from sdefit.store.results import Results as Results
