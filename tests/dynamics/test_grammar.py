"""Texts of general models: whole equations, observation lines, abbreviations, second order, and each refusal.

Made-up models are compared with Python's own value of the same lines, in exact fractions. More of them:
`GRAMMAR_EXAMPLES=10000 pytest tests/dynamics/test_grammar.py`.
"""

import math
import operator
import os
import re
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sdefit as sf
from sdefit.dynamics import printing
from sdefit.dynamics.equations import equations
from sdefit.dynamics.model_file import from_dict, to_dict
from sdefit.errors import EquationError, ModelError

EXAMPLES = settings(
    max_examples=int(os.environ.get("GRAMMAR_EXAMPLES", "150")), suppress_health_check=list(HealthCheck), deadline=None
)
STATES = ("x", "y", "delay")
VALUES = {
    "t": Fraction(7, 10), "x": Fraction(13, 10), "y": Fraction(-2, 5), "delay": Fraction(5, 7), "a": Fraction(21, 10),
    "b_1": Fraction(-3), "u": Fraction(11, 3),
}  # fmt: skip
EXACT = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "negate": operator.neg,
    "**": operator.pow,
}  # fmt: skip
NUMBERS = st.sampled_from(["0", "1", "2", "0.5", "3"])


def formulas(names):
    """Formulas of numbers and names, each with the exact fraction that Python makes of it."""

    def larger(inner):
        infix = st.tuples(inner, st.sampled_from(["+", "-", "*", "/"]), inner).map(lambda p: f"({p[0]}){p[1]}({p[2]})")
        flat = st.tuples(st.sampled_from(names), st.sampled_from("+-*"), inner).map("".join)
        return infix | flat | inner.map("-({})".format) | inner.map("({})**2".format)

    return st.recursive(NUMBERS | st.sampled_from(names), larger, max_leaves=4)


def linear(names, noises):
    """Right sides that are linear in dt and some noises."""
    atoms = st.sampled_from(["dt", *noises])
    scaled = st.tuples(formulas(names), atoms).map(lambda p: f"({p[0]})*{p[1]}")

    def larger(inner):
        factor = formulas(names).map("({})".format)
        both = st.tuples(inner, st.sampled_from(["+", "-"]), inner).map(lambda p: f"({p[0]}){p[1]}({p[2]})")
        left = st.tuples(factor, inner).map(lambda p: f"{p[0]}*({p[1]})")
        right = st.tuples(inner, st.sampled_from("*/"), factor).map(lambda p: f"({p[0]}){p[1]}{p[2]}")
        return both | left | right | inner.map("-({})".format)

    return st.recursive(scaled | atoms, larger, max_leaves=4)


@st.composite
def models(draw):
    """The lines of a model by what they say: abbreviations, equations of motion and observation lines."""
    states = STATES[: draw(st.integers(1, 3))]
    names = ["t", *states, "a", "b_1", "u"]
    short: dict[str, str] = {}
    for name in ("flow", "rate")[: draw(st.integers(0, 2))]:
        short[name] = draw(formulas([*names, *short]))
    names += list(short)
    motion = {state: draw(linear(names, ["dw", "dw1", "dw_two"])) for state in states}
    seen = {one: draw(formulas(names)) for one in ("out", "z")[: draw(st.integers(0, 2))]}
    return short, motion, seen, draw(st.none() | formulas(names))


def exact(source, values):
    """What Python makes of a right side, in fractions; None for a division by zero."""
    text = re.sub(r"(?<![\w.])[0-9]+(?:\.[0-9]+)?", lambda found: f"Fraction('{found.group()}')", source)
    try:
        return eval(text.replace("**Fraction('2')", "**2"), {"__builtins__": {}, "Fraction": Fraction}, dict(values))
    except ZeroDivisionError:
        return None


def ours(formula):
    def apply(word, *given):
        last = int(given[-1]) if word == "**" else given[-1]
        return EXACT[word](*given[:-1], last)

    return formula.walk(Fraction, VALUES.__getitem__, apply)


