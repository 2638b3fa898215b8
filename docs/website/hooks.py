"""Hooks of mkdocs: the nav, and links from a page to files of the repository.

The nav is made from docs/index.md, so that a page is listed once. A file that a page links and
that is not a page (an example, a test) is copied into the site as text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `nav_of` is tested where mkdocs is not installed
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import File, Files
    from mkdocs.structure.pages import Page

FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)\s#]+)(?=[)#])")
PART = re.compile(r"^\*\*(?P<part>[^*]+)\*\*|^### (?P<group>.+)$|^- (?P<line>.*)$", re.MULTILINE)
ENTRY = re.compile(r"\[([^\]]+)\]\(([^)\s#]+\.md)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the nav from the index page."""
    config.nav = nav_of(Path(config.docs_dir, "index.md").read_text())
    return config


def nav_of(index: str) -> list[Any]:
    """The nav of an index page: its bold words are the tabs, its `###` headings their groups."""
    nav: list[Any] = [{"Home": "index.md"}]
    here: list[Any] = nav
    for found in PART.finditer(index):
        if part := found["part"]:
            nav.append({part: (tab := [])})
            here = tab
        elif group := found["group"]:
            tab.append({group: (here := [])})
        else:
            here.extend(
                {re.sub(r"[`*]", "", title): page}
                for title, page in ENTRY.findall(found["line"])
                if not page.startswith("..")
            )
    return nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the repository that pages link."""
    from mkdocs.structure.files import File

    docs = Path(config.docs_dir)
    for page in list(files.documentation_pages()):
        for target in LINK.findall(FENCE.sub("", page.content_string)):
            if (name := _outside(target, page, docs)) and not files.get_file_from_path(name):
                source = str(docs.parent / name.removeprefix("source/").removesuffix(".txt"))
                files.append(File.generated(config, name, abs_src_path=source))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to files that are not pages to their copies."""
    docs, folder = Path(config.docs_dir), Path(page.file.src_uri).parent

    def copy(found: re.Match[str]) -> str:
        name = _outside(found[1], page.file, docs)
        return os.path.relpath(name, folder) if name else found[1]

    return LINK.sub(copy, markdown)


def _outside(target: str, page: File, docs: Path) -> str:
    """The name in the site of a file that is not a page, or "" if it is one or missing."""
    file = (docs / page.src_uri).parent.joinpath(target).resolve()
    root = docs.parent.resolve()
    inside = file.is_relative_to(docs.resolve()) and file.suffix != ".py"
    if inside or not file.is_relative_to(root) or not file.is_file():
        return ""
    return f"source/{file.relative_to(root)}.txt"
