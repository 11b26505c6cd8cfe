"""`sdefit simulate`: observations of a built-in system."""

from pathlib import Path
from typing import Annotated

import typer

from sdefit.cli import _shared


def command(
    system: Annotated[str, typer.Argument(help="A built-in, such as lotka_volterra or lv: see 'sdefit models'.")],
    out: Annotated[Path, typer.Option(help="The CSV file to write.")] = Path("obs.csv"),
    seed: Annotated[int, typer.Option(min=0, max=_shared.LARGEST_SEED, help="Seed of the random key.")] = 0,
    paths: Annotated[int | None, typer.Option(min=1, help="How many paths, in a column 'series'.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the truth as one JSON object.")] = False,
) -> None:
    """Simulate a built-in system and write noisy observations of it as CSV."""
    import jax

    from sdefit.data import write_csv
    from sdefit.dynamics import systems

    setup = systems.get(system)
    with _shared.waiting(f"simulating {setup.model.name}"):
        series = setup.simulate(key=jax.random.key(seed), paths=paths)
    write_csv(series, out)
    if as_json:
        truth = {"params": setup.params, "G": setup.G, "noise": setup.noise, "x0": setup.x0}
        _shared.print_json({"system": setup.name, "truth": truth, "seed": seed, "files": [str(out)]})
    else:
        many = "" if paths is None else f"{paths} paths, "
        print(f"{out}: {setup.model.name}, {many}{len(setup.times)} times, {setup.note}")
