"""Check the language of the code and of the texts: `make lint` runs this file.

Three rules, see `main`: vague words are rare as identifiers, identifiers have American spelling, as
in PyTorch, and texts avoid the phrases of `PHRASES`. A line with ``wording: ok`` in a comment is
exempt from all three.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

VAGUE = frozenset(
    ("one", "found", "known", "asked", "kept", "place", "given", "said", "shown", "told", "whole")
) | {"apart"}
"""Words that do not say what a variable holds."""
CEILING = 5.0
"""Vague identifiers per 1,000 lines of the package; names, arguments and attributes count."""
BRITISH = re.compile(
    r"(?:token|normal|optim|initial|quant|serial|summar|regular|parallel|general)is(?:e|ing|ation)"
    r"|[ck]olour|neighbour|behaviour|favour|licence|judgement|catalogue|(?:^|_)(?:centre|grey)"
)
PHRASES = {
    r"\bafresh\b": "from scratch",
    r"\bstand-ins?\b": "synthetic proxy",
    r"\bfrom elsewhere\b": "pretrained (external) model",
    r"\bpretended\b": "simulated",
    r"\bheadwise norm\b": "per-head RMSNorm",
    r"\bpost hoc\b": "amended after results",
    r"\bspent seeds\b": "tuning seeds",
    r"\bseen seeds\b": "exploratory seeds",
    r"\bnot bound\b|\bbinds\b|\btime to bind\b": "learns retrieval",
    r"\bhow many were asked\b|\bwhat is asked\b": "items evaluated",
    r"\bhonest\b": "(no self-praise)",
    r"(?<!model )(?<!model-)(?<!dataset )\bcards?\b": "GPU (a model card is fine)",
    r"\bkept weights\b": "intermediate checkpoints",
    r"\bgo(?:es)? on from\b": "resumes from",
    r"\bnats a token\b|\btokens a second\b": "per",
}
"""Phrases that a reader from outside would not understand, and what to write instead."""
EXEMPT = "wording: ok"
ROOT = Path(__file__).parents[1]


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of each name, argument and attribute of a module."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield node.lineno, name


def definitions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of each function, class and keyword argument of a module."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.ClassDef(name=name):
                yield node.lineno, name


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and content of each string of a module; exempt lines are left out."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if EXEMPT in lines[node.lineno - 1]:
                continue
            for offset, line in enumerate(node.value.splitlines()):
                yield node.lineno + offset, line


def phrases(lines: Iterator[tuple[int, str]], path: Path) -> Iterator[str]:
    """Yield an error for each phrase of `PHRASES` in some lines of a file."""
    for number, line in lines:
        for pattern, better in PHRASES.items():
            if EXEMPT not in line and (match := re.search(pattern, line, re.IGNORECASE)):
                yield f"{path}:{number}: '{match[0]}': write {better}"


def vague_count(source: str) -> Counter[str]:
    """Return how often each vague word is an identifier of a module, exempt lines left out."""
    lines = source.splitlines()
    used = identifiers(ast.parse(source))
    return Counter(name for at, name in used if name in VAGUE and EXEMPT not in lines[at - 1])


def british(source: str, path: Path) -> Iterator[str]:
    """Yield an error for each identifier of a module with British spelling."""
    lines, tree = source.splitlines(), ast.parse(source)
    for at, name in sorted({*identifiers(tree), *definitions(tree), (1, path.stem)}):
        if BRITISH.search(name.lower()) and EXEMPT not in "".join(lines[at - 1 : at]):
            yield f"{path}:{at}: identifier '{name}': use American spelling, as PyTorch does"


def main() -> int:
    """Print all errors and the count of vague identifiers; return 1 if a rule is broken."""
    errors: list[str] = []
    total, num_lines = Counter[str](), 0
    for path in sorted((ROOT / "src").rglob("*.py")):
        source, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT)
        total += vague_count(source)
        num_lines += source.count("\n")
        errors += [*british(source, name), *phrases(texts(source), name)]
    pages = {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("config/**/*.yaml")}
    for path in sorted(pages - {ROOT / "CHANGELOG.md", ROOT / "docs" / "settings.md"}):
        lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        errors += phrases(lines, path.relative_to(ROOT))
    per_1000 = 1000 * total.total() / num_lines
    print(*errors, sep="\n", end="\n" if errors else "")
    print(f"{per_1000:.1f} vague identifiers per 1,000 lines (at most {CEILING:g}): {dict(total)}")
    return int(bool(errors) or per_1000 > CEILING)


if __name__ == "__main__":
    sys.exit(main())