def text_of(short, motion, seen):
    rows = [f"{name} := {one}" for name, one in short.items()]
    return "\n".join(
        [*rows, *(f"d{state} = {one}" for state, one in motion.items()), *(f"{c} = {one}" for c, one in seen.items())]
    )


def test_a_whole_model_has_the_coefficients_python_gives_it():
    compared = []

    @EXAMPLES
    @given(models())
    def check(made):
        short, motion, seen, spread = made
        inputs = ["u"] if re.search(r"\bu\b", " ".join([*motion.values(), *seen.values()])) else []
        noise = {} if spread is None or not seen else {"out": sf.normal(sd=spread)}
        model, refusal = model_or_refusal(text_of(short, motion, seen), inputs=inputs, noise=noise)
        if model is None:
            # A constant such as 1/0, a column without a state, or an input that only an abbreviation has.
            assert re.search("not a finite real number|must depend on a state|must be a name in", refusal)
            return
        values = dict(VALUES)
        for name, one in short.items():
            values[name] = exact(one, values)
        if None not in values.values():
            compare(model, motion, seen, values)
            compared.append(model)

    check()
    assert len(compared) >= EXAMPLES.max_examples // 10


def compare(model, motion, seen, values):
    own = model.g_function
    noises = own.noises if own else ()
    for row, (state, source) in enumerate(motion.items()):
        still = dict.fromkeys(("dt", "dw", "dw1", "dw_two"), Fraction(0))
        drift = exact(source, values | still | {"dt": Fraction(1)})
        if drift is None:
            continue
        assert ours(model.drift.formulas[row]) == drift, state
        total = dict.fromkeys(("dw", "dw1", "dw_two"), Fraction(0))
        for one in own.entries if own else ():
            if one.row == row:
                total[noises[one.column]] += ours(one.formula)
        for name, value in total.items():
            assert value == exact(source, values | still | {name: Fraction(1)}), (state, name)
    for column, source in seen.items():
        formula = model.h_function.formulas[model.observations.index(column)]
        value = exact(source, values)
        assert value is None or ours(formula) == value


WORDS = ["x", "y", "x'", "x''", "dx", "dy", "dt", "dw", "dw1", "s", "G", "pi", "2", "1.5", "+", "-", "*", "/", "**",
         "(", ")", "=", "=", ":=", "exp(", "\n", "\n", "dx = ", "dy = ", "x'' = ", "y = ", "f := ", "f"]  # fmt: skip
DRIFTS = ["dx = -a*x", "x'' = -x", "dy/dt = x", "ddelay = x - delay", "dz = k*x'", "dv = pi*v"]
WHOLE = ["dx = -a*x*dt", "dx = -a*x*dt + s*x*dw", "dy = x*dt + r*dw1", "dx = -x*dt + q*dw1 + dw2", "dk = 0",
         "x'' = -k*x - c*x' + s*dw", "dz = y*dt - (a + x)*dw"]  # fmt: skip
BESIDE = ["y = x", "z = k*x", "z = f*x", "f := a*x", "f := pi*t", "dose = k*x", "delay = delay", "x = x"]


def lines(motions):
    pool = st.lists(st.sampled_from(motions), min_size=1, max_size=2, unique=True)
    return st.tuples(pool, st.lists(st.sampled_from(BESIDE), max_size=2, unique=True)).map(
        lambda both: "\n".join(
            [one for one in both[1] if ":=" in one] + both[0] + [o for o in both[1] if ":=" not in o]
        )
    )


TEXTS = (
    lines(DRIFTS) | lines(WHOLE) | lines(DRIFTS + WHOLE) | st.lists(st.sampled_from(WORDS), max_size=12).map("".join)
)


def model_or_refusal(text, **given):
    try:
        return equations(text, **given), ""
    except EquationError as refusal:
        return None, str(refusal)
    except ModelError as refusal:
        return None, f"one line: {refusal}"


