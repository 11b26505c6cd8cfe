"""`Series` in, standardised arrays out, and the way back to the user's units."""

from sdefit.data.csvfile import read_csv as read_csv
from sdefit.data.csvfile import write_csv as write_csv
from sdefit.data.frames import from_frame as from_frame
from sdefit.data.lanes import over_series as over_series
from sdefit.data.pool import LONG_GAP as LONG_GAP
from sdefit.data.pool import Pool as Pool
from sdefit.data.pool import stack as stack
from sdefit.data.pool import standardise as standardise
from sdefit.data.pool import with_times as with_times
from sdefit.data.series import Series as Series
