"""The HTML around the files in `static/`: the live page links to them, a report contains them.

There is no build step. A report puts the modules one after another without their imports and exports, so their
top-level names must differ, which a test checks. Everything that comes from a run directory enters as JSON and appears
on the page as text, never as HTML; a script is allowed by its hash alone.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from importlib import resources
from typing import Any

from .plain import embedded
from .tables import headings

MODULES = (
    "dom.js",
    "palette.js",
    "source.js",
    "drawing.js",
    "plotting.js",
    "charts.js",
    "runs.js",
    "network.js",
    "memory.js",
    "explorer.js",
    "theory.js",
    "stopping.js",
    "timeline.js",
    "scouting.js",
    "main.js",
)  # in the order of their dependencies
ASSETS = (*MODULES, "style.css", "icon.svg")
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_IMPORT = re.compile(r"^import\s[^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(async )?(function|const|class|let)\b)", re.MULTILINE)


@cache
def asset(name: str) -> str:
    """A file shipped with the package."""
    return (resources.files(__package__) / "static" / name).read_text(encoding="utf-8")


def bundle() -> str:
    """All modules as one script."""
    parts = [_EXPORT.sub("", _IMPORT.sub("", asset(name))) for name in MODULES]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "\n})();\n"


def live_page() -> str:
    """The server's page; the browser fetches everything else from the server."""
    head = '<link rel="stylesheet" href="static/style.css"><link rel="icon" href="static/icon.svg">'
    preload = "".join(f'<link rel="modulepreload" href="static/{name}">' for name in MODULES)
    return _document("sagefl", head + preload, '<script type="module" src="static/main.js"></script>')


def frozen_page(title: str, data: dict[str, Any]) -> str:
    """One file that needs nothing else."""
    script = bundle()
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{allowed}'; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    icon = base64.b64encode(asset("icon.svg").encode()).decode()
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">'
        f'<link rel="icon" href="data:image/svg+xml;base64,{icon}"><style>{asset("style.css")}</style>'
    )
    held = f'<script type="application/json" id="data">{embedded(data)}</script>'
    return _document(title, head, f"{held}\n<script>{script}</script>")


def _document(title: str, head: str, scripts: str) -> str:
    columns = f'<script type="application/json" id="columns">{embedded(headings())}</script>'
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{html.escape(title)}</title>{head}</head>\n<body>\n{_BODY}\n{columns}\n{scripts}\n</body></html>\n"
    )


_BODY = """\
<a class="skip" href="#main">Skip to the content</a>
<header>
  <h1>sagefl <span id="subtitle">ask before you download</span></h1>
  <nav id="tabs" role="tablist" aria-label="Views"></nav>
  <p id="connection" role="status"></p>
</header>
<main id="main" tabindex="-1"></main>
<div id="announcer" class="visually-hidden" aria-live="polite"></div>
<noscript>This page draws with JavaScript; the tables of a run are in its directory as parquet files.</noscript>"""
