"""Make the pictures of README and docs from real fits: python docs/pictures/make.py [NAME ...].

Each function fits what its page fits and returns the figure. Pictures are PNG files of less than 100 kB beside this
file; make them again when a page's model, data or numbers change.
"""

import itertools
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import sdefit as sf

FOLDER = Path(__file__).parent
DATA = FOLDER.parent / "data"
INK, BLUE, RED, GREEN, ORANGE = "#1f2328", "#0072b2", "#d55e00", "#009e73", "#e69f00"
STYLE = {"fontsize": 11, "loc": "left", "fontweight": "bold", "color": INK}


def figure(panels: int, width: float = 9.6, height: float = 3.2):
    """A figure with so many panels side by side, and its axes."""
    made = Figure(figsize=(width, height), dpi=90, layout="constrained", facecolor="white")
    axes = np.atleast_1d(made.subplots(1, panels))
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.tick_params(labelsize=9)
    return made, axes


def draw_path(axes, times, fit: sf.Fit, state: int = 0, colour: str = BLUE, name: str = "", size: float = 3.0) -> None:
    """The observations of one state, and its smoothed path with a 90 % band."""
    states, x = fit.states(), fit.series[0].values[:, state]
    axes.fill_between(times, states.lower[:, state], states.upper[:, state], color=colour, alpha=0.25, lw=0)
    axes.plot(times, states.mean[:, state], color=colour, lw=1.2, label=f"{name} smoothed, 90 % band".strip())
    axes.plot(times, x, "o", color=INK if not name else colour, ms=size, mew=0, label=f"{name} observed".strip())


def front() -> Figure:
    """README: its first example, as it stands there; intervals by simulation and refitting."""
    setup = sf.systems.get("lv")
    model = sf.equations(
        """
        dprey     = a*prey - b*prey*predator
        dpredator = -c*predator + d*prey*predator
        """,
        params={"a": sf.positive(), "b": sf.positive(), "c": sf.positive(), "d": sf.positive()},
    )
    fit = sf.fit(model, setup.simulate(key=1))
    found = fit.intervals(level=0.9, draws=200, key=1)
    made, (left, right) = figure(2)
    for k, colour in enumerate((BLUE, RED)):
        draw_path(left, fit.series[0].times, fit, k, colour, model.states[k])
    left.set(xlabel="time", title="")
    left.set_title("Data and smoothed path", **STYLE)
    left.legend(fontsize=8, frameon=False, ncols=2)
    for row, (name, truth) in enumerate(setup.params.items()):
        lower, upper = found[name]
        right.plot([lower, upper], [row, row], color=BLUE, lw=2.5, label="90 % interval" if row == 0 else None)
        right.plot(fit.params[name], row, "o", color=BLUE, ms=6, label="estimate" if row == 0 else None)
        right.plot(truth, row, "x", color=INK, ms=8, mew=2, label="truth" if row == 0 else None)
    right.set_yticks(range(4), list(setup.params))
    right.invert_yaxis()
    right.set(xlabel="parameter")
    right.set_title("Estimates, intervals, truth", **STYLE)
    right.legend(fontsize=8, frameon=False)
    return made


def tutorial() -> Figure:
    """The tutorial: its simulated populations, fitted by MaRS."""
    model = sf.systems.get("lv").model
    truth = {"a": 2.0, "b": 1.0, "c": 4.0, "d": 1.0}
    times = np.linspace(0.0, 2.0, 51)
    made_up = {"x0": [5.0, 3.0], "times": times, "G": [[0.2, 0.0], [0.1, 0.3]], "noise": 0.1, "key": 1}
    series = sf.simulate(model, truth, **made_up)
    fit = sf.fit(model, series, sf.MaRS())
    made, axes = figure(2)
    for k, one in enumerate(axes):
        draw_path(one, times, fit, k)
        one.plot(times, series.path[:, k], "--", color=RED, lw=1.2, label="true path")
        one.set(xlabel="time")
        one.set_title(model.states[k], **STYLE)
    axes[0].legend(fontsize=8, frameon=False)
    return made


