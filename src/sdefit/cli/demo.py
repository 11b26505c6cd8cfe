"""`sdefit demo`: simulate, fit, compare with the truth, write a report."""

from pathlib import Path
from typing import Annotated

import typer

from sdefit.cli import _shared


def command(
    out: Annotated[Path, typer.Option(help="Folder for the data, the fit and the report.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, max=_shared.LARGEST_SEED, help="Seed of the random key.")] = 0,
) -> None:
    """Simulate Lotka-Volterra, fit it, and show the estimates beside the truth."""
    import jax

    from sdefit import methods
    from sdefit.data import write_csv
    from sdefit.dynamics import systems
    from sdefit.fitting import fit
    from sdefit.fitting.packing import matrix_entries

    setup = systems.get("lv")
    _shared.claim(out, force=True)
    simulated, fitted = jax.random.split(jax.random.key(seed))
    with _shared.waiting("simulating Lotka-Volterra"):
        series = setup.simulate(key=simulated)
        write_csv(series, out / "obs.csv")
    with _shared.fitting_once("fitting", shows_fit=True):
        method = methods.get("mars" if "mars" in methods.names() else methods.DEFAULT)()
        found = _shared.with_data(fit(setup.model, series, method, key=fitted), "obs.csv")
        truth = {"params": dict(setup.params), "G": setup.G.tolist(), "noise": setup.noise}
        asked = _shared.ask(found)
        files = _shared.write_run(found, asked, out, truth)
    known = dict(setup.params) | dict(matrix_entries(setup.model, setup.G))
    known |= {f"noise[{state}]": setup.noise for state in setup.model.states}
    _shared.print_fit(found, asked, [str(out / "obs.csv"), *files], known)
    if not found.status.ok:
        raise typer.Exit(1)
