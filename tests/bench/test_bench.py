"""Problems, plans, cells and the folder of results: each row once, whatever happens on the way."""

import dataclasses
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sdefit.bench import cells, plan, problems, references, run
from sdefit.bench.cells import Outcome, Task
from sdefit.bench.plan import Cell
from sdefit.dynamics import systems
from sdefit.errors import DataError, FileError, InputError, ModelError, SimulationError
from sdefit.store import Results

ROOT = Path(__file__).parents[2]
FROZEN = str(ROOT / "experiments" / "data")


# What results are held against


def test_the_limit_of_ou_is_its_exact_maximum_likelihood():
    stored = np.load(f"{FROZEN}/ou.npz")
    found = references.ou_estimates(stored["t"], stored["y"][:, :, 0])
    stated = references.estimates(problems.get("ou"), None)
    for name in ("rate", "level", "G11"):
        np.testing.assert_allclose(found[name], stated[name], rtol=2e-5)  # six digits are kept


def test_stored_estimates_are_those_of_the_first_realizations():
    problem = problems.get("dw")
    found, first = references.estimates(problem, None), references.estimates(problem, 20)
    assert found["realization"].tolist() == [i for i in range(100) if i not in (7, 87)]  # one well: no estimate of b
    assert first["realization"].tolist() == [i for i in range(20) if i != 7]
    assert set(found) == {"a", "b", "G11", "GGt11", "H11", "noise_x", "realization"}
    for name in found:
        np.testing.assert_array_equal(first[name], found[name][:19])


def test_limits_are_the_known_errors_of_maximum_likelihood():
    known = {("ou", "rate"): 0.070, ("dw", "b"): 0.84, ("lv", "c"): 0.607, ("l63", "G11"): 0.293}
    for (system, quantity), expected in known.items():
        problem = problems.get(system)
        values = np.load(f"{FROZEN}/{system}.npz")["y"]
        assert references.limits(problem, values, True)[quantity]["rmse"] == pytest.approx(expected, rel=0.01)
    assert references.limits(problems.get("lv_noiseless"), np.zeros((1, 51, 2)), False) == {}


@pytest.mark.parametrize("name", ["ou", "dw", "lv", "l63"])
@pytest.mark.parametrize("frozen", [True, False])
def test_what_the_model_fixes_has_no_error_to_be_held_against(name, frozen):
    """G = g I of Lorenz 63 has entries that are 0 in every fit: a stored problem takes no error of 0."""
    problem, values = problems.get(name), np.load(f"{FROZEN}/{name}.npz")["y"][:3]
    found = references.limits(problem, values, frozen)
    assert set(problem.setup.params) <= set(found) and all(0 < one["rmse"] < np.inf for one in found.values())


def test_published_numbers_stand_under_the_names_of_our_rows():
    found = {
        (r["method"], r["quantity"]): (r["median"], r["std"]) for r in references.published("lorenz63", ("s", "r", "b"))
    }
    assert (
        found["mars", "s"] == (9.82, 0.56)
        and found["esgf", "b"] == (2.65, 0.06)
        and found["ares", "G11"] == (3.54, 2.45)
    )
    for name in ("ou", "dw", "lv", "l63"):
        problem = problems.get(name)
        rows = references.published(problem.setup.model.name, tuple(problem.setup.params))
        assert {row["quantity"] for row in rows} <= set(problem.truth())


# Problems and plans


def test_data_from_a_seed_do_not_depend_on_how_many_are_asked_for():
    setup = dataclasses.replace(systems.get("ou"), times=np.linspace(0.0, 2.0, 6))
    few, many = problems.simulated(setup, 2, 5), problems.simulated(setup, 30, 5)
    assert len(many) == 30
    for a, b in zip(few, many, strict=False):
        assert a is not None and b is not None
        np.testing.assert_array_equal(a.values, b.values)
    assert not np.array_equal(many[0].values, many[25].values)
    assert not np.array_equal(many[0].values, problems.simulated(setup, 1, 6)[0].values)


