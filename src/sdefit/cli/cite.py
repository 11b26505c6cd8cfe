"""`sdefit cite`: what to cite, as BibTeX."""

_ENTRIES = """\
@software{sdefit,
  title  = {sdefit: fit stochastic differential equations to noisy, irregular observations},
  author = {{The sdefit authors}},
  year   = {2026}
}

@inproceedings{abbati2019ares,
  title     = {{AReS} and {MaRS}: Adversarial and {MMD}-Minimizing Regression for {SDE}s},
  author    = {Abbati, Gabriele and Wenk, Philippe and Osborne, Michael A. and Krause, Andreas
               and Sch{\\"o}lkopf, Bernhard and Bauer, Stefan},
  booktitle = {Proceedings of the 36th International Conference on Machine Learning},
  year      = {2019}
}"""


def command() -> None:
    """Print what to cite, as BibTeX."""
    print(_ENTRIES)
