"""Residuals and checks of a fit, whatever method it came from: `diagnose` gives a `Diagnosis`."""

from sdefit.diagnosis.diagnosis import Check as Check
from sdefit.diagnosis.diagnosis import Diagnosis as Diagnosis
from sdefit.diagnosis.diagnosis import check_residuals as check_residuals
from sdefit.diagnosis.diagnosis import diagnose as diagnose
