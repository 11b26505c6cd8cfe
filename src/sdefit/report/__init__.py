"""Tables, figures and one HTML page, from what is stored; a report never computes a result again.

`write_fit(record, path)` writes the page of a fit; `plot_fit(record, kind)` gives one figure of it.
"""

from sdefit.report.fit import plot_fit as plot_fit
from sdefit.report.html import write_fit as write_fit
from sdefit.report.html import write_page as write_page
