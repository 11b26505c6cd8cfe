"""`sdefit cite`: what to cite, as BibTeX."""

from typing import Annotated

import typer

from sdefit.errors import ModelError

_SOFTWARE = """\
@software{sdefit,
  title  = {sdefit: fit stochastic differential equations to noisy, irregular observations},
  author = {{The sdefit authors}},
  year   = {2026}
}"""
_ABBATI = """\
@inproceedings{abbati2019ares,
  title     = {{AReS} and {MaRS}: Adversarial and {MMD}-Minimizing Regression for {SDE}s},
  author    = {Abbati, Gabriele and Wenk, Philippe and Osborne, Michael A. and Krause, Andreas
               and Sch{\\"o}lkopf, Bernhard and Bauer, Stefan},
  booktitle = {Proceedings of the 36th International Conference on Machine Learning},
  year      = {2019}
}"""
_SARKKA = """\
@book{sarkka2019applied,
  title     = {Applied Stochastic Differential Equations},
  author    = {S{\\"a}rkk{\\"a}, Simo and Solin, Arno},
  publisher = {Cambridge University Press},
  year      = {2019}
}"""
_ARCHAMBEAU = """\
@inproceedings{archambeau2007gaussian,
  title     = {{Gaussian} Process Approximations of Stochastic Differential Equations},
  author    = {Archambeau, C{\\'e}dric and Cornford, Dan and Opper, Manfred and Shawe-Taylor, John},
  booktitle = {Gaussian Processes in Practice},
  series    = {JMLR Workshop and Conference Proceedings},
  volume    = {1},
  year      = {2007}
}"""
_YILDIZ = """\
@inproceedings{yildiz2018learning,
  title     = {Learning Stochastic Differential Equations with {Gaussian} Processes without Gradient Matching},
  author    = {Y{\\i}ld{\\i}z, {\\c{C}}a{\\u{g}}atay and Heinonen, Markus and Intosalmi, Jukka
               and Mannerstr{\\"o}m, Henrik and L{\\"a}hdesm{\\"a}ki, Harri},
  booktitle = {IEEE 28th International Workshop on Machine Learning for Signal Processing (MLSP)},
  year      = {2018}
}"""
_FLORENS = """\
@article{florens1989approximate,
  title   = {Approximate Discrete-Time Schemes for Statistics of Diffusion Processes},
  author  = {Florens-Zmirou, Dani{\\`e}le},
  journal = {Statistics},
  volume  = {20},
  number  = {4},
  year    = {1989}
}"""
# Beside the methods' own `reference`, which a test compares, so that citing does not wait for numerics to import.
ENTRIES = {
    "auto": (_ABBATI, _SARKKA),
    "mars": (_ABBATI,),
    "ares": (_ABBATI,),
    "esgf": (_SARKKA,),
    "vgpa": (_ARCHAMBEAU,),
    "npsde": (_YILDIZ,),
    "moments": (_FLORENS,),
}


def command(
    method: Annotated[str, typer.Option(help="References of one method: see 'sdefit methods'. By default all.")] = "",
) -> None:
    """Print what to cite, the software and the methods, as BibTeX."""
    if method and method not in ENTRIES:
        raise ModelError(f"--method must be one of {', '.join(ENTRIES)}, not {method!r}")
    papers = dict.fromkeys(one for name in ([method] if method else ENTRIES) for one in ENTRIES[name])
    print("\n\n".join([_SOFTWARE, *papers]))
