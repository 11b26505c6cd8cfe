"""Equations as text: values against Python's own, refusals with their place, and nothing ever executed.

Python's `eval` is the independent answer here: it runs on text that this file made, or that was read before.
"""

import ast
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdefit.dynamics.equations import equations
from sdefit.dynamics.expressions import FUNCTIONS, PLAIN, latex_name
from sdefit.dynamics.parameters import fixed, positive, real
from sdefit.dynamics.parser import MAX_DEPTH, MAX_STEPS, MAX_TEXT
from sdefit.dynamics.sde import SDE
from sdefit.errors import EquationError, ModelError

VALUES = {"t": 0.7, "x": 1.3, "y": -0.4, "a": 2.1, "b_1": -3.0, "lambda_": 0.25, "exponent": 5.5}
NUMPY = PLAIN | {word: getattr(np, word) for word in FUNCTIONS}
WORDS = re.compile(r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<name>[A-Za-z_]\w*)")


def both(word):
    """The function as Python has it on plain floats, and as NumPy has it on the values of names."""
    plain = getattr(math, word, abs)
    return lambda value: plain(value) if type(value) is float else getattr(np, word)(value)


def as_floats(source):
    """The same formula with every number a float, and every name one that Python also takes as a name."""

    def swap(found):
        word = found.group()
        if found.lastgroup == "number":
            return f" {float(word)!r} "
        return word if word in FUNCTIONS else f"v_{word}"

    return WORDS.sub(swap, source).strip()


def python_value(source, values):
    """What Python makes of it: constants as plain floats, names as NumPy float64."""
    scope = {"__builtins__": {}} | {word: both(word) for word in FUNCTIONS}
    with np.errstate(all="ignore"):
        return eval(as_floats(source), scope, {f"v_{name}": np.float64(one) for name, one in values.items()})


def has_bad_constant(source):
    """Whether some part made of numbers alone is not a finite real number in Python."""
    for node in ast.walk(ast.parse(as_floats(source), mode="eval")):
        inner = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} - set(FUNCTIONS)
        if isinstance(node, ast.expr) and not inner and not isinstance(node, ast.Name):
            try:
                value = python_value(ast.unparse(node), {})
            except (ArithmeticError, ValueError):
                return True
            if isinstance(value, complex) or not math.isfinite(value):
                return True
    return False


def numpy_drift(model, values):
    with np.errstate(all="ignore"):
        return [
            one.evaluate({name: np.float64(v) for name, v in values.items()}, NUMPY) for one in model.drift.formulas
        ]


def same(ours, theirs):
    # A few roundings: whole powers may be multiplications on one side and a call of pow on the other.
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=0)


NUMBERS = st.sampled_from(["0", "1", "2", "3", "10", "0.5", "2.", ".25", "1e3", "1E-2", "2.5e+1", "7", "1e200"])
ATOMS = NUMBERS | st.sampled_from(list(VALUES))
SPACE = st.sampled_from(["", "", "", " ", "\t"])


def larger(inner):
    marks = st.sampled_from(["+", "-", "*", "/", "**"])
    infix = st.tuples(inner, SPACE, marks, SPACE, inner).map("".join)
    sign = st.tuples(st.sampled_from("+-"), SPACE, inner).map("".join)
    bracket = st.tuples(SPACE, inner).map(lambda pair: f"({pair[0]}{pair[1]})")
    call = st.tuples(st.sampled_from(FUNCTIONS), SPACE, inner).map(lambda three: f"{three[0]}{three[1]}({three[2]})")
    return infix | infix | sign | bracket | call


FORMULAS = larger(st.recursive(ATOMS, larger, max_leaves=12))


