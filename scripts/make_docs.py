"""Make the documentation site in build/site, and fail on anything that is broken.

    docs/ ─► stage: links, tables, drawings ─► build/docs ─► Zensical ─► build/site ─► check

Pages are written to be read in the repository too, so a link to a file outside docs/ is an
ordinary relative link; staging leads it to the page that the site has of that file. What a page
takes from the code stands in it as a comment, `<!-- insert: NAME -->`; make_docs_parts.py says
which names there are. Zensical, with --strict, ends the build at a page, an anchor or a name that
is not there; `outside_requests` then looks for what a browser would fetch from another host.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from make_docs_parts import PARTS, cited_tests, example_page, examples

ROOT = Path(__file__).resolve().parents[1]
DOCS, STAGED, SITE = ROOT / "docs", ROOT / "build/docs", ROOT / "build/site"
# Files outside docs/ that the site shows, and the page of each.
INCLUDED = {
    "FORMAT.md": "reference/format.md",
    "GLOSSARY.md": "reference/glossary.md",
    "ARCHITECTURE.md": "reference/architecture.md",
    "CHANGELOG.md": "reference/changelog.md",
    "CONTRIBUTING.md": "reference/contributing.md",
    "RELEASING.md": "reference/releasing.md",
    "README.md": "index.md",
    "tests": "reference/tests.md",
    "examples": "reference/examples.md",
    **{f"examples/{path.name}": f"examples/{path.stem}.md" for path in examples()},
}
LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?(\))")
INSERT = re.compile(r"^<!-- insert: ([\w-]+) -->$", re.MULTILINE)
DRAWING = re.compile(r"^!\[([^\]]*)\]\(([^)]+\.svg)\)$", re.MULTILINE)
# A picture for the light and one for the dark, as forges show them; the site has a switch.
PICTURE = re.compile(
    r'^<picture>\s*<source [^>]*srcset="([^"]+)">\s*<img src="([^"]+)" alt="([^"]+)">'
    r"\s*</picture>$",
    re.MULTILINE,
)
NUMBERED = re.compile(r"^(\d+)\. ", re.MULTILINE)
# What a browser fetches by itself: links that a reader clicks (<a href>) are no requests.
FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|srcset|data)=[\"']?"
    r"((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b[^>]*?\brel=[\"']?(?:stylesheet|preconnect|dns-prefetch|preload|icon|modulepreload)"
    r"[\"']?[^>]*?\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b[^>]*?\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)[\"']?[^>]*?\brel=[\"']?"
    r"(?:stylesheet|preconnect|dns-prefetch|preload|icon|modulepreload)"
)
TEST = re.compile(r"`(test_\w+)`")
TESTS_HEAD = """# Tests that pages cite

