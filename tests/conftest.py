"""Every test runs in float64, with shapes checked, rank promotion refused and warnings as errors."""

import os

# Nearly all of the suite's time is compilation of programs that then run once on a few numbers.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import jax
import jaxtyping
import pytest
from hypothesis import settings

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

# Rooms whose functions take arrays only. The rooms a user calls check their own input, with messages that the
# tests pin, so no type checker may answer first there. The hook must stand before the first import of sdefit.
ARRAY_ROOMS = ["gp", "matching", "filtering", "optimise", "result", "methods"]
jaxtyping.install_import_hook([f"sdefit.{room}" for room in ARRAY_ROOMS], "beartype.beartype")

# The same examples in every run: a failure can be repeated, and nothing is remembered between runs.
settings.register_profile("sdefit", deadline=None, database=None, derandomize=True)
settings.load_profile("sdefit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together what shares compiled programs, and skip what needs an accelerator where there is none."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    if jax.default_backend() != "cpu":
        return
    skip = pytest.mark.skip(reason="no accelerator on this machine")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


def _group(item: pytest.Item) -> str:
    """The worker's share a test belongs to: its file, in the contract suite its method, in the docs its page."""
    if "docs" in item.keywords:
        return item.nodeid.partition("[")[2].rstrip("]") or item.path.stem
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return f"{item.path.stem}-{params.get('name', '')}" if item.path.stem == "test_contract" else item.path.stem