def try_many(strategy, check, count, models):
    """Runs `check` on at least `count` different draws, of which so many are models; ten at a time costs far less."""
    seen, read = set(), set()

    @settings(max_examples=count // 6, suppress_health_check=list(HealthCheck))
    @given(st.lists(strategy, min_size=10, max_size=10, unique=True))
    def ten(drawn):
        read.update(one for one in drawn if check(one))
        seen.update(drawn)

    ten()
    assert len(seen) >= count and len(read) >= models


def test_a_formula_has_the_value_python_gives_it():
    try_many(FORMULAS, check_formula, 2000, models=1000)


def check_formula(source) -> bool:
    """Whether it is a model."""
    try:
        model = equations(f"dx = {source}\ndy/dt = x")
    except EquationError:
        assert has_bad_constant(source)
        return False
    assert not has_bad_constant(source)
    same(numpy_drift(model, VALUES), [python_value(source, VALUES), VALUES["x"]])
    printed = str(model.drift.formulas[0])
    assert equations(f"dx = {printed}\ndy = x") == model, printed
    return True


def test_the_compiled_drift_is_the_same():
    compared = []
    settings(max_examples=60, suppress_health_check=list(HealthCheck))(given(FORMULAS)(check_compiled))(compared)
    assert sum(compared) >= 20


def check_compiled(compared, source):
    try:
        model = equations(f"dx = {source}\ndy/dt = x")
    except EquationError:
        return
    x = jnp.asarray([VALUES["x"], VALUES["y"]])
    value = model.drift(VALUES["t"], x, VALUES)
    assert value.shape == (2,)
    assert value.dtype == jnp.float64
    expected = np.asarray([python_value(source, VALUES), VALUES["x"]], dtype=float)
    # XLA's exp, tanh and pow may differ from NumPy's in the last places, and powers of powers magnify that.
    compared.append(bool(np.all(np.isfinite(expected)) and np.all(np.abs(expected) < 1e6)))
    if compared[-1]:
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-12)


ALPHABET = "dxyt =+-*/()0123456789.eE_^#\n\t ,'\"[]{}:;@%<>!&|~\\$?abcexplognsqrtλ−²٣５"
TEXTS = st.one_of(
    st.text(max_size=40),
    st.text(ALPHABET, max_size=40),
    st.text(ALPHABET, max_size=25).map("dx = {}".format),
    st.lists(
        st.sampled_from(["x", "y", "t", "2", "1.5", "+", "-", "*", "/", "**", "(", ")", "exp(", " "]), max_size=9
    ).map(lambda words: "dx = " + "".join(words)),
)


def test_any_text_is_a_model_or_an_equation_error():
    try_many(TEXTS, check_text, 10_000, models=100)


def check_text(text) -> bool:
    """Whether it is a model."""
    try:
        model = equations(text)
    except EquationError:
        return False
    values = {name: 0.1 + 0.3 * i for i, name in enumerate(("t", *model.states, *model.params))}
    sources = [line.partition("#")[0].partition("=")[2] for line in re.split("\r\n|\r|\n", text)]
    same(numpy_drift(model, values), [python_value(one, values) for one in sources if one.strip()])
    return True


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("-3**2", -9.0),
        ("2**-1", 0.5),
        ("2**3**2", 512.0),
        ("(2**3)**2", 64.0),
        ("-2*3", -6.0),
        ("2*-3", -6.0),
        ("8/4/2", 1.0),
        ("8/4*2", 4.0),
        ("5-3-1", 1.0),
        ("1--+-1", 0.0),
        ("2**-2**2", 0.0625),
        ("7/2", 3.5),
        ("exp(0) + abs(-3)", 4.0),
        (".5e1 + 1.", 6.0),
    ],
)
def test_operators_group_as_in_python(source, value):
    assert equations(f"dx = {source}").drift(0.0, jnp.zeros(1), {}) == value


def test_states_parameters_and_order():
    model = equations(
        """
        # two states
        dy/dt = b*y - a*z + sin(t)   # the first

        dz = lambda*y
        """,
        params={"lambda": fixed(2), "b": positive(3)},
        diffusion="diagonal",
        name="pair",
    )
    assert model.states == ("y", "z")
    assert model.params == {"b": positive(3), "a": real(), "lambda": fixed(2)}
    assert list(model.params) == ["b", "a", "lambda"]
    assert (model.diffusion, model.name) == ("diagonal", "pair")


def test_names_that_only_look_like_ours_are_plain_names():
    model = equations("dx = d*x + e*exponent + log_2 + T + xt")
    assert list(model.params) == ["d", "e", "exponent", "log_2", "T", "xt"]


@pytest.mark.parametrize("seed", range(3))
def test_lotka_volterra_by_hand(seed):
    rng = np.random.default_rng(seed)
    a, b, c, d = rng.uniform(0.5, 2, 4)
    prey, predator = rng.uniform(1, 5, 2)
    model = equations("dprey = a*prey - b*prey*predator\ndpredator = -c*predator + d*prey*predator")
    value = jax.jit(model.f)(jnp.asarray(0.0), jnp.asarray([prey, predator]), jnp.asarray([a, b, c, d]))
    np.testing.assert_allclose(value, [a * prey - b * prey * predator, -c * predator + d * prey * predator], rtol=1e-14)


