# SPDX-License-Identifier: Apache-2.0
"""What the site does beyond Markdown: files beside docs/ become pages, and LaTeX becomes MathML.

Pages link to files of the repository (`../examples/sensitivities.py`) and write formulas as GitHub shows them: blocks
fenced as `math`, and code between dollar signs within a line.
"""

import html
import posixpath
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
SHOWN = ("examples/*.py", "examples/*.yaml", "configs/silicon/README.md", "CHANGELOG.md", "CONTRIBUTING.md")
FOLDER = "repository/"  # of the site, where files beside docs/ are
LINK = re.compile(r"(?<=\]\()([\w./-]+)(?=[)#])")
FORMULA = re.compile(r"^```math\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"\$<code>(.*?)</code>\$", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files beside docs/ that pages link to."""
    for pattern in SHOWN:
        for path in sorted(ROOT.glob(pattern)):
            text = path.read_text(encoding="utf-8")
            if path.suffix != ".md":
                text = f"# {path.name}\n\n```{path.suffix[1:]}\n{text}```\n"
            place = path.relative_to(ROOT).as_posix()
            files.append(
                File.generated(config, _page_of(place), content=text, inclusion=InclusionLevel.NOT_IN_NAV),
            )
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Points links between docs/ and the files beside it to their pages, and turns blocks of LaTeX into MathML."""
    uri = page.file.src_uri
    folder = posixpath.dirname(uri.removeprefix(FOLDER) if uri.startswith(FOLDER) else f"docs/{uri}")

    def page_link(link: re.Match[str]) -> str:
        place = posixpath.normpath(posixpath.join(folder, link[1]))
        if place.startswith("docs/") or any(Path(place).match(pattern) for pattern in SHOWN):
            return posixpath.relpath(_page_of(place), posixpath.dirname(uri) or ".")
        return link[1]

    return FORMULA.sub(_block, LINK.sub(page_link, markdown))


def on_page_content(content: str, **_: object) -> str:
    """Turns LaTeX within lines into MathML."""
    return INLINE.sub(lambda code: convert(html.unescape(code[1])), content)


def _page_of(place: str) -> str:
    """The page of a file of the repository, from the root of the site."""
    if place.startswith("docs/"):
        return place.removeprefix("docs/")
    return f"{FOLDER}{place.removesuffix('.md')}.md"


def _block(formula: re.Match[str]) -> str:
    return f'<div class="formula">{convert(formula[1].strip(), display="block")}</div>'
