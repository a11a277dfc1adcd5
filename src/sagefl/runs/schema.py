"""What can be set: every key of a config with its meaning, default and choices, and all of it as a TOML file to edit.

All of it is read from the pydantic models, so the command line and the reference are always up to date.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_origin

import tomli_w
from pydantic import BaseModel


@dataclass(frozen=True)
class Key:
    """One key of a section."""

    name: str
    kind: Any  # its type, as annotated
    default: Any  # None: not set, or required
    required: bool
    meaning: str

    @property
    def choices(self) -> tuple[Any, ...]:
        """Its possible values, if they are a fixed few."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()


@dataclass(frozen=True)
class Section:
    """One section: its dotted name ("" at the top), what it is about, and its own keys."""

    path: str
    about: str
    keys: tuple[Key, ...]
    named: str = ""  # for a section that is repeated under names of the user's choice: what the names stand for


def sections(schema: type[BaseModel], path: str = "", set_here: BaseModel | None = None) -> Iterator[Section]:
    """A model's own section and those below it; `set_here` holds defaults that differ from the model's own."""
    keys: list[Key] = []
    below: list[Section] = []
    prefix = f"{path}." if path else ""
    for name, field in schema.model_fields.items():
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        default = default if set_here is None else getattr(set_here, name)
        if (inner := _schema(field.annotation)) is not None:
            below += sections(inner, f"{prefix}{name}", default)
        elif (inner := _schema((get_args(field.annotation) or (None,))[-1])) is not None:  # a section for each name
            below += (replace(each, named=field.description or "") for each in sections(inner, f"{prefix}{name}.NAME"))
        else:
            keys.append(Key(name, field.annotation, default, field.is_required(), field.description or ""))
    yield Section(path, " ".join(inspect.cleandoc(schema.__doc__ or "").split()), tuple(keys))
    yield from below


def template(schema: type[BaseModel]) -> str:
    """A config file with every key explained and at its default; keys without one are commented out."""
    return "\n\n".join("\n".join(_written(section)) for section in sections(schema)) + "\n"


def _written(section: Section) -> Iterator[str]:
    mark = "# " if section.named else ""
    yield f"# {section.about}" + (f" {section.named.capitalize()}." if section.named else "")
    if section.path:
        yield f"{mark}[{section.path}]"
    for key in section.keys:
        unset = "# " if key.default is None else mark
        value = _placeholder(key.kind) if key.default is None else _toml(key.default)
        yield f"{unset}{key.name} = {value}  # {_explained(key)}"


def _explained(key: Key) -> str:
    """A key's meaning, whether it is required, and its choices."""
    meaning = f"required: {key.meaning}" if key.required else key.meaning
    return f"{meaning}; one of {', '.join(map(str, key.choices))}" if key.choices else meaning


def _toml(value: Any) -> str:
    """A value on one line; tomli_w would spread arrays and tables over several."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name} = {_toml(inner)}' for name, inner in value.items())}}}"
    return tomli_w.dumps({"x": value}).removeprefix("x = ").rstrip()


def _placeholder(kind: Any) -> str:
    """A placeholder for a missing value, which shows whether it is text, a list or a number."""
    kinds = {kind, *get_args(kind)}
    if any(get_origin(k) is tuple for k in kinds):
        return '["..."]'
    return '"..."' if str in kinds else "..."


def _schema(kind: Any) -> type[BaseModel] | None:
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
