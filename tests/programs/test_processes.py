"""Where a fit may be called: many threads, inside transformations of JAX, after a fork, under other JAX settings."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sdefit as sf
from contract import ou_series, relaxing
from sdefit.programs.compiled import Programs

KEY = jax.random.key(0)
METHOD = sf.Moments(starts=2, iterations=10)
HEAD = """
import os, signal, sys, jax, numpy as np, sdefit as sf
model, method, key = sf.equations("dx = rate*(level - x)"), sf.Moments(starts=2, iterations=10), jax.random.key(0)
series = sf.Series(np.arange(30.0), np.sin(np.arange(30.0))[:, None], ["x"])
"""


def child(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(sf.__file__).parents[1])}
    command = [sys.executable, *options, "-c", HEAD + code]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)


def test_threads_that_ask_for_one_program_share_it():
    programs, traced = Programs(), []

    def slow(model, method, x):
        traced.append(1)
        time.sleep(0.2)
        return jnp.sum(x)

    def one(_):
        return float(programs.run(slow, relaxing(), METHOD, np.ones(3)).value)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(one, range(8))) == [3.0] * 8
    assert (len(traced), programs.compilations) == (1, 1)


def test_a_program_that_cannot_be_traced_is_tried_again():
    programs, traced = Programs(), []

    def broken(model, method, x):
        traced.append(1)
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            programs.run(broken, relaxing(), METHOD, np.ones(3))
    assert len(traced) == 2


def fitted(key=KEY, values=None):
    series = ou_series(1)
    if values is not None:
        series = sf.Series(series.times, values, series.states)
    return sf.fit(relaxing(), series, METHOD, key=key).params["rate"]


INSIDE = {
    "jit": lambda: jax.jit(lambda x: x * fitted())(1.0),
    "jit of the key": lambda: jax.jit(fitted)(KEY),
    "vmap of the key": lambda: jax.vmap(fitted)(jax.random.split(KEY, 2)),
    "jit of the data": lambda: jax.jit(lambda y: fitted(values=y))(ou_series(1).values),
    "grad of the data": lambda: jax.grad(lambda y: fitted(values=y))(jnp.asarray(ou_series(1).values)),
    "jit of a simulation": lambda: jax.jit(
        lambda k: sf.simulate(relaxing(), {"rate": 1.0, "level": 0.0}, [0.0], np.arange(4.0), G=1.0, noise=0.0, key=k)
    )(KEY),
}


@pytest.mark.parametrize("call", INSIDE.values(), ids=INSIDE)
def test_inside_a_transformation_of_jax_one_line_says_no(call):
    with pytest.raises(sf.InputError, match=r"call it outside jax\.jit, jax\.grad and jax\.vmap") as refused:
        call()
    assert "\n" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_after_a_fork_one_line_says_what_to_do():
    code = """
pid = os.fork()
if not pid:
    signal.alarm(30)
    try:
        sf.fit(model, series, method, key=key)
    except sf.InputError as no:
        print(no, flush=True)
    os._exit(0)
print(os.waitpid(pid, 0)[1], sf.fit(model, series, method, key=key).status.ok)
"""
    done = child(code, "-W", "ignore")
    refusal, parent = done.stdout.splitlines()
    assert "this one was forked after JAX had started" in refusal
    assert "get_context('spawn')" in refusal
    assert parent == "0 True"


@pytest.mark.slow
def test_strict_promotion_of_the_user_changes_nothing():
    code = """
one = sf.fit(model, series, key=key)
jax.config.update("jax_numpy_dtype_promotion", "strict")
two = sf.fit(model, series, key=key)
two.intervals(draws=40, key=key), two.diagnose(), two.forecast(np.array([31.0, 32.0]), key=key)
sf.fit_each(model, [series, series], method, key=key)
sf.simulate(model, {"rate": 1.0, "level": 0.0}, [0.0], np.arange(4.0), G=1.0, noise=0.0, key=key)
assert jax.config.jax_numpy_dtype_promotion == "strict"
print(one.params == two.params)
"""
    done = child(code)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.15, 0.6, 1.5, 3.0, 5.0])
def test_an_interrupt_ends_a_command_at_once(tmp_path, seconds):
    """While it imports, traces and compiles: one line, status 130, within two seconds."""
    assert interrupted(tmp_path, ["demo"], seconds) == "sdefit: interrupted\n"


@pytest.mark.slow
def test_an_interrupt_of_a_reproduction_says_how_to_go_on(tmp_path):
    command = ["reproduce", "--systems", "ou", "--methods", "auto", "--realizations", "2", "--block", "1"]
    line = interrupted(tmp_path, command, until=tmp_path / "repro" / "problems" / "ou.nc")
    assert line == "sdefit: stopped with 0 of 2 cells stored; --resume goes on from there\n"


def interrupted(folder: Path, command: list[str], seconds: float = 0.0, until: Path | None = None) -> str:
    """What a command says when it is interrupted so many seconds after Python has started, or when a file is there."""
    environment = os.environ | {"PYTHONPATH": str(Path(sf.__file__).parents[1])}
    code = f"print('go', flush=True); import sys; sys.argv[1:] = {command}; from sdefit.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, env=environment, text=True, stdout=-1, stderr=-1
    )
    assert process.stdout
    process.stdout.readline()
    time.sleep(seconds)
    while until and not until.exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    _, error = process.communicate(timeout=60)
    assert time.monotonic() - begin < 2.0
    assert process.returncode == 130
    return error
