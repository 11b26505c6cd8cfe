"""Programs that outlive their process: found again by all they depend on, in files that nobody else can write."""

import contextlib
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from test_files import Faulty, Killed

import sdefit.files
from sdefit.data import Series, standardise
from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import Parameter, positive, real
from sdefit.dynamics.sde import SDE
from sdefit.errors import InputError
from sdefit.methods.moments import Moments
from sdefit.programs import disk, keys
from sdefit.programs.compiled import Programs, compilation

MODEL = equations("dx = rate*(level - x)")
METHOD = Moments()
KEY = jax.random.key(3)
TRACED: list[str] = []


def program(model, method, pool, key):
    TRACED.append("once more")
    noise = jax.random.normal(key, pool.values.shape)
    root = jnp.linalg.cholesky(2 * jnp.eye(3))  # LAPACK, which a new process must set up by itself
    ordered = jnp.sort(noise.ravel())  # a program with a sort can be packed only before it runs
    slope = model.f(pool.times[0, 0], pool.values[0, 0], jnp.full(len(model.free), 0.5))
    return {"pool": pool, "sum": jnp.sum(pool.values * noise) + root[0, 0] + ordered[1], "slope": slope}


program.__module__ = "sdefit.program"  # only functions of the package are told by their names


def pool_of(rows: int):
    times = np.arange(float(rows))
    return standardise([Series(times, np.sin(times)[:, None], ["x"])])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The folder of programs, which is not there yet."""
    monkeypatch.setenv("SDEFIT_CACHE", "on")
    monkeypatch.setenv("SDEFIT_CACHE_DIR", str(tmp_path / "programs"))
    return tmp_path / "programs"


def asked(model=MODEL, method=METHOD, rows=6, function=program):
    """What the program says, and whether it had to be traced, in a store of programs that knows nothing yet."""
    programs = Programs()
    before = len(TRACED)
    value = programs.run(function, model, method, pool_of(rows), KEY).value
    programs._compilers.shutdown()
    return value, len(TRACED) - before


def files(folder):
    return sorted(folder.glob("*.program"))


def test_a_program_is_found_again(folder):
    first, traced = asked()
    assert traced == 1
    again, traced = asked()
    assert traced == 0
    assert again["sum"] == first["sum"]
    assert type(again["pool"]) is type(first["pool"])
    np.testing.assert_array_equal(again["pool"].values, first["pool"].values)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [file.stat().st_mode & 0o777 for file in files(folder)] == [0o600]


OTHERS = {
    "shapes": {"rows": 7},
    "settings": {"method": Moments(starts=7)},
    "equations": {"model": equations("dx = rate*(level - 2*x)")},
    "ranges": {"model": equations("dx = rate*(level - x)", {"rate": positive()})},
    "fixed": {"model": equations("dx = rate*(level - x)", {"rate": 2.0})},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_another_program_is_not_taken_for_it(folder, other):
    asked()
    assert asked(**other)[1] == 1
    assert len(files(folder)) == 2


@pytest.mark.parametrize("setting", ["jax_default_matmul_precision", "jax_threefry_partitionable"])
def test_settings_of_jax_belong_to_the_key(folder, setting):
    before = getattr(jax.config, setting)
    asked()
    try:
        jax.config.update(setting, "highest" if setting.endswith("precision") else not before)
        assert asked()[1] == 1
    finally:
        jax.config.update(setting, before)
    assert len(files(folder)) == 2
    assert asked()[1] == 0


def test_quick_programs_are_others(folder):
    asked()
    with compilation(quick=True):
        assert asked()[1] == 1
        assert asked()[1] == 0
    assert len(files(folder)) == 2


def linear(t, x, p):
    return p["rate"] * (p["level"] - x)


RANGES = {"rate": real(), "level": real()}


def python_model(drift):
    return SDE(drift, ["x"], RANGES)


def scaled(factor):
    return lambda t, x, p: factor * p["rate"] * (p["level"] - x)


def table(values):
    numbers = np.array(values)
    return lambda t, x, p: p["rate"] * (p["level"] - x) * jnp.sum(jnp.where(t > 1, jnp.sin(t + numbers), numbers))


def test_a_python_drift_is_known_by_its_trace(folder):
    """Two functions of one name are told apart by what they do, down to the last bit of a constant."""
    drifts = [linear, scaled(2.0), scaled(2.0 + 2**-50), table([1.0, 2.0, 3.0]), table([1.0, 2.0, 3.0 + 2**-50])]
    slopes = [asked(python_model(one))[0]["slope"] for one in drifts]
    assert len(files(folder)) == len(drifts)
    same = [linear, scaled(2.0), scaled(2.0 + 2**-50), table([1.0, 2.0, 3.0]), table([1.0, 2.0, 3.0 + 2**-50])]
    for drift, slope in zip(same, slopes, strict=True):
        again, traced = asked(python_model(drift))
        assert traced == 0
        np.testing.assert_array_equal(again["slope"], slope)
    assert slopes[1] != slopes[2]


@jax.custom_jvp
def clipped(x):
    return x


def test_a_drift_with_derivatives_of_its_own_is_known_by_its_whole_program(folder):
    """Its trace does not say what its derivative is; the lowered program does."""
    clipped.defjvp(lambda x, dx: (x[0], 2 * dx[0]))
    model = python_model(lambda t, x, p: clipped(p["rate"] * (p["level"] - x)))
    assert keys.of_request(program, model, METHOD, (pool_of(6), KEY), False) is None
    first, _ = asked(model)
    assert len(files(folder)) == 1
    again, traced = asked(model)
    assert traced == 1
    np.testing.assert_array_equal(again["slope"], first["slope"])
    assert len(files(folder)) == 1


def test_a_prior_is_known_by_the_whole_program(folder):
    asked(equations("dx = rate*(level - x)", {"rate": Parameter(prior=dist.Gamma(2.0, 1.0))}))
    assert len(files(folder)) == 1


def test_a_program_that_calls_python_is_not_kept(folder):
    def shout(x):
        return np.asarray(x) * 2

    def drift(t, x, p):
        return jax.pure_callback(shout, jax.ShapeDtypeStruct(x.shape, x.dtype), p["rate"] * x + p["level"])

    asked(python_model(drift))
    assert not folder.exists()


def test_a_function_from_elsewhere_is_not_known_by_its_name():
    def local(model, method, pool, key):
        return pool.values

    assert keys.of_request(local, MODEL, METHOD, (pool_of(6), KEY), False) is None


DAMAGES = {
    "cut": lambda data: data[:-9],
    "one byte": lambda data: data[:99] + bytes([data[99] ^ 1]) + data[100:],
    "empty": lambda _: b"",
    "noise": lambda data: os.urandom(len(data)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_made_anew(folder, damage):
    first, _ = asked()
    (file,) = files(folder)
    file.write_bytes(damage(file.read_bytes()))
    again, traced = asked()
    assert (traced, again["sum"]) == (1, first["sum"])
    assert asked()[1] == 0


def test_a_file_in_anothers_place_is_not_taken(folder):
    """A whole file under the key of another model is missing, not that other model's numbers."""
    first, _ = asked()
    (file,) = files(folder)
    other = OTHERS["equations"]
    expected, _ = asked(**other)
    (second,) = set(files(folder)) - {file}
    second.write_bytes(file.read_bytes())
    again, traced = asked(**other)
    assert (traced, again["slope"]) == (1, expected["slope"])
    assert again["slope"] != first["slope"]


