"""General models on disk: noise laws, hidden states, starts, known entries of G and priors come back as they were."""

import json
import math

import jax.numpy as jnp
import numpyro.distributions as dist
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sdefit as sf
from sdefit.dynamics.equations import equations
from sdefit.dynamics.model_file import MissingDrift, from_dict, model_text, read_model, to_dict, write_model
from sdefit.dynamics.parameters import Parameter
from sdefit.dynamics.sde import SDE
from sdefit.errors import ModelError

PRIORS = [
    dist.Normal(0.5, 2), dist.LogNormal(0, 1), dist.HalfNormal(2.0), dist.Uniform(-1, 3), dist.Gamma(2, 3),
    dist.Exponential(0.5), dist.Beta(2, 3),
]  # fmt: skip
TEXTS = [
    "dx = -k*x + u\ndv = x - v",
    "dx = (u - k*x)*dt + s*x*dw1  # déjà vu\ndv = (x - v)*dt + r*dw1 + 0.2*dw",
    "x'' = -k*x + u",
    "x'' = -k*x + u*x' + s*dw\ndv = -v*dt",
    "dx = -k*x + u\ndv = x - v\ny = x*v\nx = x",
    "f := k*x + u\ndx = -f*dt + dw\ndv = f*dt\nx = x\ndose = f*q",
]
LAWS = st.sampled_from(
    ["normal", "lognormal", sf.normal(0.1), sf.lognormal(sd=2), sf.normal("q*x + 1"), sf.normal("x")]
)
STARTS = st.none() | st.sampled_from(["rest", "stationary", {"x": 1}, {"x": (0.5, 2)}, {"x": (1, 0)}])
ROWS = st.sampled_from(["full", "diagonal", "scalar", "none", ["free", 0.3], [["free", 0], [0.1, "a*x"]], ["s", "s"]])


@st.composite
def models(draw):
    text = draw(st.sampled_from(TEXTS))
    whole, columns = "dw" in text, "\nx = x" in text
    ranges = {"k": draw(st.sampled_from([sf.positive(2), sf.interval(-1, 1), 0.3]) | priors())}
    diffusion = "full" if whole else draw(ROWS)
    hidden = [] if columns or "x''" in text else draw(st.sampled_from([[], ["v"]]))
    noise = draw(st.none() | LAWS.map(lambda law: {"x": law}))
    try:
        return equations(text, ranges, diffusion, 'a "name"', ["u"], draw(st.sampled_from(["linear", "previous"])),
                         hidden=hidden, noise=noise, initial=draw(STARTS))  # fmt: skip
    except ModelError as error:
        assert "diffusion must have" in str(error)  # noqa: PT017 (rows of another size)
        return equations("dx = -x")


def priors():
    return st.sampled_from(PRIORS).map(lambda one: Parameter(prior=one))


@settings(max_examples=100, suppress_health_check=list(HealthCheck), deadline=None)
@given(models())
def test_a_made_up_model_comes_back_equal(tmp_path, model):
    back = from_dict(json.loads(json.dumps(to_dict(model), allow_nan=False)))
    assert back == model
    assert hash(back) == hash(model)
    write_model(model, tmp_path / "model.toml")
    read = read_model(tmp_path / "model.toml")
    assert read == model
    assert read.drift.text == model.drift.text
    assert model_text(read) == model_text(model)


def test_a_file_that_people_write(tmp_path):
    (tmp_path / "model.toml").write_text(
        'equations = """\ndx = v*dt\ndv = (-k*x - c*v)*dt + s*dw\ny = x\nz = 2*x\n"""\n'
        "initial = { x = 1, v = [0, 2] }\n"
        "[parameters]\nk = { prior = { normal = [0, 1] } }\n"
        '[noise]\ny = "lognormal"\nz = { law = "normal", sd = 0.1 }\n'
    )
    assert read_model(tmp_path / "model.toml") == equations(
        "dx = v*dt\ndv = (-k*x - c*v)*dt + s*dw\ny = x\nz = 2*x",
        {"k": sf.real(prior=dist.Normal(0.0, 1.0))},
        noise={"y": sf.lognormal(), "z": sf.normal(sd=0.1)},
        initial={"x": 1, "v": (0, 2)},
    )


def test_known_entries_of_the_diffusion_in_a_file(tmp_path):
    (tmp_path / "model.toml").write_text(
        'equations = "dx = v\\ndv = -x"\ndiffusion = [["free", 0], [0, 0.3]]\nhidden = ["v"]\n'
    )
    expected = equations("dx = v\ndv = -x", diffusion=[["free", 0], [0, 0.3]], hidden=["v"])
    assert read_model(tmp_path / "model.toml") == expected


@pytest.mark.parametrize("prior", PRIORS, ids=lambda one: type(one).__name__)
def test_priors_of_the_same_numbers_are_equal(prior):
    other = type(prior)(*[getattr(prior, word) for word in prior.arg_constraints])
    assert Parameter(prior=prior) == Parameter(prior=other)
    assert hash(Parameter(prior=prior)) == hash(Parameter(prior=other))
    assert Parameter(prior=prior) != Parameter(prior=dist.Normal(7, 7))


def test_a_prior_that_no_table_holds_is_refused():
    with pytest.raises(ModelError, match="the prior of 'a' cannot be written to a file"):
        model_text(equations("dx = a*x", {"a": sf.real(prior=dist.Cauchy(0, 1))}))


def drift(t, x, p):
    return -p["a"] * x


def spread(t, x, p):
    return 0.1