def test_equal_formulas_share_one_compiled_program():
    traces = []

    def count(model, x):
        traces.append(model)
        return model.drift(0.0, x, {"a": 2.0})

    compiled = jax.jit(count, static_argnums=0)
    for text in ("dx = a*x**2", "dx = a*x**2", "  dx/dt = a * (x**2.0)  # spaced"):
        assert compiled(equations(text), jnp.asarray([3.0])) == 18.0
    assert len(traces) == 1
    assert compiled(equations("dx = a*x**3"), jnp.asarray([3.0])) == 54.0
    assert equations("dx = a*x") != equations("dx = a*y*x")


def test_whole_powers_have_derivatives_at_and_below_zero():
    model = equations("dx = x**3 - x**2")
    slope = jax.vmap(jax.grad(lambda x: model.drift(0.0, x[None], {})[0]))(jnp.asarray([-2.0, 0.0, 1.0]))
    np.testing.assert_allclose(slope, [16.0, 0.0, 1.0], rtol=1e-14)


def test_the_dtype_follows_the_states():
    drift = equations("dx = 1/3 + a*t").drift
    assert drift(0.0, jnp.zeros(1, jnp.float32), {"a": 1}).dtype == jnp.float32
    assert drift(jnp.asarray(1), jnp.asarray([1]), {"a": jnp.asarray(1)}).dtype == jnp.float64


def test_inputs_reach_the_drift_by_name():
    model = equations("dx = u*k - x", inputs=["u"])
    assert list(model.params) == ["k"]
    assert model.drift(0.0, jnp.asarray([1.0]), {"k": 2.0, "u": 3.0}) == 5.0
    with pytest.raises(ModelError, match="the drift needs a value for 'u', but only k came"):
        model.drift(0.0, jnp.asarray([1.0]), {"k": 2.0})


def test_a_point_of_the_wrong_length_is_refused():
    with pytest.raises(ModelError, match=r"x must hold 2 number\(s\), one per state, but its shape is \(1,\)"):
        equations("dx = y\ndy = x").drift(0.0, jnp.zeros(1), {})


