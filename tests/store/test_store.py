import os

import jax
import numpy as np
import pytest

from contract import KEY, ou_series, relaxing
from sdefit import store
from sdefit.data import Series
from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import interval, positive, real
from sdefit.dynamics.sde import SDE
from sdefit.errors import FileError, ModelError
from sdefit.fitting import fit, load
from sdefit.methods.moments import Moments

QUICK = Moments(starts=4, iterations=40)


def small_record() -> store.Record:
    arrays = {
        "times": (("series", "time"), np.linspace(0, 1, 8).reshape(2, 4)),
        "observed": (("series", "time"), np.arange(8).reshape(2, 4) % 3 > 0),
        "G": (("state", "state_2"), np.array([[1.0, 0.0], [np.nan, np.inf]])),
        "count": ((), np.array(3)),
        "key": (("key_0",), np.array([1, 2**32 - 1], dtype=np.uint32)),
        "none": (("none_0",), np.zeros(0)),
    }
    facts = {"kind": "test", "text": 'θ "quoted"\nsecond line', "list": [1, 2.5, None, True], "nested": {"a": {"b": 1}}}
    return store.Record(arrays, facts, {"state": ("x", "préy"), "state_2": ("x", "préy")})


@pytest.fixture(scope="module")
def found():
    return fit(relaxing(), ou_series(1), QUICK, key=KEY)


@pytest.fixture
def saved(found, tmp_path):
    path = tmp_path / "fit.nc"
    found.save(path)
    return path


def test_record_comes_back(tmp_path):
    record = small_record()
    store.write(record, tmp_path / "a.nc")
    again = store.read(tmp_path / "a.nc")
    assert again.facts == record.facts
    assert again.coordinates == record.coordinates
    assert again.arrays.keys() == record.arrays.keys()
    for name, (dims, array) in record.arrays.items():
        assert again.arrays[name][0] == dims
        assert again[name].dtype == array.dtype
        np.testing.assert_array_equal(again[name], array)
    assert list(again.starting("ke")) == ["y"]
    assert "G" in again
    assert "H" not in again


def test_plain_makes_json():
    mixed = {1: (np.float64(2.0), np.arange(2)), "path": os.PathLike, "deep": [{"a": np.bool_(True)}]}
    assert store.plain(mixed) == {"1": [2.0, [0, 1]], "path": str(os.PathLike), "deep": [{"a": True}]}


def test_xarray_and_arviz_read_the_file(saved, found):
    import xarray as xr

    with xr.open_dataset(saved, engine="h5netcdf") as data:
        np.testing.assert_array_equal(data["values"], [found.series[0].values])
        assert data["observed"].dtype == bool
        assert list(data["param"].values) == ["rate", "level"]
        assert data.attrs["inference_library"] == "sdefit"
    with xr.open_datatree(saved, engine="h5netcdf") as tree:
        assert "posterior" not in tree.children
        assert tree["point_estimate"]["rate"].dims == ()
        assert float(tree["point_estimate"]["rate"]) == found.params["rate"]
        assert list(tree["point_estimate"]["G"].coords["state"].values) == ["x"]


def test_record_as_dataset(found):
    data = found.record().dataset()
    np.testing.assert_array_equal(data["GGt"], found.GGt)
    assert data.attrs["status"]["name"] == "ok"


def test_unusual_parameter_names_are_kept(tmp_path):
    model = SDE(_drift, ["x"], {"draw": positive(), "a/b": real()})
    one = fit(model, ou_series(1), QUICK, key=KEY)
    one.save(tmp_path / "fit.nc")
    assert load(tmp_path / "fit.nc").params == one.params


def _drift(t, x, p):
    return p["draw"] * (p["a/b"] - x)


def test_everything_of_a_pooled_fit_comes_back(tmp_path):
    rng = np.random.default_rng(0)
    times = np.datetime64("2021-03-01") + np.arange(12)
    first = Series(
        times, rng.standard_normal((12, 2)), ["x", "y"], path=np.ones((12, 2)), name="north", time_unit="day",
        notes=["rows were sorted"], inputs={"rain": np.arange(12.0)},
    )  # fmt: skip
    second = Series(np.arange(7.0), rng.standard_normal((7, 2)), ["x", "y"], time_unit="day")
    model = equations(
        "dx = -a*x + b\ndy = -y", params={"a": interval(0, 9, start=1.0)}, diffusion="diagonal", name="two"
    )
    one = fit(model, [first, second], QUICK, key=jax.random.key(5, impl="rbg"))
    one.save(tmp_path / "fit.nc", truth={"params": {"a": 1.0}})
    again = load(tmp_path / "fit.nc")
    assert again.series == one.series
    assert again.model == one.model
    assert again.model.params["a"].start == 1.0
    assert again.provenance == one.provenance
    assert (again.notes, again.seconds, again.loss) == (one.notes, one.seconds, one.loss)
    assert jax.random.key_impl(again.key) == jax.random.key_impl(one.key)
    assert again.key == one.key
    assert [m.shape for m in again.mean] == [(12, 2), (7, 2)]
    assert store.read(tmp_path / "fit.nc").facts["truth"] == {"params": {"a": 1.0}}