def test_any_lines_are_a_model_that_prints_and_comes_back_or_a_refusal():
    came = []

    @EXAMPLES
    @given(TEXTS)
    def check(text):
        model, refusal = model_or_refusal(text)
        if model is None:
            assert refusal.count("\n") in (0, 2)
            assert not refusal.startswith("one line:") or "at least one state that is observed" in refusal
            return
        came.append(model)
        assert from_dict(to_dict(model)) == model
        assert str(model).startswith("model: dx")
        assert model.latex().startswith("\\begin{aligned}")
        printing.mathml(model)

    check()
    assert len(came) >= EXAMPLES.max_examples // 5


def test_the_compiled_functions_are_the_formulas():
    model = equations(
        "f := s*sqrt(x)\ndx = k*(m - x)*dt + f*dw1\ndy = x*dt + r*dw1 + 0.5*dw\nz = x*y + u",
        inputs=["u"], noise={"z": sf.normal(sd="0.1*z + sin(pi*t)")},
    )  # fmt: skip
    assert list(model.params) == ["k", "m", "s", "r"]
    x, p = jnp.asarray([2.0, 3.0]), {"k": 0.7, "m": 1.5, "s": 0.3, "r": -0.2, "u": 0.4}
    f, g, h = jax.jit(lambda x: [one(0.25, x, p) for one in (model.f_named, model.g_named, model.h_named)])(x)
    np.testing.assert_allclose(f, [0.7 * (1.5 - 2), 2], rtol=1e-15)
    np.testing.assert_allclose(g, [[0.3 * math.sqrt(2), 0], [-0.2, 0.5]], rtol=1e-15)
    np.testing.assert_allclose(h, [6.4], rtol=1e-15)
    np.testing.assert_allclose(model.laws[0].sd(0.25, x, p), 0.64 + math.sqrt(0.5), rtol=1e-15)
    with pytest.raises(ModelError, match="the diffusion needs a value for 's'"):
        model.g_named(jnp.asarray(0.0), x, {"r": 1.0})


def entries(model):
    return {(one.row, one.column): str(one.formula) for one in model.g_function.entries}


def test_a_noise_alone_is_of_its_line_and_a_numbered_one_is_shared():
    model = equations("dx = s*dw + c*dw1\ndy = dt + r*dw + c2*dw1\ndz = -z*dt")
    assert entries(model) == {(0, 0): "s", (0, 1): "c", (1, 2): "r", (1, 1): "c2"}
    assert model.g_function.columns == 3
    assert equations("dx = dt + s*dW7") == equations("dx = dt + s*dw")


def test_a_whole_model_without_noise_is_an_ode():
    model = equations("dx = -a*x*dt")
    assert model == equations("dx = -a*x", diffusion="none")
    assert not model.general


def test_ranges_by_default():
    model = equations(
        "dx = -k*x*dt + (s + k)*dw1\ndy = -y*dt + c*dw1 + r*dw2", noise={"x": sf.normal(sd="q*x")}, params={"r": 2.0}
    )
    assert {name: str(one) for name, one in model.params.items()} == {
        "k": "real", "s": "positive", "c": "real", "r": "fixed at 2", "q": "positive",
    }  # fmt: skip


def test_abbreviations_are_filled_in():
    long = equations("dx = -k*x*(1 - k*x/m)*dt + s*dw")
    assert equations("f := k*x\n\ng1 := 1 - f/m  # of f\ndx = -f*g1*dt + s*dw") != long  # other brackets, other steps
    assert equations("f := k*x\ndx = f - 2*f") == equations("dx = k*x - 2*(k*x)")
    assert list(equations("unused := q*x\ndx = -k*x").params) == ["k"]


def test_columns():
    assert equations("dx = v\ndv = -x\ny = x").observations == ("y",)
    assert equations("dx = v\ndv = -x\nx = x") == equations("dx = v\ndv = -x", hidden=["v"])
    assert equations("dx = v\ndv = -x\nx = x\nv = v") == equations("dx = v\ndv = -x")
    assert equations("dx = v\ndv = -x\nx = x").hidden == ("v",)