REFUSED = [
    # text, what the first line says, the character above the caret (None: the end of the line)
    ("dx = a*", "a number, a name or ( must come here, not the end of the line", None),
    ("dx = *a", "a number, a name or ( must come here, not '*'", "*"),
    ("dx =", "must come here, not the end of the line", None),
    ("dx = 2x", "an operator must come before 'x'; write * to multiply", "x"),
    ("dx = a b", "an operator must come before 'b'; write * to multiply", "b"),
    ("dx = 2(x)", "an operator must come before '('", "("),
    ("dx = x^2", "'^' cannot be read; write ** for a power", "^"),
    ("dx = a − x", "write an ordinary minus sign -", "−"),
    ("dx = a×x", "write * to multiply", "×"),
    ("dx = x²", "write ** and the exponent", "²"),
    ("dx = α*x", "names are made of the letters a-z", "α"),
    ("dx = ٣*x", "'٣' cannot be read", "٣"),
    ("dx = a\xa0*x", "replace this unusual space", " "),
    ("dx = (a*x", "this ( is never closed", "("),
    ("dx = a*x)", "this ) was never opened", ")"),
    ("dx = f(x)", "'f' is not a function (those are exp, log, sqrt, sin, cos, tan, tanh, abs)", "f"),
    ("dx = exp", "'exp' is a function; write exp(...)", "e"),
    ("dx = exp()", "a number, a name or ( must come here, not ')'", ")"),
    ("dx = exp(x, t)", "each function takes exactly one argument", ","),
    ("dx = x // 2", "must come here, not '/'", "/"),
    ("dx = x % 2", "'%' cannot be read", "%"),
    ("dx = 1 = 2", "only one = is read", "="),
    ("dx == 2", "must come here, not '='", "="),
    ("dx += 2", "'=' must come here, not '+'", "+"),
    ("x = 2", "an equation must begin with d and the name of a state", "x"),
    ("d = 2", "an equation must begin with d and the name of a state", "d"),
    ("2 = 2", "an equation must begin with d and the name of a state", "2"),
    ("dx/dy = 2", "'dt' must come here, not 'dy'; write dx/dt = ... or dx = ...", "d"),
    ("dx", "'=' must come here, not the end of the line", None),
    ("dt = 2", "'t' cannot be the name of a state", "t"),
    ("dexp = 2", "'exp' cannot be the name of a state", "e"),
    ("d2x = 2", "'2x' cannot be the name of a state", "2"),
    ("dx = a*dt", "write the drift without dt", "d"),
    ("dx = a + g*dw", "write the drift without dw", "d"),
    ("dx = sin(2*pi*t)", "'pi' is not known here", "p"),
    ("dx = 1\ndy = dx", "the derivative 'dx' cannot stand on the right side", "d"),
    ("dx = 1\n\ndx = 2", "'x' already has an equation, on line 2", "x"),
    ("dx = 1/0", "this constant is not a finite real number", "/"),
    ("dx = 9**9**9", "this constant is not a finite real number", "*"),
    ("dx = x*log(-1)", "this constant is not a finite real number", "l"),
    ("dx = (-8)**(1/3)", "this constant is not a finite real number", "*"),
    ("dx = 1e999", "the number '1e999' is too large", "1"),
    ("dx = " + "9" * 5000, "is too large", "9"),
    ("dx = 012", "must not begin with 0", "0"),
    ("dx = 1_000", "an operator must come before '_000'", "_"),
    ("dx = 0x10", "an operator must come before 'x10'", "x"),
    ("dx = 1.2.3", "an operator must come before '.3'", "."),
    ("dx = __import__('os').system('true')", "cannot be read", "'"),
    ("dx = x.real", "'.' cannot be read", "."),
    ("dx = x[0]", "'[' cannot be read", "["),
    ("dx = lambda: 1", "':' cannot be read", ":"),
    ("dx = (y := 1)", "':' cannot be read", ":"),
    ("dx = 'text'", "cannot be read", "'"),
    ("dx = print(1)", "'print' is not a function", "p"),
    ("dx = x if x else y", "an operator must come before 'if'", "i"),
    ("dx = not x", "an operator must come before 'x'", "x"),
    ("dx = {}", "'{' cannot be read", "{"),
    ("dx = " + "(" * 9000, f"more than {MAX_DEPTH} deep", "("),
    ("dx = " + "-" * 9000 + "x", f"more than {MAX_DEPTH} deep", "-"),
    ("dx = " + "exp(" * 3000, f"more than {MAX_DEPTH} deep", "e"),
    ("dx = " + "2**" * 3000 + "2", f"more than {MAX_DEPTH} deep", "2"),
    ("dx = " + "1+2*x**(" * 1000, f"more than {MAX_DEPTH} deep", "("),
    ("dx = " + "x+" * 4000 + "x", f"at most {MAX_STEPS} numbers, names and operations", "+"),
]


@pytest.mark.parametrize(("text", "problem", "above"), REFUSED, ids=[one[0][:20] for one in REFUSED])
def test_a_refusal_says_what_and_shows_where(text, problem, above):
    with pytest.raises(EquationError) as caught:
        equations("# remark\n    " + text)
    first, line, caret = str(caught.value).split("\n")
    number = 2 + text.count("\n")
    assert first.startswith(f"line {number} of the equations: ")
    assert problem in first
    assert len(first) < 200
    assert len(line) < 130
    assert re.fullmatch(" +[\\^]", caret)
    assert line[caret.index("^") :][:1] == (above or "")


@pytest.mark.parametrize("text", ["", "\n \t\n", "# only a remark"])
def test_no_equation_is_refused(text):
    with pytest.raises(EquationError, match="the equations are empty; write one line per state"):
        equations(text)


def test_a_text_too_long_is_refused():
    with pytest.raises(EquationError, match=f"at most {MAX_TEXT} characters, but {MAX_TEXT + 1} were given"):
        equations("#" * (MAX_TEXT + 1))


def test_a_character_no_file_can_hold_is_refused():
    with pytest.raises(EquationError, match="cannot be written to a file"):
        equations("dx = 1  # \ud800")


@pytest.mark.parametrize("depth", [40, MAX_DEPTH])
def test_what_is_within_the_bounds_is_read(depth):
    assert equations("dx = " + "(" * depth + "x" + ")" * depth) == equations("dx = x")
    assert equations("dx = " + "-" * depth + "x").drift(0.0, jnp.ones(1), {}) == (-1) ** depth


