"""Programs that outlive their process: found again by all they were made from, never in anyone's way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdefit.data import Series, standardise
from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import positive, real
from sdefit.dynamics.sde import SDE
from sdefit.methods._driver import Programs
from sdefit.methods.moments import Moments

MODEL = equations("dx = rate*(level - x)")
METHOD = Moments()
KEY = jax.random.key(3)
TRACED: list[str] = []


def program(model, method, pool, key):
    TRACED.append("once more")
    noise = jax.random.normal(key, pool.values.shape)
    root = jnp.linalg.cholesky(2 * jnp.eye(3))  # LAPACK, which a new process must set up by itself
    ordered = jnp.sort(noise.ravel())  # a program with a sort can be packed only before it runs
    return {"pool": pool, "sum": jnp.sum(pool.values * noise) + root[0, 0] + ordered[1]}


def pool_of(rows: int):
    times = np.arange(float(rows))
    return standardise([Series(times, np.sin(times)[:, None], ["x"])])


def asked(folder, model=MODEL, method=METHOD, rows=6):
    """What the program says, and whether it had to be traced, in a store of programs that knows nothing yet."""
    programs = Programs()
    programs.folder = folder
    before = len(TRACED)
    value = programs.run(program, model, method, pool_of(rows), KEY).value
    programs._compilers.shutdown()
    return value, len(TRACED) - before


def test_a_program_is_found_again(tmp_path):
    first, traced = asked(tmp_path)
    assert traced == 1
    again, traced = asked(tmp_path)
    assert traced == 0
    assert again["sum"] == first["sum"]
    assert type(again["pool"]) is type(first["pool"])
    np.testing.assert_array_equal(again["pool"].values, first["pool"].values)


@pytest.mark.parametrize(
    "other",
    [
        {"rows": 7},
        {"method": Moments(starts=7)},
        {"model": equations("dx = rate*(level - 2*x)")},
        {"model": equations("dx = rate*(level - x)", {"rate": positive()})},
    ],
    ids=["shapes", "settings", "equations", "ranges"],
)
def test_another_program_is_not_taken_for_it(tmp_path, other):
    asked(tmp_path)
    assert asked(tmp_path, **other)[1] == 1
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:99] + b"?" + data[100:], lambda _: b""])
def test_a_damaged_file_is_made_anew(tmp_path, damage):
    first, _ = asked(tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    again, traced = asked(tmp_path)
    assert (traced, again["sum"]) == (1, first["sum"])
    assert asked(tmp_path)[1] == 0


def test_a_function_of_python_is_not_kept(tmp_path):
    model = SDE(lambda x, p: p.rate * (p.level - x), ["x"], {"rate": real(), "level": real()})
    asked(tmp_path, model)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_harmless(tmp_path):
    (tmp_path / "taken").write_text("a file where a folder should be")
    assert asked(tmp_path / "taken" / "programs")[1] == 1


def test_the_folder_does_not_grow_for_ever(tmp_path, monkeypatch):
    from sdefit.methods import _kept

    monkeypatch.setattr(_kept, "_MOST", 2)
    for rows in range(4, 8):
        asked(tmp_path, rows=rows)
    assert len(list(tmp_path.iterdir())) == 2
    assert asked(tmp_path, rows=7)[1] == 0
