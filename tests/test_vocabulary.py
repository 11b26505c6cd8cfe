"""The code speaks the field's language: no identifier is a word of the private vocabulary it once had."""

import ast
from pathlib import Path

import sdefit

PRIVATE = set(
    """
    Told Begun Matched _Here _Refined Roads misses few draw_roads Warm turn believed near judged rests careful
    after no_worse share carried push kicks _Later pull divergence_move divergence_share Frame Steps Cloud
    Curved promise through longest loose root natural Board Rules play teach steepness possible
    turned_round _regrown hyper halving lost kept _kept ahead follow each lanes spread_out path_out Moment
    Information objective boards spread_charts weak
    """.split()
)
OWN = {"weak"}  # a setting of ESGF and VGPA: weak priors


def identifiers(tree: ast.Module):
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def test_no_identifier_is_of_the_private_vocabulary():
    folder = Path(sdefit.__file__).parent
    found = {
        f"{path.relative_to(folder)}: {name}"
        for path in folder.rglob("*.py")
        for name in identifiers(ast.parse(path.read_text(encoding="utf-8")))
        if name in PRIVATE - OWN
    }
    assert not found