def test_lines_that_begin_with_d():
    whole = equations("dx = -x*dt + dw\ndose = k*x\ndelta = 2*x")
    assert (whole.states, whole.observations) == (("x",), ("dose", "delta"))
    drift = equations("dx = -x\ndose = k*x", noise={"dose": "normal"})
    assert (drift.states, drift.observations) == (("x",), ("dose",))
    assert equations("dx = -x\ndose = k*x").states == ("x", "ose")
    assert equations("ddelay = -delay\ndelay = delay", noise={"delay": "normal"}).observations == ("delay",)
    assert equations("dk = 0\ndx = -k*x*dt + dw").states == ("k", "x")
    assert equations("dv = v - w\ndw = v").states == ("v", "w")
    assert "dwell" in equations("dx = -x*dwell").params


def test_second_order():
    model = equations("x'' = -k*x - c*x' + s*dw")
    assert model == equations("dx = x_dot*dt\ndx_dot = (-k*x - c*x_dot)*dt + s*dw", hidden=["x_dot"])
    assert (model.states, model.observations) == (("x", "x_dot"), ("x",))
    assert equations("x'' = -k*x - c*x'\ny = x + x'").observations == ("y",)
    assert equations("x'' = -k*x", diffusion="none").diffusion == "none"


def test_second_order_drifts_have_no_noise_in_the_position():
    model = equations("x'' = -k*x\ndy = x - y")
    assert entries(model) == {
        (1, 0): "G_x_dot_x_dot", (2, 0): "G_y_x_dot", (2, 1): "G_y_y",
    }  # fmt: skip
    assert {name: str(one) for name, one in model.params.items()} == {
        "k": "real", "G_x_dot_x_dot": "positive", "G_y_x_dot": "real", "G_y_y": "positive",
    }  # fmt: skip
    assert entries(equations("x'' = -k*x\ndy = x", diffusion="scalar")) == {(1, 0): "G_scalar", (2, 1): "G_scalar"}
    assert entries(equations("x'' = -k*x", diffusion="diagonal")) == {(1, 0): "G_x_dot_x_dot"}


def test_pi_is_known():
    model = equations("dx = sin(2*pi*t)")
    assert not model.params
    np.testing.assert_allclose(model.f(jnp.asarray(0.25), jnp.zeros(1), jnp.zeros(0)), [1.0], rtol=1e-15)


TWO = "dx = y\ndy = -x"


@pytest.mark.parametrize(
    ("diffusion", "found"),
    [
        ([["free", 0], [0, 0.3]], {(0, 0): "G_x_x", (1, 1): "0.3"}),
        (["free", 0.3], {(0, 0): "G_x_x", (1, 1): "0.3"}),
        ([[1, 0], ["free", "free"]], {(0, 0): "1", (1, 0): "G_y_x", (1, 1): "G_y_y"}),
        ([["s*x"], ["r"]], {(0, 0): "s*x", (1, 0): "r"}),
        ([[0, 0, "free"], ["free", 0, 0]], {(0, 2): "G_x_3", (1, 0): "G_y_1"}),
        ([np.float64(0.5), np.int64(2)], {(0, 0): "0.5", (1, 1): "2"}),
    ],
)
def test_known_entries_of_the_diffusion(diffusion, found):
    model = equations(TWO, diffusion=diffusion)
    assert entries(model) == found
    assert from_dict(to_dict(model)) == model


def test_rows_that_spell_out_a_structure_are_that_structure():
    assert equations(TWO, diffusion=["free", "free"]) == equations(TWO, diffusion="diagonal")
    assert equations(TWO, diffusion=[["free", 0], ["free", "free"]]) == equations(TWO)
    assert equations(TWO, diffusion=[0, 0]) == equations(TWO, diffusion="none")
    named = equations(TWO, {"G_x_x": sf.interval(0, 2)}, diffusion=["free", "free"])
    assert str(named.params["G_x_x"]) == "in (0, 2)"


