"""The experiment and the benchmark run, at their smallest size."""

import dataclasses
import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import sdefit as sf
from sdefit.data import standardise
from sdefit.inference.parameterisation import Parameterisation

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def beside_each_other(monkeypatch):
    """Scripts find their shared module as they do when run from a shell."""
    monkeypatch.syspath_prepend(ROOT / "experiments")


def script(path: str):
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_accuracy_on_frozen_data_drops_no_realization(tmp_path, capsys):
    accuracy = script("experiments/accuracy.py")
    accuracy.main(["--smoke", "--method", "mars", "--out", str(tmp_path / "rows.csv")])
    rows, printed = pd.read_csv(tmp_path / "rows.csv"), capsys.readouterr().out
    assert list(rows.realization) == [0, 1]
    assert np.isfinite(rows[["rate", "level", "G11", "noise_x"]].to_numpy()).all()
    np.testing.assert_allclose(rows.GGt11, rows.G11**2, rtol=1e-4)  # rows keep six digits
    error = np.sqrt(np.mean((rows.rate - 0.5) ** 2))
    assert f"| {error:#.3g} |" in printed and "0.46 ± 0.06" in printed


def test_accuracy_on_fresh_data_repeats_itself(tmp_path, capsys):
    accuracy = script("experiments/accuracy.py")
    asked = ["--smoke", "--method", "moments", "--data", "7", "--out"]
    for name in ("a.csv", "b.csv"):
        accuracy.main([*asked, str(tmp_path / name)])
    first, second = (
        pd.read_csv(tmp_path / name).drop(columns=["seconds", "compile_seconds"]) for name in ("a.csv", "b.csv")
    )
    pd.testing.assert_frame_equal(first, second)
    capsys.readouterr()
    accuracy.main(["--summarise", str(tmp_path / "a.csv")])
    assert "### ou, moments (default), data: 7" in capsys.readouterr().out


def test_every_published_cell_stands_beside_ours():
    """The paper's VGPA has a of 0.05 ± 0.04 and b of 1.11 ± 0.66; errors about the truth, by hand."""
    accuracy = script("experiments/accuracy.py")
    rows = pd.DataFrame({"a": [0.08, 0.10, 0.12], "b": [4.0, 4.0, 990.0], "status": ["ok", "ok", "not_converged"]})
    rows = rows.assign(setup="dw", method="vgpa", settings="default", GGt11=0.25)
    head, _, first, second = accuracy.beside(rows).splitlines()
    assert first == "| vgpa (default) | dw a | 0.1 | 0.05 ± 0.04 | 0.0640 | 0.100 ± 0.016 | 0.0163 | 1 | nearer |"
    assert second.endswith("| 1.11 ± 0.66 | 2.96 | 4.00 ± 4.6e+02 | 465. | 1 | **not nearer** |")
    assert head.count("|") == first.count("|")


def test_a_fit_with_a_warning_did_not_fail():
    stored = script("experiments/stored.py")
    status = pd.Series(
        ["ok", "long_gaps", "starts_disagree", "at_bound", "residuals_rejected", "not_converged", "no_data"]
    )
    assert stored.failed(status).tolist() == [False] * 5 + [True] * 2
    rows = pd.DataFrame({"a": 0.1, "b": 4.0, "GGt11": 0.25, "status": status})
    printed = script("experiments/accuracy.py").beside(rows.assign(setup="dw", method="vgpa", settings="default"))
    assert [line.split(" | ")[-2] for line in printed.splitlines()[2:]] == ["2", "2"]


def test_the_same_rows_are_the_same_bytes(tmp_path):
    stored = script("experiments/stored.py")
    rows = pd.DataFrame({"name": ["a", "b"], "found": [1.23456, np.nan]})
    for name in ("one.csv.bz2", "two.csv.bz2"):
        stored.write(rows, tmp_path / "made" / name, 3)
    one, two = ((tmp_path / "made" / name).read_bytes() for name in ("one.csv.bz2", "two.csv.bz2"))
    assert one == two and one[:3] == b"BZh"
    read = stored.read([tmp_path / "made" / "one.csv.bz2"] * 2)
    assert read.name.tolist() == ["a", "b"] * 2 and read.found[0].tolist() == [1.23, 1.23]


