"""What an installed sdefit must do, wherever it was installed: import, fit from Python, fit from the command line."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np

import sdefit as sf

home = Path(sf.__file__).resolve().parent
assert home.is_relative_to(Path(sys.prefix).resolve()), f"{home} is not what was installed in {sys.prefix}"
for shipped in ("py.typed", "report/page.html", "report/page.css", "report/page.js"):
    assert (home / shipped).exists(), f"the package lacks {shipped}"

times = np.arange(40.0)
series = sf.Series(times, np.exp(-0.3 * times)[:, None] + 0.01 * np.sin(7.0 * times)[:, None], ["x"])
fit = sf.fit(sf.equations("dx = rate*(level - x)"), series, sf.Moments(), key=jax.random.key(0))
assert fit.status.ok, fit.status

command = Path(sys.executable).parent / "sdefit"
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for arguments in (
        ["--version"],
        ["demo", "--help"],
        ["simulate", "ou", "--out", "obs.csv"],
        ["fit", "obs.csv", "--model", "ou", "--method", "moments", "--out", "run"],
        ["reproduce", "--systems", "ou", "--methods", "moments", "--realizations", "1", "--out", "repro"],
    ):
        subprocess.run([command, *arguments], check=True, stdout=subprocess.DEVNULL)
    assert Path("run/report.html").stat().st_size > 10_000
    assert Path("repro/summary.md").exists()
    os.chdir("/")
print(f"smoke: sdefit {sf.__version__} on Python {sys.version.split()[0]}, jax {jax.__version__}: fits")