def test_a_python_drift_is_kept_by_name(tmp_path):
    model = SDE(lambda t, x, p: p["rate"] * (p["level"] - x), ["x"], {"rate": positive(), "level": real()})
    one = fit(model, ou_series(1), QUICK, key=KEY)
    one.save(tmp_path / "fit.nc")
    again = load(tmp_path / "fit.nc")
    assert again.params == one.params
    assert again.summary().equals(one.summary())
    np.testing.assert_array_equal(again.states().mean, one.states().mean)
    with pytest.raises(ModelError, match=r"Python function .*cannot be found here; pass model= to sf.load"):
        fit(again.model, again.series, QUICK, key=KEY)
    whole = load(tmp_path / "fit.nc", model=model)
    assert fit(whole.model, whole.series, QUICK, key=KEY).params == one.params
    with pytest.raises(ModelError, match="must be the one that was fitted, with free rate, level, not a"):
        load(tmp_path / "fit.nc", model=equations("dx = -a*x"))
    with pytest.raises(ModelError, match="model must be an sf.SDE"):
        load(tmp_path / "fit.nc", model="lv")  # pyright: ignore[reportArgumentType]


def test_a_file_is_written_whole_or_not_at_all(saved, found, monkeypatch):
    before = saved.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FileError, match="cannot be written: No space left on device"):
        found.save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ["fit.nc"]


def test_a_folder_that_is_not_there(found, tmp_path):
    with pytest.raises(FileError, match=r"fit.nc cannot be written: No such file or directory"):
        found.save(tmp_path / "nowhere" / "fit.nc")
    with pytest.raises(FileError, match=r"none.nc cannot be read: No such file or directory"):
        load(tmp_path / "none.nc")
    with pytest.raises(FileError, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_a_file_cut_short_is_refused(saved):
    content = saved.read_bytes()
    for length in (len(content) - 1, len(content) - 40, len(content) // 2, 600, 9):
        saved.write_bytes(content[:length])
        with pytest.raises(FileError, match=r"fit.nc (was cut short|is a NetCDF file, but not one)"):
            load(saved)
    saved.write_bytes(b"")
    with pytest.raises(FileError, match="not NetCDF-4"):
        load(saved)


def test_foreign_files_are_refused(tmp_path, saved):
    import xarray as xr

    xr.Dataset({"a": ("x", np.ones(3))}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(FileError, match="other.nc is a NetCDF file, but not one that fit.save wrote"):
        load(tmp_path / "other.nc")
    (tmp_path / "text.nc").write_text("t,x\n0,1\n")
    with pytest.raises(FileError, match=r"text.nc must be a NetCDF file written by fit.save"):
        load(tmp_path / "text.nc")
    store.write(small_record(), tmp_path / "record.nc")
    with pytest.raises(FileError, match="record.nc is a sdefit file, but not a whole fit"):
        load(tmp_path / "record.nc")


def test_a_newer_format_is_refused(saved, found, monkeypatch):
    monkeypatch.setattr(store.record, "FORMAT_VERSION", 7)
    found.save(saved)
    monkeypatch.undo()
    with pytest.raises(FileError, match="has format 7, newer than the 2 this sdefit reads; upgrade sdefit"):
        load(saved)


def test_no_flipped_byte_goes_unnoticed(saved):
    content = saved.read_bytes()
    rng = np.random.default_rng(0)
    places = {0, 7, 8, len(content) - 1, len(content) - 66, *rng.integers(len(content), size=300).tolist()}
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        saved.write_bytes(damaged)
        with pytest.raises(FileError, match=r"fit\.nc"):
            load(saved)


def test_nothing_is_pickled(saved):
    content = saved.read_bytes()
    assert b"pickle" not in content
    assert b"\x80\x04\x95" not in content