@pytest.mark.parametrize(
    ("name", "kind", "printed"),
    [
        ("mars_frozen", "accuracy", "| b | 4 | 3.96 ± 0.99 | 1.01 | 0.840 | 0.97 | 1 **missed** | 3.85 ± 1.1 | +0.6 |"),
        ("stationary", "stationary", "| Vasicek | k | 0.3 |"),
        ("dirty", "dirty", "| ou | mars | rate | "),
        ("coverage_mars_ou", "coverage", "| ou | mars | level | 88.7 % |"),
        ("coverage_by_n", "coverage_by_n", "| ou | level | 10 | 80 % |"),
        ("sbc", "sbc", "| dw | b | 200 | 91 %, 56 % | 0.566 |"),
    ],
)
def test_stored_rows_give_the_tables_of_the_pages(name, kind, printed, capsys):
    script(f"experiments/{kind}.py").main(["--summarise", str(ROOT / "experiments" / "rows" / f"{name}.csv.bz2")])
    found = capsys.readouterr().out
    assert printed in found
    page = {"mars_frozen": "mars", "coverage_mars_ou": "coverage"}.get(name, name)
    on_page = (ROOT / "docs" / "results" / f"{page}.md").read_text().splitlines()
    lines = [line for line in found.splitlines() if line.startswith("| ")]
    assert len(lines) > 5 and [line for line in lines if line not in on_page] == []


def test_stored_rows_are_small_and_of_one_format():
    files = list((ROOT / "experiments" / "rows").iterdir())
    assert {"".join(file.suffixes) for file in files} == {".csv.bz2"}
    assert sum(file.stat().st_size for file in files) < 2e6


def test_every_stored_study_is_cited_by_a_page():
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "results").glob("*.md"))
    for file in (ROOT / "experiments" / "rows").iterdir():
        study = file.name.split("_")[0] if file.name.startswith(("ares_paper", "coverage_")) else file.name
        assert study in pages, f"no page cites {file.name}"


def test_coverage_is_counted_for_every_quantity(tmp_path, capsys):
    coverage, out = script("experiments/coverage.py"), tmp_path / "rows.csv.bz2"
    coverage.main(["--method", "esgf", "--systems", "ou", "--realizations", "2", "--draws", "0", "--out", str(out)])
    rows, printed = pd.read_csv(out), capsys.readouterr().out
    assert (
        rows.groupby("realization").quantity.agg(list).tolist()
        == [["rate", "level", "G[x,x]", "GGt[x,x]", "noise[x]"]] * 2
    )
    rate = rows[rows.quantity == "rate"]
    inside = (rate.lower <= 0.5) & (rate.upper >= 0.5)
    assert f"| ou | esgf | rate | {100 * inside.mean():.1f} % |" in printed


def test_frozen_data_are_those_of_the_set_ups():
    accuracy = script("experiments/accuracy.py")
    for name in accuracy.SYSTEMS:
        stored, setup = np.load(accuracy.DATA / f"{name}.npz"), sf.systems.get(name)
        np.testing.assert_allclose(stored["theta"], list(setup.params.values()))
        np.testing.assert_allclose(stored["G"], setup.G)
        np.testing.assert_allclose(stored["t"], setup.times, atol=1e-12)
        assert stored["noise"] == setup.noise and stored["y"].shape == (100, len(setup.times), len(setup.x0))


def test_speed_prints_every_row(capsys):
    script("benchmarks/speed.py").main(["--smoke", "--method", "moments"])
    printed = capsys.readouterr().out
    assert printed.count("| ou: ") == 4
    assert "N = 1,000" in printed