def test_a_path_that_blows_up_is_lost_alone(monkeypatch):
    tried = []

    def simulate(self, *, key, paths=None):
        tried.append(paths)
        if paths or len(tried) == 4:
            raise SimulationError("gone")
        return len(tried)

    monkeypatch.setattr(systems.SetUp, "simulate", simulate)
    assert problems.simulated(systems.get("lv_text"), 4, 0) == [2, 3, None, 5]
    assert tried == [problems.CHUNK] + [None] * problems.CHUNK


def test_frozen_data_must_be_of_the_set_up(tmp_path):
    assert len(problems.frozen(problems.get("dw"), 3, FROZEN)) == 3
    (tmp_path / "dw_code.npz").write_bytes(Path(f"{FROZEN}/dw.npz").read_bytes())
    with pytest.raises(DataError, match="with other parameters, G, times or noise than the set-up dw_code"):
        problems.frozen(problems.get("dw_code"), 3, str(tmp_path))
    with pytest.raises(DataError, match="holds 100 realizations, not the 101 asked for"):
        problems.frozen(problems.get("dw"), 101, FROZEN)
    with pytest.raises(DataError, match="nowhere/ou.npz cannot be read"):
        plan.build(["ou"], ["moments"], 2, data="nowhere")


def test_methods_are_told_the_structure_of_the_noise_where_they_can_be():
    assert plan.settings_text(plan.settings("ou", "esgf")) == "noise=none"
    assert plan.settings_text(plan.settings("lv", "esgf")) == "noise=same"
    assert plan.settings_text(plan.settings("lv_noiseless", "esgf")) == "noise=none"
    assert (
        plan.settings_text(plan.settings("dw", "esgf")) == plan.settings_text(plan.settings("ou", "mars")) == "default"
    )
    recipe = plan.settings("lv", "mars:paper")
    assert (recipe.kernel, recipe.adam_steps, recipe.refinements) == ("rbf", 2000, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["volterra"], ["mars"], 1), "--systems must be among ou, dw, lv, l63"),
        ((["ou"], ["magic"], 1), "--methods must be among .*moments .NAME:paper is the paper's recipe., not 'magic'"),
        ((["ou"], ["moments:paper"], 1), "with a recipe of the paper's own, not 'moments:paper'"),
        ((["ou"], [], 1), "must each name one or more"),
    ],
)
def test_a_plan_of_unknown_names_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        plan.build(*arguments)


@pytest.mark.parametrize(("count", "block"), [(1, 0), (7, 3), (100, 0), (101, 50)])
def test_cells_hold_every_realization_once(count, block):
    made = plan.build(["ou", "lorenz63"], ["mars", "moments"], count, block=block)
    assert made.systems == ("ou", "l63")
    found = [(c.system, c.method, i) for c in made.cells() for i in range(c.first, c.first + c.count)]
    assert sorted(found) == sorted((s, m, i) for s in made.systems for m in made.methods for i in range(count))
    assert len({cell.name for cell in made.cells()}) == len(made.cells())


def test_the_paper_s_own_recipes_are_there_by_default():
    assert plan.default_methods() == (
        "auto", "mars", "mars:paper", "ares", "ares:paper", "esgf", "vgpa", "npsde", "moments"
    )  # fmt: skip
    assert [plan.is_recipe(name) for name in ("mars:paper", "mars", "vgpa:paper")] == [True, False, False]
    problem = problems.get("ou")
    assert cells.start_of(problem, "mars:paper", 0, 0) is None
    assert cells.start_of(problem, "vgpa:paper", 0, 0) == cells.random_start(problem, 0, 0)


