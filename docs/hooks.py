"""What MkDocs puts together at build time: tables from the code, the example files, the root's documents.

A line ``<!-- insert: NAME -->`` in a page is replaced by what the function of that name below makes. Links from pages
to files outside this folder, which read well in a checkout, are turned into links within the site.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
DOCUMENTS = {
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "security.md": "SECURITY.md",
    "measured.md": "benchmarks/RESULTS.md",
}
LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "sh", ".service": "ini", ".csv": "text", "": "docker"}
OUTSIDE = re.compile(
    r"\]\((?P<up>(?:\.\./)*)(?P<path>(?:docs|examples|results|benchmarks)/[^)#\s]*|[A-Z]+\.md)(?P<anchor>#[^)]*)?\)"
)
RESULTS = (".md", ".csv", ".svg", ".png", ".json", ".html")  # what is shown of results/; its tables are in the reports
CODE = re.compile(r"<code>(?P<text>[^<\n]*[ -][^<\n]*)</code>")
FIGURE = re.compile(
    r'<svg[^>]*aria-label="(.*?)".*?id="([^"]*)-figure_1".*?<figcaption>(.*?)</figcaption>', re.S
)  # of a study's report: title, name of its file, caption
INSERT = re.compile(r"^<!-- insert: (?P<name>[a-z-]+) -->$", re.M)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from files elsewhere in the repository."""
    for name, source in DOCUMENTS.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, "examples.md", content=example_files()))
    for path in sorted((ROOT / "results").rglob("*")):
        if path.suffix in RESULTS and path.name != "README.template.md" and path.parent.name != "tables":
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    files.append(File.generated(config, "results/figures.md", content=result_figures()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill the tables in and turn links to the repository into links of the site."""
    depth = page.file.src_uri.count("/")
    markdown = OUTSIDE.sub(lambda found: f"]({'../' * depth}{within_site(found)})", markdown)
    return INSERT.sub(lambda found: INSERTS[found["name"]](), markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let code wrap between words only; browsers would also break `--option` after its hyphens."""
    return CODE.sub(lambda found: f"<code>{unbroken(found['text'])}</code>", html)


def unbroken(code: str) -> str:
    """Every word in an element of its own, but for those that are wider than a phone."""
    return " ".join(f'<span class="word">{word}</span>' if len(word) < 40 else word for word in code.split(" "))


def within_site(link: re.Match[str]) -> str:
    """Where in the site a file of the repository is found."""
    path, anchor = link["path"], link["anchor"] or ""
    if path.startswith("docs/"):
        return path.removeprefix("docs/") + anchor
    if path.startswith("results/"):
        return path + anchor
    if path.startswith("examples/"):
        return f"examples.md#{example_id(path)}" if (ROOT / path).is_file() else "examples.md"
    return {"README.md": "index.md", "benchmarks/RESULTS.md": "measured.md"}.get(path, path.lower()) + anchor


# The example files ----------------------------------------------------------------------------------------------------


def example_id(path: str) -> str:
    """The anchor of an example file."""
    return re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")


def example_files() -> str:
    """Every file under examples/, in full; of data the first lines."""
    parts = ["# Example files", "Each of them is run by the tests."]
    for path in sorted(p for p in (ROOT / "examples").rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        name = path.relative_to(ROOT).as_posix()
        content = path.read_text(encoding="utf-8")
        if path.suffix == ".csv":
            content = "".join(content.splitlines(keepends=True)[:5]) + "...\n"
        parts.append(f"## {name} {{ #{example_id(name)} }}")
        parts.append(f"````{LANGUAGES.get(path.suffix, 'text')}\n{content.rstrip()}\n````")
    return "\n\n".join(parts) + "\n"


# The results' figures -------------------------------------------------------------------------------------------------


def result_figures() -> str:
    """The figures of every study under results/, as its report has them: title, caption, picture."""
    parts = ["# Figures of the studies", "Each with its whole report, which adds tables and claims."]
    for report in sorted((ROOT / "results").glob("*/report.html")):
        name, text = report.parent.name, report.read_text(encoding="utf-8")
        asked = text.partition("<title>")[2].partition("</title>")[0].partition("? ")[0]
        parts.append(f"## {asked} ({name})\n\n[The whole report]({name}/report.html).")
        for title, stem, caption in FIGURE.findall(text):
            parts.append(f"![{title}]({name}/figures/{stem}.svg)\n\n{caption}")
    return "\n\n".join(parts) + "\n"


# Tables from the code -------------------------------------------------------------------------------------------------


def run_config() -> str:
    """Every key of a run's config."""
    from sagefl.runs.config import RunConfig

    return "\n".join(sections(RunConfig))


def execution() -> str:
    """How a run is carried out."""
    from sagefl.runs.config import Execution

    return "\n".join(sections(Execution))


def node_config() -> str:
    """Every key of a node's config."""
    from sagefl.node.config import NodeConfig

    return "\n".join(sections(NodeConfig))


def sections(model: Any) -> Iterator[str]:
    """A table of a model's own keys, then its sections."""
    from sagefl.runs import schema

    for section in schema.sections(model):
        if section.path:
            yield f"\n### {section.path}\n\n{section.about}"
        yield "\n| key | type | default | meaning |\n|---|---|---|---|"
        for key in section.keys:
            shown = "required" if key.required else "" if key.default is None else f"`{key.default!r}`"
            name = f"{section.path}.{key.name}" if section.path else key.name
            cells = (f"`{name}`", kind(key.kind), shown, key.meaning)
            yield "| " + " | ".join(map(escaped, cells)) + " |"


def columns() -> str:
    """Every column of every table that a run writes."""
    from sagefl.runs.columns import TABLES, every_column

    parts = []
    for table, about in TABLES.items():
        parts.append(f"\n## {table}.parquet\n\n{about[0].upper()}{about[1:]}.\n")
        parts.append("| column | type | unit | meaning |\n|---|---|---|---|")
        for column in every_column(table):
            cells = (f"`{column.name}`", f"`{column.dtype}`", column.unit, column.explained)
            parts.append("| " + " | ".join(map(escaped, cells)) + " |")
    return "\n".join(parts)


def escaped(cell: str) -> str:
    """A table cell; a bar within code needs no escape."""
    return cell if cell.startswith("`") else cell.replace("|", "\\|")


def kind(annotation: Any) -> str:
    """A type as a reader would write it; where there are only a few values, these."""
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value!r}`" for value in get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join("nothing" if part is NoneType else kind(part) for part in get_args(annotation))
    if isinstance(annotation, type) and not get_args(annotation):
        return f"`{annotation.__name__}`"
    return f"`{str(annotation).replace('typing.', '')}`"


def methods() -> str:
    """Every method: what it does, its paper and how true it is to it, what it asks for and what it moves."""
    from sagefl.methods import methods as known

    rows = ["| id | what it does | paper | fidelity | asks for | models merged / moved |", "|---|---|---|---|---|---|"]
    for id, cls in known().items():
        cells = (f"`{id}`", cls.summary(), cls.citation, cls.fidelity, cls.evidence, cls.communication)
        rows.append("| " + " | ".join(map(escaped, cells)) + " |")
    return "\n".join(rows)


def fidelity() -> str:
    """What each published method was checked for, from the recorded checks."""
    with (ROOT / "results/fidelity/checks.csv").open(encoding="utf-8") as file:
        heads, *checks = csv.reader(file)
    lines = [heads, ["---"] * len(heads), *([f"`{id}`", *map(escaped, rest)] for id, *rest in checks)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def named_selectors() -> str:
    """The rules that `import sagefl` names: what their docstring says, and a table of options."""
    import sagefl
    from sagefl.selection.options import help_texts

    parts = []
    for name in sagefl.__all__:
        cls = getattr(sagefl, name)
        if not (isinstance(cls, type) and issubclass(cls, sagefl.Selector) and cls.id):
            continue
        rows = ["| option | default | meaning |", "|---|---|---|"]
        help = help_texts(cls)
        for option, field in cls.options().items():
            cells = (f"`{option}`", f"`{field.default!r}`", help[option])
            rows.append("| " + " | ".join(map(escaped, cells)) + " |")
        module = cls.__module__
        parts.append(f"::: {module}.{name}\n    options: {{ members: false, heading_level: 2 }}")
        parts.append(f"Id `{cls.id}`: {cls.summary}.")
        parts.append("\n".join(rows) if len(rows) > 2 else "No options.")
    return "\n\n".join(parts)


def commands() -> str:
    """The help of every command."""
    from typer.main import get_command

    from sagefl.cli import app

    return "\n\n".join(helps(get_command(app), "sagefl", None))


def helps(command: Any, name: str, parent: Any) -> Iterator[str]:
    """The help text of a command and of those below it."""
    context = command.make_context(name, ["--help"], parent, resilient_parsing=True)
    context.terminal_width = context.max_content_width = 100
    yield f"### {context.command_path}\n\n````text\n{command.get_help(context).rstrip()}\n````"
    for name in getattr(command, "commands", {}):
        yield from helps(command.commands[name], name, context)


def wire() -> str:
    """The protocol, as it stands in the source."""
    return f"```proto\n{(ROOT / 'src/sagefl/node/wire/node.proto').read_text(encoding='utf-8')}```"


INSERTS: dict[str, Callable[[], str]] = {
    "wire": wire,
    "run-config": run_config,
    "execution": execution,
    "node-config": node_config,
    "columns": columns,
    "methods": methods,
    "fidelity": fidelity,
    "selectors": named_selectors,
    "commands": commands,
}
