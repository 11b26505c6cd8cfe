"""Every test runs in float64, with shapes checked, rank promotion refused and warnings as errors."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Nearly all of the suite's time is compilation of programs that then run once on a few numbers.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
# Tests change constants of the package; a program made so must not be found by another process.
os.environ["SDEFIT_CACHE"] = "off"

import jax
import jaxtyping
import pytest
from hypothesis import settings

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

# Rooms whose functions take arrays only. The rooms a user calls check their own input, with messages that the
# tests pin, so no type checker may answer first there. The hook must stand before the first import of sdefit.
ARRAY_ROOMS = ["ssm", "gp", "matching", "inference", "optimise", "result", "methods"]
jaxtyping.install_import_hook([f"sdefit.{room}" for room in ARRAY_ROOMS], "beartype.beartype")

from sdefit.programs.compiled import crowded  # noqa: E402  # after the hook

# The same examples in every run: a failure can be repeated, and nothing is remembered between runs.
settings.register_profile("sdefit", deadline=None, database=None, derandomize=True)
settings.load_profile("sdefit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs an accelerator where there is none."""
    if jax.default_backend() != "cpu":
        return
    skip = pytest.mark.skip(reason="no accelerator on this machine")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def _room_for_programs() -> Iterator[None]:
    """Drop what `jax.jit` compiled for earlier tests, where the memory mappings of the process run short."""
    yield
    if crowded():
        jax.clear_caches()
        gc.collect()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep together what shares compiled programs: a file, or what of it is of one method, in the docs a page."""
    from xdist.scheduler import LoadScopeScheduling

    from sdefit import methods

    class ByShare(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, test = nodeid.partition("::")
            stem, case = Path(file).stem, test.partition("[")[2].rstrip("]")
            if stem in ("test_docs", "test_tutorials"):
                return f"{stem} {case}"
            return next((f"{stem} {word}" for word in case.split("-") if word in methods.names()), stem)

    return ByShare(config, log)
