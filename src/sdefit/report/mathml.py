"""The LaTeX that models print, as MathML, which browsers draw by themselves.

Only the words that models use are known. Anything else raises `Unknown`, and the page shows the LaTeX text.
"""

import re
from html import escape

_TOKEN = re.compile(r"\s+|\\[A-Za-z]+|\\.|[0-9]*\.?[0-9]+|.", re.DOTALL)
_GREEK = dict(
    zip(
        "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi "
        "psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega".split(),
        "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ",
        strict=True,
    )
)
_FUNCTIONS = ("exp", "log", "sin", "cos", "tan", "tanh")
_SIGNS = {"cdot": "·", "top": "⊤"}
_SPACES = {",": "0.17em", "quad": "1em"}
LONGEST = 20_000  # characters; a longer formula is shown as text


class Unknown(ValueError):
    """LaTeX that this module does not read."""


def mathml(latex: str) -> str:
    """An `aligned` block, its lines aligned, or any other formula, as MathML."""
    if len(latex) > LONGEST:
        raise Unknown("too long")
    body = latex.replace(r"\begin{aligned}", "").replace(r"\end{aligned}", "").strip()
    rows = [[_line(part) for part in line.split("&")] for line in re.split(r"\\\\\s*", body)]
    cells = "".join(f"<mtr>{''.join(f'<mtd><mrow>{one}</mrow></mtd>' for one in row)}</mtr>" for row in rows)
    return f'<math display="block"><mtable>{cells}</mtable></math>'


def _line(text: str) -> str:
    tokens = [token for token in _TOKEN.findall(text) if not token.isspace()][::-1]
    try:
        return _row(tokens, end="")
    except (IndexError, RecursionError):
        raise Unknown(text) from None


def _row(tokens: list[str], end: str) -> str:
    """Everything up to the token `end`; sub- and superscripts bind to the piece before them."""
    pieces: list[str] = []
    while tokens and tokens[-1] != end:
        token = tokens.pop()
        if token in ("_", "^"):
            tag = "msub" if token == "_" else "msup"
            pieces.append(f"<{tag}>{pieces.pop()}{_piece(tokens)}</{tag}>")
        else:
            tokens.append(token)
            pieces.append(_piece(tokens))
    if end:
        tokens.pop()
    return "".join(pieces)


def _piece(tokens: list[str]) -> str:
    token = tokens.pop()
    if token == "{":
        return f"<mrow>{_row(tokens, '}')}</mrow>"
    if token.startswith("\\"):
        return _command(token[1:], tokens)
    if token[0].isdigit() or token[0] == ".":
        return f"<mn>{token}</mn>"
    if token.isalpha():
        return f"<mi>{token}</mi>"
    if token in "+-=(),":
        return f"<mo{' stretchy="false"' if token in '()' else ''}>{token.replace('-', '−')}</mo>"
    raise Unknown(token)


def _command(word: str, tokens: list[str]) -> str:
    if word in _GREEK:
        return f"<mi>{_GREEK[word]}</mi>"
    if word in ("mathrm", "text", "mathit", "mathbf"):
        return _faced(word, _plain(tokens))
    if word == "frac":
        return f"<mfrac>{_piece(tokens)}{_piece(tokens)}</mfrac>"
    if word == "sqrt":
        return f"<msqrt>{_piece(tokens)}</msqrt>"
    if word == "left":
        opening, inside = tokens.pop(), _row(tokens, r"\right")
        return f"<mrow><mo>{escape(opening)}</mo><mrow>{inside}</mrow><mo>{escape(tokens.pop())}</mo></mrow>"
    if word in _FUNCTIONS:
        return f"<mi>{word}</mi>"
    if word in _SIGNS:
        return f"<mo>{_SIGNS[word]}</mo>"
    if word in _SPACES:
        return f'<mspace width="{_SPACES[word]}"/>'
    raise Unknown(word)


def _plain(tokens: list[str]) -> str:
    """The text between braces, its escapes undone."""
    if tokens.pop() != "{":
        raise Unknown("{")
    parts = []
    while (token := tokens.pop()) != "}":
        parts.append(token.removeprefix("\\"))
    return "".join(parts)


def _faced(face: str, text: str) -> str:
    """A name in upright, italic or bold letters; a browser sets several letters upright by itself."""
    if face == "mathrm" or face == "text":
        return f'<mi mathvariant="normal">{escape(text)}</mi>'
    return f'<mi class="{"bold" if face == "mathbf" else "name"}">{escape(text)}</mi>'
