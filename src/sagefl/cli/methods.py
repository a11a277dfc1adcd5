"""`sagefl methods`: which methods there are, and what each one is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import console, friendly_errors

if TYPE_CHECKING:
    from rich.console import Console

    from ..methods import Method


def methods(
    id: Annotated[str | None, typer.Argument(help="Explain this one: its paper, what is ours, every option.")] = None,
) -> None:
    """List every method with its citation, evidence, communication and options; or explain one."""
    with friendly_errors():
        from ..methods import method_class
        from ..methods import methods as known

        out = console()
        if id is not None:
            _print_whole(out, id, method_class(id))
            return
        out.print(
            "models merged / transferred are per client and round; run one with: sagefl run --method ID:option=value"
        )
        for name, found in known().items():
            _print_line(out, name, found)


def _print_line(out: Console, name: str, found: type[Method]) -> None:
    options = " ".join(f"{option}={_shown(default)}" for option, (default, _) in found.fields().items())
    out.print(f"\n{name}", style="bold", end="")
    out.print(f"  {found.summary()}", markup=False)
    for label, text in (*_facts(found), ("options", options or "none")):
        out.print(f"    {label}: {text}", markup=False)


def _print_whole(out: Console, name: str, found: type[Method]) -> None:
    out.print(name, style="bold", end="")
    out.print(f"  {found.summary()}\n", markup=False)
    out.print(found.description(), markup=False)
    out.print()
    for label, text in _facts(found):
        out.print(f"{label}: {text}", markup=False)
    fields = found.fields()
    out.print("options:" if fields else "options: none")
    for option, (default, help) in fields.items():
        out.print(f"    {option} = {_shown(default)}  {help}", markup=False)


def _facts(found: type[Method]) -> list[tuple[str, str]]:
    """What it says of itself; a user's own may say nothing."""
    facts = {
        "paper": found.citation,
        "fidelity": found.fidelity,
        "evidence": found.evidence,
        "models merged / transferred": found.communication,
    }
    return [(label, text) for label, text in facts.items() if text]


def _shown(default: Any) -> str:
    """A default as one would type it."""
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