def test_missing_values_and_pooling_are_measured_beside_maximum_likelihood(tmp_path, capsys):
    dirty = script("experiments/dirty.py")
    small = ["--methods", "ml,moments", "--systems", "ou", "--realizations", "3", "--groups", "2"]
    dirty.main([*small, "--out", str(tmp_path / "rows.csv")])
    rows, printed = pd.read_csv(tmp_path / "rows.csv"), capsys.readouterr().out
    assert rows.groupby(["method", "kind"]).size().tolist() == [3, 3, 2, 3] * 2
    own = rows[rows.method == "moments"].groupby("kind").missed_rate.apply(lambda e: np.sqrt(np.mean(e**2)))
    assert f"| ou | moments | rate | {own['whole']:.3g} | ×{own['knocked'] / own['whole']:.2f} (" in printed


def test_stationary_series_are_measured_by_every_method(tmp_path, capsys):
    stationary, kept = script("experiments/stationary.py"), str(tmp_path / "rows.csv")
    stationary.main(["--methods", "moments", "--cases", "Vasicek;turning", "--realizations", "2", "--out", kept])
    rows, printed = pd.read_csv(kept), capsys.readouterr().out
    assert rows.groupby("case", sort=False).size().to_dict() == {"Vasicek": 6, "turning": 8}
    k = rows[rows.quantity == "k"].found
    assert f"| Vasicek | k | 0.3 | {k.mean():.3g}, {np.sqrt(np.mean((k - 0.3) ** 2)):.3g} |" in printed
    stationary.main(["--summarise", kept])
    assert capsys.readouterr().out == printed


def test_made_up_inputs_end_in_numbers_or_in_our_errors(capsys):
    fuzz = script("experiments/fuzz.py")
    fuzz.QUICK = (sf.Moments(),) * 4
    fuzz.main(["--inputs", "40", "--seed", "3"])
    assert "40 inputs, 0 bad" in capsys.readouterr().out


def test_coverage_by_number_of_observations_counts_every_interval(tmp_path, capsys):
    by_n = script("experiments/coverage_by_n.py")
    out = tmp_path / "rows.csv.bz2"
    by_n.main(["--systems", "ou", "--sizes", "3,10", "--sets", "4", "--out", str(out)])
    rows, printed = pd.read_csv(out), capsys.readouterr().out
    rate = rows[rows.quantity == "rate"]
    assert list(rate["size"]) == [3] * 4 + [10] * 4
    assert set(rate[rate["size"] == 3].identifiability) == {"not identified"}
    inside = (rate.lower <= rate.truth) & (rate.truth <= rate.upper)
    assert f"| ou | rate | 10 | {100 * inside[rate['size'] == 10].mean():.0f} % |" in printed


def test_ablation_compares_the_same_fits_with_and_without_a_choice(tmp_path, capsys):
    ablation, out = script("experiments/ablation.py"), tmp_path / "rows.csv"
    small = [
        "--choices",
        "coordinates,boundary",
        "--problems",
        "ou,vasicek",
        "--methods",
        "esgf",
        "--realizations",
        "3",
    ]
    ablation.main([*small, "--out", str(out)])
    rows, printed = pd.read_csv(out), capsys.readouterr().out
    assert rows.groupby("choice").realization.nunique().to_dict() == {"none": 3, "boundary": 3}
    error = rows.groupby(["choice", "quantity"]).miss.agg(lambda miss: np.sqrt(np.mean(miss**2)))
    ratio = np.sqrt(np.prod([error["boundary", q] / error["none", q] for q in ("k", "m")]))
    line = next(line for line in printed.splitlines() if line.startswith("| boundary |"))
    head = next(line for line in printed.splitlines() if line.startswith("| without |"))
    cell = line.split(" | ")[head.split(" | ").index("vasicek")]
    assert ratio != 1 and cell.strip("*").startswith(f"{ratio:.2f}")
    ablation.main(["--summarise", str(out)])
    assert capsys.readouterr().out == printed