def test_the_paper_s_own_recipes_are_given_fewer_realizations_on_a_cpu(monkeypatch):
    """As many as 300 s of one core hold, and never none; as many as all others have on a GPU, or as are asked for."""
    names, chosen = ["ou", "l63"], ["mars", "mars:paper", "ares:paper"]

    def counted(**options) -> dict[str, dict[str, int]]:
        made = plan.build(names, chosen, 100, **options)
        found = {(c.system, c.method): 0 for c in made.cells()}
        for c in made.cells():
            found[c.system, c.method] += c.count
        assert all(found[name, "mars"] == 100 for name in names)
        assert all(found[s, m] == n for s, one in made.counts.items() for m, n in one.items())
        return made.counts

    assert counted() == {"ou": {"mars:paper": 100, "ares:paper": 2}, "l63": {"mars:paper": 12, "ares:paper": 1}}
    assert set(counted(paper_realizations=7)["l63"].values()) == {7}
    stored = plan.build(["ou"], ["ares:paper"], 100, paper_realizations=5).facts()
    assert counted(counts=stored["counts"])["ou"]["ares:paper"] == 5
    with pytest.raises(InputError, match="begun with 5 realizations of ou by ares:paper, not 7"):
        plan.agree(stored, plan.build(["ou"], ["ares:paper"], 100, paper_realizations=7))
    monkeypatch.setattr(plan.jax, "default_backend", lambda: "gpu")
    assert set(counted()["l63"].values()) == {100}


def test_another_plan_is_refused_by_what_differs():
    stored = plan.build(["ou"], ["esgf"], 10).facts()
    plan.agree(stored, plan.build(["ou", "dw"], ["esgf", "moments"], 10))
    with pytest.raises(InputError, match="begun with --realizations 10, not 11"):
        plan.agree(stored, plan.build(["ou"], ["esgf"], 11))
    with pytest.raises(InputError, match="begun with data of ou from seed 0, not ou.npz"):
        plan.agree(stored, plan.build(["ou"], ["esgf"], 10, data=FROZEN))
    stored["settings"]["ou"]["esgf"] = "rule=extended"
    with pytest.raises(InputError, match="begun with esgf set to rule=extended on ou, not noise=none"):
        plan.agree(stored, plan.build(["ou"], ["esgf"], 10))


def test_starts_are_random_and_allowed():
    problem = problems.get("lv")
    starts = [cells.random_start(problem, 3, i) for i in range(40)]
    assert starts[0] == cells.random_start(problem, 3, 0) != cells.random_start(problem, 4, 0)
    ratios = np.array([[s[p] / v for p, v in problem.setup.params.items()] for s in starts])
    assert (ratios > 0).all()
    assert (ratios[::2] >= 1 / 3).all() and (ratios[::2] <= 3).all() and (ratios[1::2] < 1 / 3).any()


# Cells


def small_task(count: int = 3) -> Task:
    series = problems.frozen(problems.get("ou"), count, FROZEN)
    return Task(Cell("ou", "moments", 0, count), 0, "here", series)


def test_what_fails_is_a_row_with_its_reason(monkeypatch):
    def fails(*_, **__):
        raise ModelError("the model\nis bad")

    monkeypatch.setattr(cells, "fit_each", fails)
    outcome = cells.run(dataclasses.replace(small_task(), series=[small_task().series[0], None, None]))
    assert [row["status"] for row in outcome.rows] == ["refused", "no_data", "no_data"]
    assert outcome.rows[0]["reason"] == "ModelError: the model is bad" and np.isnan(outcome.rows[0]["rate"])
    assert outcome.failures == 3 and outcome.record is None


def test_a_batch_too_large_for_the_device_is_halved(monkeypatch):
    tried = []

    def fits(model, series, method, *, key, start, batch):
        tried.append((batch, len(series), len(start)))
        if batch > 1:
            raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")
        raise RuntimeError("still no room")

    monkeypatch.setattr(cells, "fit_each", fits)
    outcome = cells.run(small_task(5))
    assert tried == [(5, 5, 5), (3, 5, 5), (2, 5, 5), (1, 5, 5)]
    assert {row["reason"] for row in outcome.rows} == {"RuntimeError: still no room"}


# The folder


@pytest.fixture
def results(tmp_path):
    made = Results(tmp_path / "r")
    made.begin(plan.build(["ou"], ["moments"], 1).facts() | {"cells": ["a-0"]})
    return made


def test_rows_are_written_once_and_read_back_exactly(results):
    rows = [{"x": 0.1 + 0.2, "ok": True, "why": 'a, "b"'}, {"x": np.nan, "ok": False, "why": "", "more": 2}]
    assert not results.done("a-0") and results.add("a-0", rows)
    assert not results.add("a-0", [{"x": 1.0}])
    assert results.done("a-0")
    assert float(results.rows()[0]["x"]) == 0.1 + 0.2
    assert results.rows()[1] == {"x": "", "ok": "false", "why": "", "more": "2"}
    assert [path.name for path in (results.folder / "rows").iterdir()] == ["a-0.csv"]


