"""What `sdefit` exports is a promise: adding a name is a decision, removing one breaks a user."""

import subprocess
import sys
from pathlib import Path

import pytest

import sdefit

NAMES = {
    # models
    "SDE", "equations", "read_model", "write_model", "systems", "simulate", "real", "positive", "interval", "fixed",
    "Parameter",
    # data
    "Series", "read_csv", "write_csv", "from_frame",
    # fits
    "fit", "fit_each", "load", "Fit", "States", "Status", "Intervals", "Profile", "Forecast", "Diagnosis",
    # methods
    "AReS", "Auto", "ESGF", "MaRS", "Moments", "NPSDE", "VGPA",
    # errors
    "SdefitError", "InputError", "DataError", "ModelError", "EquationError", "FileError", "SimulationError", "FitError",
}  # fmt: skip


def test_exported_names_are_pinned() -> None:
    assert set(sdefit.__all__) == NAMES
    assert set(dir(sdefit)) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_an_exported_name_is_there(name: str) -> None:
    assert getattr(sdefit, name) is not None


def test_dir_shows_the_public_names_alone() -> None:
    assert set(dir(sdefit)) == NAMES


def test_type_checkers_find_the_annotations() -> None:
    assert (Path(sdefit.__file__).parent / "py.typed").exists()


def test_a_name_that_is_not_there_is_refused() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = sdefit.no_such_name


def test_importing_leaves_the_jax_settings_of_the_user_alone() -> None:
    code = "import jax; before = dict(jax.config.values); import sdefit; sdefit.fit; assert jax.config.values == before"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_root_loads_no_numerics() -> None:
    code = "import sys, sdefit; assert 'jax' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
