"""Results show themselves: as a data frame, as a figure or on axes that are given, and in a notebook."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import sdefit as sf
from sdefit.diagnosis.diagnosis import Check
from sdefit.display.notebook import MOST, as_html

TIMES = np.linspace(0.0, 3.0, 4)
MEAN = np.arange(8.0).reshape(4, 2)
NAMES = ("prey", "<b>predator</b>")
ESCAPED = "&lt;b&gt;predator&lt;/b&gt;"


def result(kind):
    """A small result of each kind, of two states or quantities, one of which has markup for a name."""
    match kind:
        case "Series":
            return sf.Series(TIMES, np.where(MEAN == 2.0, np.nan, MEAN), NAMES, path=MEAN, time_unit="day")
        case "States":
            return sf.States(TIMES, MEAN, np.ones((4, 2)), MEAN - 1, MEAN + 1, NAMES, 0.9)
        case "Forecast":
            draws = MEAN + np.linspace(-1.0, 1.0, 5)[:, None, None]
            return sf.Forecast(TIMES, NAMES, draws, draws, 0.9, 0)
        case "Intervals":
            one, words = np.ones(2), ("identified", "not identified")
            columns = NAMES, 2 * one, one, 3 * one, one
            return sf.Intervals(*columns, "posterior", 0.9, 0, 0, words, ("A sentence.",), 0.0, 0.0, 0.1)
        case "Profile":
            return sf.Profile("prey", TIMES, -((TIMES - 1.0) ** 2), 1.0, 0.9, 0.2, 1.8, 0.1)
        case "Diagnosis":
            pair, z = (np.array([-1.0, 1.0]), np.array([-0.9, 1.2])), np.zeros((4, 2))
            check = Check("mean", NAMES[1], 0.1, 0.9, 0.9, False, "Look at `<b>predator</b>`.")
            return sf.Diagnosis((check,), (z,), dict.fromkeys(NAMES, pair), {}, {})
    raise AssertionError(kind)


@pytest.mark.parametrize("kind", ["Series", "States", "Forecast", "Intervals", "Profile", "Diagnosis"])
def test_a_result_is_a_frame_a_figure_and_goes_on_axes(kind):
    one = result(kind)
    assert isinstance(one.frame(), pd.DataFrame)
    figure = one.plot()
    assert isinstance(figure, Figure)
    axes = Figure().subplots(1, len(figure.axes), squeeze=False)
    assert one.plot(axes) is axes
    for own, given in zip(figure.axes, axes.flat, strict=True):
        assert len(own.lines) == len(given.lines) > 0
        assert own.get_xlim() == given.get_xlim()


def test_one_axes_for_two_states_is_refused():
    with pytest.raises(sf.InputError, match="ax must be 2 of matplotlib's axes, one for each of prey, .*leave it out"):
        result("Series").plot(Figure().subplots())


def test_frames_hold_the_numbers():
    series = result("Series")
    frame = series.frame()
    assert list(frame) == ["time", *NAMES]
    np.testing.assert_array_equal(frame[list(NAMES)], series.values)
    again = sf.from_frame(frame, time_unit="day")
    np.testing.assert_array_equal(again.values, series.values)
    states = result("States").frame()
    assert list(states) == ["time", "state", "mean", "std", "lower", "upper"]
    np.testing.assert_array_equal(states["mean"], MEAN.ravel())
    assert list(states["state"][:2]) == list(NAMES)
    forecast = result("Forecast")
    by_state = forecast.frame().set_index(["state", "time"])
    assert by_state.loc[("prey", 3.0), "upper"] == pytest.approx(forecast.upper[3, 0])
    profile = result("Profile").frame()
    assert profile["prey"].tolist() == TIMES.tolist() and profile["log_likelihood"].max() == 0.0


def test_a_plot_draws_the_numbers():
    dots, path = result("Series").plot().axes[0].lines
    np.testing.assert_array_equal(dots.get_xydata(), [[0, 0], [2, 4], [3, 6]])  # without the missing one
    np.testing.assert_array_equal(path.get_ydata(), MEAN[:, 0])
    (line,) = result("Forecast").plot().axes[1].lines
    np.testing.assert_allclose(line.get_ydata(), MEAN[:, 1])


@pytest.mark.parametrize("kind", ["Series", "Forecast", "Intervals", "Diagnosis"])
def test_a_notebook_shows_names_as_text(kind):
    shown = result(kind)._repr_html_()
    assert ESCAPED in shown and "<b>" not in shown and "`" not in shown


def test_a_notebook_shows_a_model_as_mathematics():
    shown = sf.equations("dx = rate*(level - x)", {"rate": sf.positive()})._repr_html_()
    assert "<math" in shown and "positive" in shown
    deep = "dx = " + "(" * 60 + "a" + ")" * 60
    assert "<p>" in sf.equations(deep)._repr_html_()


def test_a_long_table_is_cut_and_says_so():
    shown = as_html("title", [{"n": i} for i in range(MOST + 3)])
    assert shown.count("<tr>") == MOST + 1 and "3 more rows are not shown." in shown
    assert "more rows" not in as_html("title", [{"n": 1}])
    assert "<td style='text-align:left'>–</td>" in as_html("title", [{"n": np.nan}])
    assert len(result("Forecast").__repr__()) < 100


@pytest.fixture(scope="module")
def fits():
    model = sf.equations("dx = rate*(level - x)", {"rate": sf.positive()})
    truth = {"rate": 1.0, "level": 2.0}
    series = sf.simulate(model, truth, 0.0, np.linspace(0, 10, 51), noise=0.1, G=0.3, key=1)
    return [sf.fit(model, series, method) for method in (sf.ESGF(), sf.ESGF(noise="none"), sf.Moments())]


def test_information_criteria_count_all_that_is_estimated(fits):
    for fit, k in zip(fits[:2], (4, 3), strict=True):  # rate, level, G; and the noise
        assert fit.aic == pytest.approx(2 * k - 2 * fit.log_likelihood)
        assert fit.bic == pytest.approx(k * np.log(51) - 2 * fit.log_likelihood)
    assert fits[0].aic < fits[1].aic  # the noise is there, and a model without it pays for that
    with pytest.raises(AttributeError, match="a fit by moments has no log_likelihood"):
        _ = fits[2].aic


def test_a_notebook_shows_a_fit_without_computing(fits):
    shown = fits[2]._repr_html_()
    assert "rate" in shown and "noise[x]" in shown and fits[2].status.message in shown
