"""Models on disk: stored inside a result, and as TOML files that people write."""

import collections
import json
import sys
import types

import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdefit.dynamics import systems
from sdefit.dynamics.equations import equations
from sdefit.dynamics.model_file import MissingDrift, from_dict, model_text, read_model, to_dict, write_model
from sdefit.dynamics.parameters import Parameter, fixed, interval, positive, real
from sdefit.dynamics.sde import SDE
from sdefit.errors import EquationError, FileError, ModelError

TOML = '''
name = "lotka_volterra"
equations = """
dprey = a*prey - b*prey*predator
dpredator = -c*predator + d*prey*predator
"""
diffusion = "diagonal"
[parameters]
a = {lower = 0, start = 1.0}
b = {lower = 0}
c = {lower = 0, upper = 10}
d = {fixed = 1.0}
'''
SYSTEMS = [systems.ornstein_uhlenbeck, systems.double_well, systems.lotka_volterra, systems.lorenz63]


def module_drift(t, x, p):
    return -p["a"] * x


def function_model():
    return SDE(module_drift, ["x"], {"a": positive()})


def through_json(model):
    return from_dict(json.loads(json.dumps(to_dict(model), allow_nan=False)))


def rich_model():
    text = """
        # the prey, with a remark: "grows" \\ 'dies' \x0b dz = 1
        dprey = a*prey - b*prey*predator + u

        dpredator/dt = -c*predator + d*prey*predator*exp(-t)   # déjà vu
    """
    ranges = {"a": positive(1), "c": interval(0, 1e-7, start=5e-8), "d": fixed(1 / 3)}
    return equations(text, ranges, "scalar", 'the "big" \\ one', inputs=["u"])


def test_equations_come_back_equal():
    model = rich_model()
    back = through_json(model)
    assert back == model
    assert hash(back) == hash(model)
    assert back.drift.text == model.drift.text


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_built_in_system_comes_back_equal(system):
    assert through_json(system()) == system()


@pytest.mark.parametrize("drift", [lambda t, x, p: x, module_drift], ids=["lambda", "function elsewhere"])
def test_a_function_from_elsewhere_is_kept_by_name_only(drift):
    model = SDE(drift, ["x"], {"a": positive(2), "b": real()}, "none", "mine")
    back = through_json(model)
    assert (back.states, back.parameters, back.diffusion, back.name) == (
        model.states, model.parameters, model.diffusion, model.name,
    )  # fmt: skip
    with pytest.raises(ModelError, match=r"given as a Python function '.*' that cannot be found here; pass model= to"):
        back.f(jnp.asarray(0.0), jnp.zeros(1), jnp.ones(2))
    assert through_json(back) == back


def test_a_function_of_sdefit_is_found_again(monkeypatch):
    # A module that would stand inside the package, with a function written in it.
    module = types.ModuleType("sdefit.dynamics.pretend")
    module.drift = types.FunctionType(module_drift.__code__, globals(), "drift")  # pyright: ignore[reportAttributeAccessIssue]
    module.drift.__module__, module.drift.__qualname__ = module.__name__, "drift"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    model = SDE(module.drift, ["x"], {"a": positive(2)})
    assert to_dict(model)["function"] == "sdefit.dynamics.pretend:drift"
    assert through_json(model) == model


REFERENCES = [
    "os:system",
    "antigravity:fly",
    "sdefitx.evil:run",
    "sdefit.dynamics.systems.setup:np.savez",
    "sdefit.dynamics.systems.setup:evenly.__call__",
    "sdefit.dynamics.equations:SDE",
    "sdefit.dynamics.model_file:importlib",
    "sdefit.dynamics.equations:read",
    "sdefit.__main__:main",
    "sdefit..dynamics:drift",
    "sdefit.nowhere:drift",
    "sdefit.dynamics.sde",
    "",
]


@pytest.mark.parametrize("reference", REFERENCES)
def test_reading_never_reaches_other_code(reference):
    before = set(sys.modules)
    model = from_dict({"function": reference, "states": ["x"], "parameters": {}})
    assert model.drift == MissingDrift(reference)
    assert set(sys.modules) == before


class Flat:
    """A prior by its own words."""

    def log_prob(self, x):
        return 0.0 * x

    def __str__(self) -> str:
        return "flat"


def test_a_prior_is_told_but_not_read_back():
    model = SDE(module_drift, ["x"], {"a": Parameter(prior=Flat())})
    assert to_dict(model)["parameters"] == {"a": {"prior": "flat"}}
    assert through_json(model).params == {"a": real()}


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ([], r"a stored model must be a table of keys, not \[\]"),
        ({}, "must have its equations, or its function and states"),
        ({"function": "a:b", "states": "x"}, "must have its equations, or its function and states"),
        ({"function": "a:b", "states": ["x"], "parameters": 3}, "parameters must be a table of tables"),
        ({"function": "a:b", "states": ["x"], "parameters": {"a": {"lower": "0"}}}, "'a': lower must be a number"),
        ({"function": "a:b", "states": [[]]}, "states must be one or more names"),
        ({"function": "a:b", "states": ["x"], "diffusion": 3}, "diffusion must be one of"),
        ({"equations": "dx = 1", "code": "print()"}, "a stored model has the unknown key 'code'; the keys are name,"),
        ({"equations": "dx = 1", "function": "a:b"}, "unknown key 'function'"),
    ],
)
def test_a_spoilt_stored_model_is_refused(stored, message):
    with pytest.raises(ModelError, match=message):
        from_dict(stored)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def test_any_spoilt_entry_is_read_or_refused():
    outcomes = collections.Counter()

    @given(st.sampled_from(["name", "equations", "states", "diffusion", "inputs", "parameters"]), JSON)
    def check(key, value):
        model, message = None, ""
        try:
            model = from_dict(to_dict(rich_model()) | {key: value})
        except ModelError as refusal:
            message = str(refusal)
        outcomes[model is None] += 1
        if model is None:
            assert len(message.splitlines()) == 1
            return
        assert from_dict(to_dict(model)) == model

    check()
    assert min(outcomes[True], outcomes[False]) >= 3


