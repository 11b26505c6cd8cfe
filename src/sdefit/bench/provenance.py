"""Where rows come from: version, commit, a fingerprint of the source files, device."""

import functools
import hashlib
import importlib.metadata
import subprocess
from pathlib import Path
from typing import Any

import jax

PACKAGE = Path(__file__).parents[1]


@functools.cache
def facts() -> dict[str, Any]:
    """The columns that every row of this process shares."""
    device = jax.devices()[0]
    return {
        "version": _version(),
        "commit": _git("rev-parse", "--short", "HEAD") or "none",
        "dirty": bool(_git("status", "--porcelain", "--", str(PACKAGE))),
        "source": source(),
        "jax": jax.__version__,
        "device": f"{device.platform} ({device.device_kind})",
        "dtype": "float64",
    }


def source() -> str:
    """A fingerprint of the package's files: rows made by the same code carry the same one."""
    files = sorted(PACKAGE.rglob("*.py"))
    parts = [str(file.relative_to(PACKAGE)).encode() + file.read_bytes() for file in files]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]


def _version() -> str:
    try:
        return importlib.metadata.version("sdefit")
    except importlib.metadata.PackageNotFoundError:
        return "source tree"  # that was never installed


def _git(*words: str) -> str:
    """What git says about the tree that holds the package; nothing where the package is not in one of its own."""
    if not (PACKAGE.parents[1] / ".git").exists():
        return ""
    try:
        done = subprocess.run(["git", *words], cwd=PACKAGE, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
