"""Compiled programs: one compilation per (model, settings, shapes), kept for the next call and the next process."""

from sdefit.programs.compiled import PROGRAMS as PROGRAMS
from sdefit.programs.compiled import Run as Run
from sdefit.programs.compiled import compilation as compilation