def write(tmp_path, text):
    path = tmp_path / "model.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_model_file_is_read(tmp_path):
    expected = equations(
        "dprey = a*prey - b*prey*predator\ndpredator = -c*predator + d*prey*predator",
        {"a": positive(1.0), "b": positive(), "c": interval(0, 10), "d": fixed(1.0)},
        "diagonal",
        "lotka_volterra",
    )
    assert read_model(write(tmp_path, TOML)) == expected
    assert read_model(str(write(tmp_path, b"\xef\xbb\xbf" + TOML.encode().replace(b"\n", b"\r\n")))) == expected


def test_only_equations_are_needed(tmp_path):
    model = read_model(write(tmp_path, 'equations = "dx = a - b*x"\nparameters = {a = 3}'))
    assert model == equations("dx = a - b*x", {"a": fixed(3)})


@pytest.mark.parametrize(
    "model", [rich_model(), equations("dx = 1"), equations("dlambda = a*lambda**-2", {"a": -1e300})]
)
def test_a_written_model_is_read_back(tmp_path, model):
    write_model(model, tmp_path / "model.toml")
    back = read_model(tmp_path / "model.toml")
    assert back == model
    assert back.drift.text == model.drift.text
    assert model_text(back) == model_text(model)


def test_a_function_cannot_be_written(tmp_path):
    with pytest.raises(ModelError, match=r"must hold equations, but this model is the Python function .*:module_drift"):
        write_model(function_model(), tmp_path / "model.toml")
    assert not (tmp_path / "model.toml").exists()


EQ = 'equations = "dx = a*x"\n'
WRONG = [
    ("name = 'x'", r"equations must be text with one equation per line, not nothing"),
    ("equations = 3", "equations must be text with one equation per line, not 3"),
    (
        EQ + "difusion = 'full'",
        "unknown key 'difusion'; the keys are name, equations, diffusion, inputs, hold, parameters",
    ),
    (EQ + "diffusion = 'lower'", "diffusion must be one of full, diagonal, scalar, none, not 'lower'"),
    (EQ + "name = 3", "name must be one line of text, not 3"),
    (EQ + "inputs = 'u'", "inputs must be a list of names, not 'u'"),
    (EQ + "parameters = 3", "parameters must be a table of names, not 3"),
    (
        EQ + "[parameters]\na = 'positive'",
        r"parameter 'a' must be a number or a table such as \{lower = 0\}, not 'posit",
    ),
    (
        EQ + "[parameters]\na = {low = 0}",
        "parameter 'a' has the unknown key 'low'; the keys are lower, upper, start, fixed",
    ),
    (EQ + "[parameters]\na = {lower = '0'}", "parameter 'a': lower must be a number, not '0'"),
    (EQ + "[parameters]\na = {fixed = true}", "parameter 'a': fixed must be a number, not True"),
    (
        EQ + "[parameters]\na = {lower = 2, upper = 1}",
        "parameter 'a': a parameter's lower bound must be below its upper",
    ),
    (
        EQ + "[parameters]\na = {lower = 0, start = -1}",
        r"parameter 'a': a parameter's start must lie inside \(0, inf\)",
    ),
    (EQ + "[parameters]\na = {fixed = nan}", "parameter 'a': a parameter's fixed value must be a finite number"),
    (EQ + "[parameters]\nb = {}", "params names 'b', which is not a parameter of the equations; those are: a"),
    ("equations = \nname = 'x'", r"this is not TOML: .*line 1"),
    ("a = 1\nb = = 2", r"this is not TOML: .*line 2"),
    ("a = 1\na = 2", r"this is not TOML: .*line 2"),
    ("a = " + "[" * 100_000, "go too deep"),
    ("a = " + "9" * 5000, "this is not TOML"),
    (b"\xff\xfe\x00", "must be UTF-8 text"),
    (b"#" * 1_000_001, "at most 1000000 bytes"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_model_file_is_refused_in_one_line(tmp_path, text, message):
    with pytest.raises(ModelError, match=r"^model\.toml: .*" + message) as caught:
        read_model(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_wrong_equation_in_a_file_shows_its_place(tmp_path):
    with pytest.raises(EquationError) as caught:
        read_model(write(tmp_path, 'equations = """\ndx = a*x\ndy = 2x\n"""'))
    first, line, caret = str(caught.value).split("\n")
    assert first == "model.toml: line 2 of the equations: an operator must come before 'x'; write * to multiply"
    assert line[caret.index("^")] == "x"


@pytest.mark.parametrize("name", ["nothing.toml", ".", "a\0b"])
def test_a_file_that_cannot_be_opened(tmp_path, name):
    with pytest.raises(FileError, match=r"the model file '.*' (does not exist|cannot be read: )") as caught:
        read_model(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_place_that_cannot_be_written(tmp_path):
    with pytest.raises(FileError, match="cannot be written: "):
        write_model(equations("dx = 1"), tmp_path / "no" / "model.toml")
