"""Tables, figures and one HTML page, from what is stored; a report never computes a result again.

`write_fit(record, path)` writes the page of a fit; `plot_fit(record, kind)` gives one figure of it.
`write_comparison(folder)` and `write_run(folder)` write the pages of `sdefit compare` and `sdefit reproduce`.
"""

from sdefit.report.comparison import write_comparison as write_comparison
from sdefit.report.fit import needs as needs
from sdefit.report.fit import plot_fit as plot_fit
from sdefit.report.html import write_fit as write_fit
from sdefit.report.html import write_page as write_page
from sdefit.report.reproduction import write_run as write_run