def test_every_choice_that_ablation_removes_is_there(monkeypatch):
    """An override of a name that the package has lost would silently compare a fit with itself."""
    ablation = script("experiments/ablation.py")
    changed = []

    def put(home, name, value):
        assert getattr(home, name) is not value
        changed.append(name)

    monkeypatch.setattr(ablation, "put", put)
    for choice in ablation.CHOICES:
        if choice.override:
            changed.clear()
            choice.override()
            assert changed, choice.name
        for method in choice.methods:
            base = ablation.METHODS[method]
            assert not choice.settings or dataclasses.replace(base, **choice.settings) != base, choice.name
    with pytest.raises(AttributeError):
        script("experiments/ablation.py").put(ablation.priors, "WIDTH_OF_NOTHING", 1.0)


def test_simulation_based_calibration_ranks_every_truth(tmp_path, capsys):
    sbc, out, figure = script("experiments/sbc.py"), tmp_path / "rows.csv", tmp_path / "ranks.svg"
    small = ["--systems", "ou", "--sets", "2", "--draws", "25", "--warmup", "25"]
    sbc.main([*small, "--out", str(out), "--figure", str(figure)])
    rows, printed = pd.read_csv(out), capsys.readouterr().out
    assert list(rows.quantity) == ["rate", "level", "G", "noise"] * 2
    assert (rows.of == 100).all() and rows["rank"].between(0, 99).all()
    assert f"| ou | level | 2 | {100 * np.mean(rows[rows.quantity == 'level']['rank'].between(5, 94)):.0f} %" in printed
    assert figure.read_text().startswith("<?xml")
    sbc.main(["--summarise", str(out)])
    assert capsys.readouterr().out == printed


def test_truths_of_calibration_are_drawn_from_the_prior_of_the_posterior():
    """log G is normal about log 0.5 with standard deviation 1, log σ about log 0.05 with 2, in the user's units."""
    sbc = script("experiments/sbc.py")
    model, method, _ = sbc.system("ou")
    rng = np.random.default_rng(0)
    pool = standardise([sf.Series(0.3 * np.arange(9.0), 5 + 3 * rng.standard_normal(9), ["x"])])
    with jax.enable_x64(True):
        where = Parameterisation(model, jax.tree.map(jnp.asarray, pool), "each")
        prior = method.prior(where, None)

        def minus_log(theta, G, noise):
            unit = np.sqrt(pool.time_scale) / pool.scale[0]
            parts = (jnp.array(theta), jnp.array([[G * unit]]), jnp.array([noise / pool.scale[0]]), jnp.zeros((1, 1)))
            return float(prior(where.at(*parts)).value)

        found = minus_log([0.7, 2.0], 0.8, 0.4) - minus_log([0.5, 1.0], 0.5, 0.05)
    at_mode = -sbc.dist.LogNormal(np.log(0.5), 0.5).log_prob(0.5)
    expected = 0.5 * (np.log(0.8 / 0.5) ** 2 + (np.log(0.4 / 0.05) / 2) ** 2 + 1.0)
    expected += -float(sbc.dist.LogNormal(np.log(0.5), 0.5).log_prob(0.7)) - float(at_mode)
    assert found == pytest.approx(expected, rel=1e-5)
    truths, _ = sbc.simulated(model, method, sbc.dist.Normal(1.0, 3.0), 60, jax.random.key(1))
    # 60 draws: means to 4/√60 of a standard deviation.
    for name, center, width in (("G", 0.5, 1.0), ("noise", 0.05, 2.0), ("rate", 0.5, 0.5)):
        away = np.log([truth[name] for truth in truths]) - np.log(center)
        assert abs(away.mean()) < 4 / np.sqrt(60) * width, name
        assert away.std() == pytest.approx(width, rel=0.4), name