def test_a_plan_is_written_once(results):
    results.begin({"cells": ["b-0"]})
    assert results.plan()["cells"] == ["a-0"]
    (results.folder / "plan.json").write_text("{}")
    with pytest.raises(FileError, match="not the plan of a results folder"):
        results.plan()


def test_a_claimed_cell_is_nobody_elses_until_its_process_dies(results):
    code = f"""
import time
from sdefit.store import Results
results = Results({str(results.folder)!r})
print(results.claim("a-0"), results.claim("b"), flush=True)
time.sleep(60)"""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    assert results.claim("b")
    (results.folder / "rows" / ".a-0.csv.draft").write_text("half a row")
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True False\n"
        assert not results.claim("a-0")
        other.kill()
        other.wait()
    assert results.claim("a-0")
    assert list((results.folder / "rows").iterdir()) == []
    results.release("a-0")


@pytest.mark.parametrize("there", [False, True])
def test_rows_are_written_once_where_there_are_no_links(results, monkeypatch, there):
    def refused(*_):
        raise OSError(1, "Operation not permitted")

    if there:
        results.add("a-0", [{"x": 1}])
    monkeypatch.setattr(os, "link", refused)
    assert results.add("a-0", [{"x": 2}]) is not there
    assert results.rows() == [{"x": "1" if there else "2"}]


def test_a_full_disk_is_one_line_and_leaves_nothing(results, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match=r"a-0\.csv cannot be written: No space left on device"):
        results.add("a-0", [{"x": 1.0}])
    assert not results.done("a-0") and list((results.folder / "rows").iterdir()) == []


@pytest.mark.parametrize("text", ["x,y\n1\n", "x,y\n1,2,3\n", "x,y\n", "", 'x,y\n1,"2\n'])
def test_rows_that_were_changed_are_refused(results, text):
    (results.folder / "rows" / "a-0.csv").write_text(text)
    with pytest.raises(FileError, match=r"a-0\.csv was cut or changed after sdefit wrote it; .* --resume redoes it"):
        results.rows()
    assert not results.done("a-0") and results.damaged() == ["a-0"]


# Running


def test_cells_in_other_hands_are_waited_for(results, monkeypatch):
    made = plan.build(["ou"], ["moments"], 4, block=1, data=FROZEN)
    names = [cell.name for cell in made.cells()]
    held = {names[1]}
    monkeypatch.setattr(results, "claim", lambda name: name not in held)
    waits = []

    def runner(tasks):
        for task in tasks:
            if task is None:  # meanwhile the other process stores its cell
                waits.append(1)
                results.add(names[1], [{"x": 1}])
            else:
                yield task.cell, Outcome([{"x": 0, "status": "ok"}])

    done = [cell.name for cell, _ in run.run(results, made, runner)]
    assert done == [names[0], names[2], names[3]] and waits == [1]
    assert run.missing(results, made.cells()) == []
    assert list(run.run(results, made, runner)) == []


def test_several_workers_begin_with_the_long_series(results):
    made = plan.build(["ou", "l63"], ["moments"], 2, data=FROZEN)

    def runner(tasks):
        for task in tasks:
            yield task.cell, Outcome([{"x": 0, "status": "ok"}])

    done = [cell.system for cell, _ in run.run(results, made, runner, longest_first=True)]
    assert done == ["l63", "ou"]


class Losing:
    """A cluster that loses the first tasks it is given."""

    def __init__(self, losses: int) -> None:
        self.losses, self.given = losses, []

    def ncores(self):
        return {"one": 1}

    def submit(self, function, task, quick, pure):
        self.given.append(task.cell.name)
        lost = len(self.given) <= self.losses
        outcome = Outcome([{"status": "ok"}])
        return Future("error" if lost else "finished", outcome)


