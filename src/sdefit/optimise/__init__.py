"""Two searches made for batches: BFGS on a gradient alone, Levenberg-Marquardt where there is a curvature too."""

from sdefit.optimise.bfgs import Minimum as Minimum
from sdefit.optimise.bfgs import minimise as minimise
from sdefit.optimise.levenberg_marquardt import SearchResult as SearchResult
from sdefit.optimise.levenberg_marquardt import ValueGradHessian as ValueGradHessian
from sdefit.optimise.levenberg_marquardt import levenberg_marquardt as levenberg_marquardt
from sdefit.optimise.levenberg_marquardt import log_mean_square as log_mean_square
from sdefit.optimise.levenberg_marquardt import newton_decrement as newton_decrement
from sdefit.optimise.levenberg_marquardt import not_started as not_started