class Planted:
    def __reduce__(self):
        return (Path.touch, (Path("planted"),))


def test_what_is_planted_is_not_run(folder, tmp_path, monkeypatch):
    """Even a file with the right digest, in the right folder: there is nothing that runs on reading."""
    monkeypatch.chdir(tmp_path)
    asked()
    (file,) = files(folder)
    key, pickled = file.stem, pickle.dumps(Planted())
    file.write_bytes(hashlib.sha256(pickled).digest() + pickled)
    assert asked()[1] == 1
    for shapes in (pickled, json.dumps({"class": "os:system", "fields": []}).encode()):
        body = shapes + b"\n" + pickled
        file.write_bytes(hashlib.sha256(key.encode() + body).digest() + body)
        assert asked()[1] == 1
    assert not Path("planted").exists()


def test_a_folder_that_others_may_enter_is_not_used(folder):
    asked()
    folder.chmod(0o755)
    assert asked()[1] == 1
    assert asked(rows=7)[1] == 1
    assert len(files(folder)) == 1
    folder.chmod(0o700)
    assert asked()[1] == 0


def test_a_file_that_others_may_write_is_not_used(folder):
    asked()
    files(folder)[0].chmod(0o666)
    assert asked()[1] == 1


def test_links_are_not_followed(folder, tmp_path):
    asked()
    (file,) = files(folder)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert asked()[1] == 1
    folder.rename(tmp_path / "other")
    folder.symlink_to(tmp_path / "other", target_is_directory=True)
    assert asked()[1] == 1


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may give folders away")
def test_a_folder_of_somebody_else_is_not_used(folder):
    asked()
    os.chown(folder, 65534, 65534)
    assert asked()[1] == 1
    os.chown(folder, 0, 0)
    os.chown(files(folder)[0], 65534, 65534)
    assert asked()[1] == 1