class Future(SimpleNamespace):
    def __init__(self, status, outcome):
        super().__init__(status=status, done=lambda: True, result=lambda: outcome, exception=lambda: "worker died")

    __hash__ = object.__hash__


def test_a_lost_workers_cells_run_again():
    tasks = [Task(Cell("ou", "moments", i, 1), 0, "", []) for i in range(4)]
    client = Losing(2)
    done = [cell.first for cell, _ in run.on_cluster(client, iter([tasks[0], None, *tasks[1:]]))]
    assert sorted(done) == [0, 1, 2, 3] and len(client.given) == 6
    with pytest.raises(InputError, match="cell ou-moments-00000 was lost 5 times; the last reason: worker died"):
        list(run.on_cluster(Losing(99), iter(tasks)))


def test_a_cluster_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match="need the package distributed; install it with: pip install"):
        run.connect(None, 2)


def ports():
    """Where this process and its children listen."""
    import psutil

    me = psutil.Process()
    open_ones = [one for who in (me, *me.children(recursive=True)) for one in who.net_connections()]
    return {one.laddr.ip for one in open_ones if one.status == psutil.CONN_LISTEN}


def closed(client):
    cluster = client.cluster
    client.close()
    if cluster is not None:
        cluster.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Dask's own making
def test_workers_listen_on_this_machine_alone():
    client = run.connect(None, 1)
    try:
        assert ports() == {"127.0.0.1"}
        refuses_strangers(client)
        task = Task(Cell("ou", "moments", 0, 1), 0, "", [None])
        (done,) = run.on_cluster(client, iter([task]), quick=True)
        assert done[1].rows[0]["status"] == "no_data"
    finally:
        closed(client)


def refuses_strangers(client):
    """Neither who speaks no TLS nor who has a certificate of their own gets in."""
    from distributed import Client
    from distributed.security import Security

    address = client.scheduler_info()["address"]
    assert address.startswith("tls://127.0.0.1:")
    with pytest.raises(OSError, match=r"Timed out|closed"):
        Client(address.replace("tls", "tcp"), timeout=3)
    with pytest.raises(OSError, match=r"Timed out|TLS certificate does not match"):
        Client(address, timeout=3, security=Security.temporary())


def test_workers_without_cryptography_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(InputError, match=r"--workers needs .*cryptography.*: pip install 'sdefit\[cluster\]'"):
        run.connect(None, 1)


@pytest.fixture
def certificate(tmp_path):
    """A certificate that signs itself, and its key."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=sdefit", "-days", "1"]
    done = subprocess.run(["openssl", "req", *options, "-keyout", key, "-out", cert], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("no openssl here")
    return cert, key


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl here")
@pytest.mark.filterwarnings("ignore")
def test_workers_by_tls_refuse_who_has_no_certificate(certificate):
    cert, key = certificate
    client = run.connect(None, 1, (cert, cert, key))
    try:
        refuses_strangers(client)
        assert client.submit(abs, -2).result(timeout=30) == 2
        address = client.scheduler_info()["address"]
        closed(second := run.connect(address, None, (cert, cert, key)))
        assert second.status == "closed"
    finally:
        closed(client)


def test_a_missing_certificate_is_named(tmp_path):
    there = tmp_path / "cert.pem"
    there.touch()
    with pytest.raises(InputError, match=r"--tls-key must be a file in PEM format, but there is no file .*none\.pem"):
        run.connect("tls://127.0.0.1:1", None, (there, there, tmp_path / "none.pem"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_that_is_killed_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = ["--host", "127.0.0.1", "--port", str(free.getsockname()[1]), "--no-dashboard"]
    scheduler = subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_scheduler", *place], stderr=-3)
    try:
        client = run.connect(f"tcp://127.0.0.1:{place[3]}", None)
        threading.Timer(1.0, scheduler.kill).start()
        tasks = (Task(Cell("ou", "moments", i, 1), 0, "", [None]) for i in range(3))  # for which there is no worker
        with pytest.raises(InputError, match="--cluster: the Dask scheduler is gone, and what is stored stays; start"):
            list(run.on_cluster(client, tasks))
        client.close()
    finally:
        scheduler.kill()
        scheduler.wait()