The name of a test is a claim; here is what holds the package to it. Run one by `pytest -k NAME`.
"""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
FETCHED_BY_STYLE = re.compile(r"(?:url\(|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)")


def main() -> int:
    """Stage, build, check; 0 if all is well."""
    stage()
    if not build():
        return 1
    problems = outside_requests(SITE)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"{len(list(SITE.rglob('*.html')))} pages in {SITE.relative_to(ROOT)}")
    return 1 if problems else 0


def stage() -> None:
    """Write the pages as Zensical reads them into build/docs."""
    shutil.rmtree(STAGED, ignore_errors=True)
    shutil.copytree(DOCS, STAGED)
    sources = [(path, path.relative_to(DOCS)) for path in sorted(DOCS.rglob("*.md"))]
    included = [(ROOT / name, Path(page)) for name, page in INCLUDED.items()]
    tests = cited_tests(path.read_text("utf-8") for path, _ in sources)
    for path, page in [*sources, *included]:
        if path.suffix == ".md" and path != ROOT / "README.md" and path.exists():
            put(page, staged_text(path, page, tests))
    for path in examples():
        put(Path("examples") / f"{path.stem}.md", example_page(path))
    put(Path("reference/tests.md"), "\n".join([TESTS_HEAD, *tests.values()]))


def put(page: Path, text: str) -> None:
    """Write a page of the staged folder."""
    (STAGED / page).parent.mkdir(parents=True, exist_ok=True)
    (STAGED / page).write_text(text, "utf-8")


def staged_text(path: Path, page: Path, tests: dict[str, str]) -> str:
    """Return the text of a page with its parts, drawings and links put in place."""
    text = path.read_text("utf-8")
    text = INSERT.sub(lambda match: PARTS[match[1]](), text)
    text = PICTURE.sub(r"![\3](\2#only-light)\n![\3](\1#only-dark)", text)
    text = DRAWING.sub(lambda match: drawing(path.parent / match[2], match[1]), text)
    text = LINK.sub(lambda match: led(match, path, page), text)
    text = text.replace("```python\n>>> ", "```pycon\n>>> ")
    if path.name in ("faults.md", "properties.md"):
        text = NUMBERED.sub(r'\1. <span id="number-\1"></span>', text)
    text = TEST.sub(lambda match: cited(match[1], page) if match[1] in tests else match[0], text)
    return re.sub(r"(#test_\w+\))\s+(?=\[\*)", r"\1 · ", text)  # one behind the other


def cited(name: str, page: Path) -> str:
    """Return a link to the source of a test, with its name, which is a claim, as words."""
    words = name.removeprefix("test_").replace("_", " ")
    return f"[*{words}*]({os.path.relpath('reference/tests.md', page.parent)}#{name})"


def led(match: re.Match[str], path: Path, page: Path) -> str:
    """Return a link as the site has it: to the page that shows the file it names."""
    before, target, anchor, after = match.groups()
    wanted = os.path.normpath(path.parent / target)
    if Path(wanted).is_relative_to(DOCS):
        place = Path(wanted).relative_to(DOCS).as_posix()
    else:
        name = Path(wanted).relative_to(ROOT).as_posix()
        if name not in INCLUDED:
            sys.exit(f"{path.relative_to(ROOT)}: the site has no page of {name}, which it links to")
        place = INCLUDED[name]
    return f"{before}{os.path.relpath(place, page.parent)}{anchor or ''}{after}"


def drawing(path: Path, words: str) -> str:
    """Return a drawing as part of the page, so that it takes the colours of the theme."""
    svg = re.sub(r"<style>.*?</style>", "", path.read_text("utf-8"), flags=re.DOTALL)
    svg = re.sub(
        r"\s*\n\s*", " ", svg.replace("<svg ", f'<svg role="img" aria-label="{words}" ', 1)
    )
    return f'<figure class="drawing">{svg.strip()}</figure>'


def build() -> bool:
    """Run Zensical; True if it had nothing to complain of."""
    shutil.rmtree(SITE, ignore_errors=True)
    program = [Path(sys.executable).with_name("zensical"), "build", "--strict", "--clean"]
    # The docstrings' extension is found by its module's name.
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    run = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True)
    if run.returncode:
        told = run.stderr.partition("Traceback")[0]  # its own, of which nothing is to be learned
        print(told if sys.stderr.isatty() else COLOUR.sub("", told), file=sys.stderr)
    return run.returncode == 0


def outside_requests(site: Path) -> list[str]:
    """Return what the pages or styles of a site would fetch from elsewhere."""
    found = []
    for path in sorted(site.rglob("*")):
        if path.suffix in (".html", ".css", ".svg"):
            text = path.read_text("utf-8")
            patterns = (FETCHED, FETCHED_BY_STYLE) if path.suffix != ".html" else (FETCHED,)
            hits = [hit for pattern in patterns for hit in pattern.findall(text)]
            for hit in hits:
                url = hit if isinstance(hit, str) else next(filter(None, hit))
                found.append(f"{path.relative_to(site)} would fetch {url}")
    return found


if __name__ == "__main__":
    sys.exit(main())