def test_a_folder_that_cannot_be_made_is_harmless(tmp_path, monkeypatch):
    (tmp_path / "taken").write_text("a file where a folder should be")
    monkeypatch.setenv("SDEFIT_CACHE_DIR", str(tmp_path / "taken" / "programs"))
    assert asked()[1] == 1


def test_the_environment_chooses(monkeypatch, tmp_path):
    monkeypatch.delenv("SDEFIT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert disk.folder() == tmp_path / "sdefit" / "programs"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says its specification
    monkeypatch.setenv("HOME", str(tmp_path))
    assert disk.folder() == tmp_path / ".cache" / "sdefit" / "programs"
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError))
    assert disk.folder() is None
    monkeypatch.setenv("SDEFIT_CACHE", "off")
    assert disk.folder() is None
    monkeypatch.setenv("SDEFIT_CACHE", "no")
    with pytest.raises(InputError, match="SDEFIT_CACHE must be on or off, not 'no'"):
        disk.folder()


def test_the_folder_does_not_grow_for_ever(folder, monkeypatch):
    monkeypatch.setattr(disk, "_MOST_FILES", 2)
    for rows in range(4, 8):
        asked(rows=rows)
    assert len(files(folder)) == 2
    assert asked(rows=7)[1] == 0
    monkeypatch.setattr(disk, "_MOST_BYTES", int(1.5 * files(folder)[0].stat().st_size))
    asked(rows=8)
    assert len(files(folder)) == 1


def test_what_was_used_last_goes_last(folder, monkeypatch):
    for rows in (4, 5):
        asked(rows=rows)
    for file in files(folder):
        os.utime(file, (0, 0))
    assert asked(rows=4)[1] == 0
    monkeypatch.setattr(disk, "_MOST_FILES", 2)
    asked(rows=6)
    assert asked(rows=4)[1] == 0
    assert asked(rows=5)[1] == 1


def test_drafts_of_killed_writers_go_and_nothing_else(folder):
    asked()
    stem = files(folder)[0].stem
    names = (f"{stem}.{'a' * 16}.draft", f"{stem}.{'b' * 16}.draft", "notes.txt")
    old, new, strange = (folder / name for name in names)
    for file in (old, new, strange):
        file.write_text("mine")
    long_ago = time.time() - 7200
    for file in (old, strange):
        os.utime(file, (long_ago, long_ago))
    asked(rows=7)
    assert (old.exists(), new.exists(), strange.exists()) == (False, True, True)


@pytest.mark.parametrize("kind", ["full disk", "short", "killed before", "killed after"])
def test_a_fault_at_any_system_call_is_a_missing_program(folder, monkeypatch, kind):
    """What is read afterwards is whole or missing, what was there stays, and no draft is left but by a kill."""
    old, new, data, at, reached = "a" * 64, "b" * 64, bytes(range(256)), 0, True
    while reached:
        disk.write(folder, old, data)
        faulty = Faulty(kind, at)
        for module in (disk, sdefit.files):
            monkeypatch.setattr(module, "os", faulty)
        with contextlib.suppress(Killed):
            disk.write(folder, new, data)
        for module in (disk, sdefit.files):
            monkeypatch.setattr(module, "os", os)
        reached, at = faulty.calls > faulty.at, at + 1
        assert disk.read(folder, old) == data and disk.read(folder, new) in (None, data)
        assert not list(folder.glob("*.draft")) or kind.startswith("killed")
        disk.write(folder, new, data)
        assert disk.read(folder, new) == data
        shutil.rmtree(folder)
    assert at > 5


def test_a_full_disk_is_no_error(folder, monkeypatch):
    def full(*given, **named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert asked()[1] == 1
    assert list(folder.iterdir()) == []


MODELS = ('sf.equations("dx = rate*(level - x)")', 'sf.SDE(drift, ["x"], {"rate": 1.0, "level": sf.real()})')


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_second_process_compiles_nothing_and_gives_the_same_bits(folder, model):
    code = f"""
import jax, numpy as np, sdefit as sf
def drift(t, x, p): return p["rate"] * (p["level"] - x)
series = sf.Series(np.arange(30.0), np.sin(np.arange(30.0))[:, None], ["x"])
before = dict(jax.config.values)
fit = sf.fit({model}, series, sf.Moments(), key=jax.random.key(0))
assert dict(jax.config.values) == before
print(fit.params["level"].hex(), fit.compile_seconds)
"""
    environment = os.environ | {"PYTHONPATH": str(Path(sdefit.__file__).parents[1])}
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment).stdout
        for _ in range(2)
    ]
    (first, made), (again, loaded) = (run.split() for run in runs)
    assert again == first
    assert float(loaded) < 0.5 * float(made)
    assert len(files(folder)) == 1