def test_a_long_sum_is_read_printed_and_compared():
    text = "dx = " + "x+" * (MAX_STEPS // 2 - 1) + "x"
    model = equations(text)
    assert equations(f"dx = {model.drift.formulas[0]}") == model
    assert hash(equations(text)) == hash(model)
    assert model.latex().count(" + x") == MAX_STEPS // 2 - 1
    same(numpy_drift(model, {"x": 1.0}), [MAX_STEPS // 2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: equations(3), "equations must be text, one equation per line, not int"),  # pyright: ignore[reportArgumentType]
        (lambda: equations("dx = a*x", {"b": real()}), "params names 'b', which is not a parameter .* those are: a"),
        (lambda: equations("dx = a*x", {"x": real()}), "params names 'x', which is not a parameter"),
        (lambda: equations("dx = x", {"t": 1.0}), "params names 't', .* those are: none"),
        (lambda: equations("dx = a*x", ["a"]), "params must be a mapping"),  # pyright: ignore[reportArgumentType]
        (lambda: equations("dx = a*x", {"a": "real"}), "parameter 'a' must be"),  # pyright: ignore[reportArgumentType]
        (lambda: equations("dx = u", inputs="u"), r"inputs must be a list of names, not the string 'u'; write \['u'\]"),
        (lambda: equations("dx = u", inputs=["v"]), "input 'v' must be a name in the equations"),
        (lambda: equations("dx = x", inputs=["x"]), "input 'x' must be a name in the equations, and no state"),
        (lambda: equations("dx = t", inputs=["t"]), "input 't' must be a name in the equations, and no state"),
        (lambda: equations("dx = u", {"u": 1.0}, inputs=["u"]), "input 'u' must be .* no state, parameter"),
        (lambda: equations("dx = x", diffusion="all"), "diffusion must be one of"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_a_wrong_argument_is_refused_in_one_line(call, message):
    with pytest.raises(ModelError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_pi_may_be_given():
    model = equations("dx = sin(2*pi*t)", {"pi": math.pi})
    np.testing.assert_allclose(model.f(jnp.asarray(0.25), jnp.zeros(1), jnp.zeros(0)), [1.0], rtol=1e-15)


@pytest.mark.parametrize(
    ("source", "printed", "latex"),
    [
        ("a*(b+c)", "a*(b + c)", r"a \, \left(b + c\right)"),
        ("a-(b-c)", "a - (b - c)", r"a - \left(b - c\right)"),
        ("(a-b)-c", "a - b - c", "a - b - c"),
        ("(a/b)**2", "(a/b)**2", r"\left(\frac{a}{b}\right)^{2}"),
        ("a/b*c", "a/b*c", r"\frac{a}{b} \, c"),
        ("a*-b", "a*(-b)", r"a \, \left(-b\right)"),
        ("-(a+b)", "-(a + b)", r"-\left(a + b\right)"),
        ("(-a)**b", "(-a)**b", r"\left(-a\right)^{b}"),
        ("a**b**c", "a**b**c", r"a^{b^{c}}"),
        ("(a**b)**c", "(a**b)**c", r"\left(a^{b}\right)^{c}"),
        ("2*3.0*1e-9", "2*3*1e-09", r"2 \cdot 3 \, \left(1 \cdot 10^{-9}\right)"),
        ("exp(-a)/sqrt(abs(b))", "exp(-a)/sqrt(abs(b))", r"\frac{\exp\left(-a\right)}{\sqrt{\left|b\right|}}"),
    ],
)
def test_a_formula_prints_with_the_brackets_it_needs(source, printed, latex):
    formula = equations(f"dx = {source}").drift.formulas[0]
    assert str(formula) == printed
    assert formula.latex() == latex


@pytest.mark.parametrize(
    ("name", "latex"),
    [
        ("a", "a"),
        ("prey", r"\mathit{prey}"),
        ("alpha", r"\alpha"),
        ("theta1", r"\theta_{1}"),
        ("theta_12", r"\theta_{12}"),
        ("k_on", r"k_{\mathrm{on}}"),
        ("k_m", "k_{m}"),
        ("a_b_c", r"\text{a\_b\_c}"),
        ("5% {x}\\", r"\text{5\% \{x\}\textbackslash{}}"),
    ],
)
def test_latex_of_a_name(name, latex):
    assert latex_name(name) == latex


def test_the_answer_is_a_model():
    assert isinstance(equations("dx = x"), SDE)