def test_functions_are_told_by_name_only():
    model = SDE(drift, ["x", "v"], {"a": 1.0}, drift, observe=drift, observations=["y", "z"],
                noise={"y": sf.lognormal(spread)}, initial="rest")  # fmt: skip
    back = from_dict(json.loads(json.dumps(to_dict(model))))
    assert (back.observations, back.initial, back.diffusion) == (("y", "z"), "rest", "given")
    for one in (back.drift, back.g_function, back.h_function, back.laws[0].sd):
        assert isinstance(one, MissingDrift)
    with pytest.raises(ModelError, match="cannot be found here"):
        back.h(jnp.asarray(0.0), jnp.zeros(2), jnp.zeros(0))
    assert from_dict(to_dict(back)) == back
    assert str(back)
    seen = SDE(drift, ["x", "v"], {"a": 1.0}, hidden=["v"])
    assert from_dict(to_dict(seen)).hidden == ("v",)


def test_equations_beside_functions_are_stored_but_not_written():
    model = equations("dx = -k*x\ndv = x", diffusion=drift, noise={"x": sf.normal(spread)})
    assert from_dict(to_dict(model)).g_function == MissingDrift(f"{__name__}:drift")
    with pytest.raises(ModelError, match=r"must hold formulas, but the diffusion is the Python function .*:drift"):
        model_text(model)
    with pytest.raises(ModelError, match=r"must hold formulas, but the sd of 'x' is the Python function .*:spread"):
        model_text(equations("dx = -k*x", noise={"x": sf.normal(spread)}))
    seen = equations("dx = -k*x\ndv = x").replace(observe=drift, observations=["y", "z"], noise=None)
    assert from_dict(to_dict(seen)).observations == ("y", "z")
    with pytest.raises(ModelError, match="must hold formulas, but observe is the Python function"):
        model_text(seen)


@pytest.mark.parametrize(
    "changes",
    [
        {"observe": None, "observations": (), "hidden": ["v"], "noise": None, "params": {"k": 1.0, "s": sf.real()}},
        {"diffusion": "diagonal", "params": {"k": sf.real(), "q": sf.real()}},
    ],
    ids=str,
)
def test_a_model_of_replaced_parts_is_written_anew(changes):
    model = equations(
        "f := k*x\ndx = v*dt - f*dt\ndv = s*(v*dt + dw)*0 + s*dw - v*dt\ny = q*x*v", noise={"y": "lognormal"}
    )
    changed = model.replace(**changes)
    if "diffusion" in changes:
        changed = changed.replace(drift=equations("f := k*x\ndx = v - f\ndv = -v\ny = q*x*v").drift)
    assert from_dict(to_dict(changed)) == changed


WRONG = [
    ('hidden = "v"', "hidden must be a list of names, not 'v'"),
    ('hidden = ["w"]', r"hidden must name states \(x, v\), not 'w'"),
    ("noise = 3", "noise must be a table of columns, not 3"),
    ("noise = { x = 3 }", r"the noise of 'x' must be a law or a table such as \{sd = 0.1\}, not 3"),
    ('noise = { x = "cauchy" }', "the law of 'x' must be one of normal, lognormal, not 'cauchy'"),
    ("noise = { x = { std = 1 } }", "the noise of 'x' has the unknown key 'std'; the keys are law, sd"),
    ("noise = { x = { sd = -1 } }", "the noise of 'x': sd must be zero or positive"),
    ("noise = { x = { sd = [1] } }", "the sd of 'x' must be a number or a formula"),
    ('noise = { x = { sd = { function = "a:b" } } }', "the sd of 'x' must be a number or a formula"),
    ('noise = { y = "normal" }', r"noise must name observed columns \(x, v\), not 'y'"),
    ('initial = "steady"', "initial must be 'rest', 'stationary' or a mapping"),
    ('initial = { x = "1" }', "initial of 'x' must be a number, or a mean and a standard deviation, not '1'"),
    ("initial = { x = [1, 2, 3] }", "initial of 'x' must be a number, or a mean"),
    ("initial = { y = 1 }", "initial must name states"),
    ("diffusion = [[1, 0], [0, true]]", "row 2 of diffusion must be made of numbers, 'free' and formulas, not True"),
    ('diffusion = { function = "a:b" }', "diffusion must be one of"),
    ("[parameters]\nk = { prior = 3 }", r"parameter 'k': prior must be a table of one distribution .*, not 3"),
    ("[parameters]\nk = { prior = { cauchy = [0, 1] } }", "'k': prior must be one of normal, lognormal, half_normal"),
    (
        "[parameters]\nk = { prior = { normal = [0] } }",
        r"the prior normal must have 2 number\(s\), loc, scale, not \[0\]",
    ),
    ("[parameters]\nk = { prior = { normal = [0, -1] } }", "and scale positive, not -1"),
    ("[parameters]\nk = { prior = { uniform = [1, 0] } }", "the first below the second"),
    ("[parameters]\nk = { prior = { gamma = [1, nan] } }", r"the prior gamma must have 2 number\(s\)"),
    ("[parameters]\nk = { fixed = 1, prior = { normal = [0, 1] } }", "'k': a parameter must have a prior or a fixed"),
]


@pytest.mark.parametrize(("line", "message"), WRONG, ids=[one[0][:40] for one in WRONG])
def test_a_wrong_entry_is_refused_in_one_line(tmp_path, line, message):
    (tmp_path / "model.toml").write_text(f'equations = "dx = -k*x\\ndv = x"\n{line}\n')
    with pytest.raises(ModelError, match=message) as caught:
        read_model(tmp_path / "model.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "stored",
    [
        {"observe": {"function": "a:b"}},
        {"observations": ["y"]},
        {"observe": 3, "observations": ["y"]},
        {"noise": math.pi},
    ],
)
def test_a_spoilt_stored_model_is_refused(stored):
    with pytest.raises(ModelError):
        from_dict({"function": "a:b", "states": ["x"], "parameters": {}} | stored)