LONG = "f := " + "x+" * 900 + "x\ndx = f\n" + "".join(f"c{i} = f\n" for i in range(15))
REFUSED = [
    # text, what the first line says, the text above the caret (None: the end of the line)
    ("dx = a*x*dt + dw\ndp = m*p + s*p*dw", "write dp = (m*p)*dt + s*p*dw", "m*p +"),
    ("dp = m*p + s*p*dw", "a term has neither dt nor a noise; write dp = (m*p)*dt + s*p*dw", "m*p +"),
    ("dp = m*p*dt + q + s*dw", "write dp = (q + m*p)*dt + s*dw", "q"),
    ("dx = dw\ndp = m*p", "this line has neither dt nor a noise, but others have; write dp = (m*p)*dt", "m*p"),
    ("dx = dw\ndp/dt = m*p", "write dp = (m*p)*dt", "m*p"),
    ("dx = dw\ndp/dt = m*p*dt", "the left side must be dp, as other lines have dt or a noise", "m*p"),
    ("dx = dw\ndy = m*x", "write dy = (m*x)*dt for an equation of motion, or give a column", "m*x"),
    ("dx = x**2*dw*dt", "dt and dw cannot be multiplied with each other", "*dt"),
    ("dx = dt**2", "a power of dt cannot be read", "**2"),
    ("dx = 2**dt", "a power of dt cannot be read", "**dt"),
    ("dx = sqrt(dt)*s", "sqrt(dt) cannot be read; an equation is a sum of formulas times dt and dw", "sqrt"),
    ("dx = x/dt", "nothing can be divided by dt", "/dt"),
    ("dx = G*x", "'G' is the diffusion matrix here; choose another name", "G"),
    ("dG = -G", "'G' cannot be the name of a state", "G"),
    ("dpi = -x", "'pi' cannot be the name of a state", "pi"),
    ("d2x/dt2 = -x", "a second derivative is written x'' = ...", "2x"),
    ("d^2x/dt^2 = -x", "a second derivative is written x'' = ...", "x/"),
    ("d**2x/dt**2 = -x", "a second derivative is written x'' = ...", "x/"),
    ("x' = -x", "write dx/dt = ... or dx = ... for the first derivative", "x'"),
    ("dx = -x'", "is the velocity of a line x'' = ..., and there is none", "x'"),
    ("x'' = -x''", "stands on the left side only", "x''"),
    ("x'' = -x*dt", "is per unit of time already; write it without dt", "x*dt"),
    ("x'' = -x\ndx_dot = 1", "'x_dot' already has an equation, on line 2", "x_dot"),
    ("dx = -x\ny = z", "an observation must depend on a state, and none stands here; the states are x", "z"),
    ("dx = -x*dt\ny = x + s*dw", "dw cannot stand in an observation; write dy = ... for an equation of motion", "dw"),
    ("dx = -x\ny = x*dt", "dt cannot stand in an observation", "dt"),
    ("dx = -x\ny = x\ny = 2*x", "the column 'y' already has a line, line 3 of the equations", "y"),
    ("dx = -x\nt = x", "'t' cannot be the name of a column", "t"),
    ("dx = -x\ny/dt = x", "an equation must begin with d and the name of a state", "y"),
    ("dx = -x\ny = dx", "the derivative 'dx' cannot stand on the right side", "dx"),
    ("dx = -f\nf := k*x", "'f' is defined on line 3; move that line above this one", "f"),
    ("f := f + 1\ndx = f", "'f' is defined on line 2; move that line above this one", "f +"),
    ("f := 1\nf := 2\ndx = f", "'f' is already defined", "f"),
    ("x := 1\ndx = x", "'x' is a state; an abbreviation must have another name", "x"),
    ("exp := 1\ndx = x", "'exp' cannot be the name of an abbreviation", "exp"),
    ("f := s*dw\ndx = f", "an abbreviation must be without dw", "dw"),
    ("dw1 := s\ndx = x", "'dw1' is a noise; an abbreviation must have another name", "dw1"),
    ("f = k*x\ndx = -f", "'f' is an observed column, so it cannot stand here; to abbreviate, write f := ...", "f"),
    ("dv = -w*dt + dw\ndw = v*dt", "cannot stand on the right side; number the noise, as in dw_1", "dw"),
    ("y = 2*k", "an equation must begin with d and the name of a state, as in dprey = ...", "y"),
    ("a1 := " + "x+" * 500 + "x\na2 := " + "a1+" * 3 + "a1\ndx = a2", "with its abbreviations filled in", "a1"),
    (LONG, "with abbreviations filled in, a model must have at most", "c"),
    ("dx = (" + "x+" * 900 + "x)*(dt+dw1+dw2)", "multiplied out, an equation must have at most", "*(dt"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "problem", "above"), REFUSED, ids=[one[0][:25] for one in REFUSED])