def hares() -> sf.Fit:
    """The fit of the tutorial on hares and lynxes."""
    text = "dlog_hare = birth - eaten*exp(log_lynx)\ndlog_lynx = growth*exp(log_hare) - death"
    names = ("birth", "eaten", "growth", "death")
    model = sf.equations(text, params={name: sf.positive() for name in names}, diffusion="diagonal")
    return sf.fit(model, sf.read_csv(DATA / "hare_lynx.csv", time="year", states=["log_hare", "log_lynx"]))


def verdicts() -> Figure:
    """What the verdicts mean: intervals of hares and lynxes in per cent of the estimate, coloured by their verdict."""
    found = hares().intervals(level=0.9, draws=200, key=1)
    colours = {"identified": BLUE, "weakly identified": ORANGE, "not identified": "#888888"}
    made, (axes,) = figure(1, 7.2, 3.4)
    axes.axvline(100, color="#cccccc", lw=1)
    rows = [row for row in found.table() if not row["quantity"].startswith("GGt")]
    for at, row in enumerate(rows):
        word, ends = row["identifiability"], 100 * np.array([row["lower"], row["upper"]]) / row["estimate"]
        first = next(i for i, other in enumerate(rows) if other["identifiability"] == word) == at
        axes.plot(ends, [at, at], color=colours[word], lw=4, label=word if first else None)
        axes.plot(100, at, "o", color=colours[word], ms=6)
    axes.set_yticks(range(len(rows)), [row["quantity"] for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel="90 % interval in % of the estimate", xlim=(0, None))
    axes.legend(fontsize=8, frameon=False, loc="upper right")
    return made


def hare_lynx() -> Figure:
    """The hares and lynxes: counts with the fitted cycle, and one against the other."""
    fit = hares()
    series = fit.series[0]
    years = np.linspace(1900, 1920, 241)
    states = fit.states(years)
    made, (left, right) = figure(2)
    for k, (name, colour) in enumerate((("hares", BLUE), ("lynxes", RED))):
        band = np.exp(states.lower[:, k]), np.exp(states.upper[:, k])
        left.fill_between(years, *band, color=colour, alpha=0.25, lw=0)
        left.plot(years, np.exp(states.mean[:, k]), color=colour, lw=1.2, label=f"{name}, smoothed")
        left.plot(series.times, np.exp(series.values[:, k]), "o", color=colour, ms=3.5, label=f"{name}, counted")
    left.set(xlabel="year", ylabel="thousand furs")
    left.xaxis.get_major_locator().set_params(integer=True)
    left.set_title("Furs a year", **STYLE)
    left.legend(fontsize=8, frameon=False)
    right.plot(*np.exp(states.mean).T, color=BLUE, lw=1.2, label="smoothed path")
    right.plot(*np.exp(series.values).T, "o", color=INK, ms=3.5, label="counted")
    p = fit.params
    right.plot(p["death"] / p["growth"], p["birth"] / p["eaten"], "x", color=RED, ms=9, mew=2, label="drift is zero")
    right.set(xlabel="thousand hares", ylabel="thousand lynxes")
    right.set_title("Lynxes against hares", **STYLE)
    right.legend(fontsize=8, frameon=False)
    return made


def us_rate() -> Figure:
    """The interest rate: the record, and the size of monthly changes by level beside the constant G of the model."""
    model = sf.equations("drate = speed*(level - rate)", params={"speed": sf.positive()})
    series = sf.read_csv(DATA / "us_10_year_rate.csv", time="date", states=["rate"], time_unit="year")
    fit = sf.fit(model, series, sf.ESGF())
    years, x = 1962 + series.times - series.times[0], series.values[:, 0]
    made, (left, right) = figure(2)
    left.plot(years, x, color=BLUE, lw=1.0)
    left.axhline(fit.params["level"], color=RED, lw=1, ls="--", label="estimated level, not identified")
    left.set(xlabel="year", ylabel="per cent a year")
    left.set_title("Yield of 10-year US bonds, end of month", **STYLE)
    left.legend(fontsize=8, frameon=False)
    before, size = x[:-1], np.abs(np.diff(x)) * np.sqrt(12)
    right.plot(before, size, "o", color=BLUE, ms=2.5, alpha=0.5, mew=0, label="months")
    edges = np.quantile(before, [0, 1 / 3, 2 / 3, 1])
    changes = np.diff(x) * np.sqrt(12)
    inside = [(before >= a) & (before <= b) for a, b in itertools.pairwise(edges)]
    spread = [changes[one].std() for one in inside]
    right.stairs(spread, edges, color=INK, lw=2, baseline=None, label="standard deviation, by thirds")
    right.axhline(fit.G[0, 0], color=RED, lw=1.5, ls="--", label="estimate of G")
    right.set(xlabel="rate at the start of the month", ylabel="change per root year")
    right.set_title("Size of monthly changes", **STYLE)
    right.legend(fontsize=8, frameon=False)
    return made


def ice_core() -> Figure:
    """The ice core: the record with its smoothed path, and the fitted drift."""
    text = "dd18o = push + a*(d18o + 40) + c*(d18o + 40)**2 - b*(d18o + 40)**3"
    model = sf.equations(text, params={"b": sf.positive()})
    series = sf.read_csv(DATA / "gisp2_d18o.csv", time="kyr", states=["d18o"])
    fit = sf.fit(model, series)
    made, (left, right) = figure(2)
    draw_path(left, series.times, fit, size=2.5)
    left.set(xlabel="thousand years before present, negative", ylabel="δ18O, per mille")
    left.set_title("δ18O of the GISP2 ice core", **STYLE)
    left.legend(fontsize=8, frameon=False)
    x = np.linspace(-43.2, -36.8, 200)
    right.axhline(0, color="#888888", lw=0.8)
    right.plot(
        x, np.polyval([-fit.params["b"], fit.params["c"], fit.params["a"], fit.params["push"]], x + 40), color=BLUE
    )
    right.plot(series.values[:, 0], np.full(len(series), -6.5), "|", color=INK, ms=6, alpha=0.4, label="observations")
    right.set(xlabel="δ18O, per mille", ylabel="drift, per mille per kyr", ylim=(-7, 7))
    right.set_title("Fitted drift", **STYLE)
    right.legend(fontsize=8, frameon=False)
    return made


def el_nino() -> Figure:
    """El Niño: the anomaly, and its autocorrelation in the data and in the model."""
    model = sf.equations("danomaly = -rate*anomaly", params={"rate": sf.positive()})
    series = sf.read_csv(DATA / "el_nino.csv", time="year", states=["anomaly"])
    fit = sf.fit(model, series)
    x = series.values[:, 0]
    made, (left, right) = figure(2)
    left.axhline(0, color="#888888", lw=0.8)
    left.plot(series.times, x, color=BLUE, lw=0.9)
    left.set(xlabel="year", ylabel="°C above the mean of the month")
    left.set_title("Sea surface off Peru", **STYLE)
    lags = np.arange(37)
    seen = [np.mean(x[n:] * x[: len(x) - n]) / np.mean(x**2) for n in lags]
    right.axhline(0, color="#888888", lw=0.8)
    right.plot(lags, seen, "o", color=INK, ms=3.5, label="data")
    right.plot(lags, np.exp(-fit.params["rate"] * lags / 12), color=RED, label="fitted model")
    right.set(xlabel="months", ylabel="autocorrelation")
    right.set_title("Share of an anomaly that is left", **STYLE)
    right.legend(fontsize=8, frameon=False)
    return made


def latent() -> Figure:
    """The mathematics: one simulated path x, its latent OU process o and the smooth difference z."""
    rng = np.random.default_rng(4)
    step, n, rate, level, G, gamma = 0.005, 2000, 0.5, 1.0, 0.5, 2.0
    x, o = np.empty(n + 1), np.zeros(n + 1)
    x[0] = 4.0
    for i, dw in enumerate(rng.normal(0, np.sqrt(step), n)):
        x[i + 1] = x[i] + rate * (level - x[i]) * step + G * dw
        o[i + 1] = o[i] - gamma * o[i] * step + G * dw
    t = step * np.arange(n + 1)
    made, (axes,) = figure(1, 7.2, 3.0)
    axes.plot(t, x, color=BLUE, lw=0.9, label="x, the state")
    axes.plot(t, o, color=ORANGE, lw=0.9, label="o, driven by the same noise")
    axes.plot(t, x - o, color=RED, lw=2, label="z = x − o, differentiable")
    seen = np.arange(0, n + 1, 80)
    axes.plot(t[seen], x[seen] + rng.normal(0, 0.1, seen.size), "o", color=INK, ms=3.5, label="y, observations")
    axes.set(xlabel="time")
    axes.legend(fontsize=8, frameon=False, ncols=2)
    return made


def uncertainty() -> Figure:
    """How far to trust a fit: the forecast of the page beside the rows that were held back."""
    model = sf.equations("dx = rate*(level - x)", params={"rate": sf.positive()})
    times = np.linspace(0.0, 24.0, 61)
    whole = sf.simulate(model, {"rate": 0.5, "level": 1.0}, x0=[4.0], times=times, G=0.5, noise=0.1, key=0)
    series = sf.Series(whole.times[:-10], whole.values[:-10])
    fit = sf.fit(model, series, sf.ESGF(), key=1)
    ahead = fit.forecast(whole.times[-10:], draws=500, key=3)
    made, (axes,) = figure(1, 7.2, 3.0)
    draw_path(axes, series.times, fit)
    axes.fill_between(ahead.times, ahead.lower[:, 0], ahead.upper[:, 0], color=ORANGE, alpha=0.3, lw=0)
    axes.plot(ahead.times, ahead.mean[:, 0], color=ORANGE, label="forecast, 90 % band of the state")
    axes.plot(whole.times[-10:], whole.values[-10:, 0], "o", mfc="none", color=INK, ms=4, label="held back")
    axes.set(xlabel="time")
    axes.legend(fontsize=8, frameon=False)
    return made


def field() -> Figure:
    """NPSDE: the drift of a double well, learned without a formula, beside the true one."""
    wells = sf.systems.get("dw")
    fit = sf.fit(wells.model, wells.simulate(key=1), sf.NPSDE())
    x = fit.series[0].values[:, 0]
    at = np.linspace(np.nanmin(x) - 0.5, np.nanmax(x) + 0.5, 120)
    learned = fit.drift(at)
    mean, half = learned.mean[:, 0], 1.645 * learned.std[:, 0]
    made, (left, right) = figure(2)
    draw_path(left, fit.series[0].times, fit)
    left.set(xlabel="time")
    left.set_title("Double well, observed 51 times", **STYLE)
    left.legend(fontsize=8, frameon=False)
    right.fill_between(at, mean - half, mean + half, color=BLUE, alpha=0.25, lw=0)
    right.plot(at, mean, color=BLUE, label="learned drift, 90 % band")
    right.plot(at, wells.params["a"] * at * (wells.params["b"] - at**2), "--", color=RED, label="true drift")
    right.plot(x, np.full(len(x), right.get_ylim()[0]), "|", color=INK, ms=6, label="observations")
    right.set(xlabel="x")
    right.set_title("Drift", **STYLE)
    right.legend(fontsize=8, frameon=False)
    return made


PICTURES = (front, tutorial, hare_lynx, verdicts, us_rate, ice_core, el_nino, latent, uncertainty, field)


def main(names: list[str]) -> None:
    """Make the pictures of these names, or all of them."""
    for make in PICTURES:
        if not names or make.__name__ in names:
            path = FOLDER / f"{make.__name__}.png"
            make().savefig(path)
            print(f"{path} {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