def test_a_refusal_says_what_and_shows_where(text, problem, above):
    with pytest.raises(EquationError) as caught:
        equations("# remark\n" + text)
    first, line, caret = str(caught.value).split("\n")
    assert re.match(r"line \d+ of the equations: ", first)
    assert problem in first
    assert len(first) < 220
    assert line[caret.index("^") :].startswith(above)


@pytest.mark.parametrize(
    ("sd", "problem", "above"),
    [
        ("s*", "the sd of 'x': a number, a name or ( must come here", ""),
        ("s*dw", "the sd of 'x': a standard deviation must be without dw", "dw"),
        ("s*dx", "the sd of 'x': the derivative 'dx' cannot stand on the right side", "dx"),
        ("G", "the sd of 'x': 'G' is the diffusion matrix", "G"),
        ("__import__('os')", "the sd of 'x': \"'\" cannot be read", "'"),
        ("s*x\n = 3", "the sd of 'x': only one = is read", "="),
    ],
)
def test_a_wrong_standard_deviation_shows_its_place(sd, problem, above):
    with pytest.raises(EquationError) as caught:
        equations("dx = -x", noise={"x": sf.normal(sd=sd)})
    first, line, caret = str(caught.value).split("\n")
    assert first.startswith(problem)
    assert line[caret.index("^") :].startswith(above)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: equations("dx = dw", diffusion="diagonal"),
            "diffusion must be left out here, as the equations have dt",
        ),
        (lambda: equations("dx = x", hidden=["z"]), r"hidden must name states \(x\), not 'z'"),
        (lambda: equations("dx = x\ny = x", hidden=["x"]), "hidden must be left out beside observation lines"),
        (lambda: equations("dx = x", hidden=["x"]), "hidden must leave at least one state that is observed"),
        (lambda: equations("dx = x", noise={"y": "normal"}), r"noise must name observed columns \(x\), not 'y'"),
        (lambda: equations("dx = x", noise={"x": "gauss"}), "the law of 'x' must be one of normal, lognormal"),
        (lambda: equations("dx = x", initial={"y": 1}), r"initial must name states \(x\), not 'y'"),
        (lambda: equations("dx = x", inputs=["se"]), "input 'se' must be a name in the equations"),
        (lambda: equations("dx = x\ny = x", inputs=["y"]), "input 'y' must be a name in the equations"),
        (lambda: equations(TWO, diffusion=[1]), r"diffusion must have 2 row\(s\), one per state"),
        (lambda: equations(TWO, diffusion=[[1, 0], [1]]), r"diffusion must have 2 row\(s\), one per state"),
        (lambda: equations(TWO, diffusion=[[], []]), r"diffusion must have 2 row\(s\), one per state"),
        (lambda: equations(TWO, diffusion=[["free", "free"], [0, 1]]), "row 1 of diffusion has 'free' above the diag"),
        (lambda: equations(TWO, diffusion=[[None, 0], [0, 1]]), "row 1 of diffusion must be made of numbers, 'free'"),
        (lambda: equations(TWO, diffusion=[math.nan, 1]), "row 1 of diffusion must be made of numbers, 'free'"),
        (lambda: equations("dx = G_x_x\ndy = 1", diffusion=["free", 1]), "'G_x_x' is an entry of G here"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_line(call, message):
    with pytest.raises(ModelError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
