"""From what people have at hand (arrays, classes, keywords) to a config, whose names then say what was meant.

Arrays are named by their content and a notebook's classes by their source, so a run can be found again, and other
arrays or an edited class are another run. What can be imported is named as on the command line, where the
same run is found.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from numbers import Integral
from pathlib import Path
from types import FunctionType
from typing import Any

from ..data import Dataset
from ..data.user import SIZES, from_tuple
from ..errors import UsageError
from ..learning.models import MODELS
from ..methods import Method
from ..references import file_of
from ..runs.config import RunConfig, merged, method_config, read_toml
from ..runs.own_losses import LOSSES
from ..runs.sources import outdated, source_of_object, stale
from ..selection import Selector
from ..selection.registry import nearest
from ..settings import nested, number_list, split_list

IN_PROCESS = ("auto", "sequential", "stacked")


def resolved(config: Mapping[str, Any] | str | Path | None, keys: Mapping[str, Any], **own: Any) -> RunConfig:
    """A config from a file or dictionary, keywords on top of it, and `own` sections on top of both."""
    if isinstance(config, str | Path):
        base: dict[str, Any] = read_toml(Path(config))
    else:
        base = nested(dict(config or {}))
    placed: dict[str, Any] = {}
    for name, value in keys.items():
        placed = merged(placed, _placed(name, value))
    return RunConfig.parse(merged(merged(base, placed), {k: v for k, v in own.items() if v is not None}))


def _placed(name: str, value: Any) -> dict[str, Any]:
    """A keyword where it belongs: a key or section by its own name, a key of a section if no other has one like it."""
    fields = RunConfig.model_fields
    if name in fields:
        if name == "topology" and isinstance(value, str):
            return {"topology": {"kind": value}}
        return {name: nested(dict(value)) if isinstance(value, Mapping) else value}
    sections = {key: field.annotation for key, field in fields.items() if hasattr(field.annotation, "model_fields")}
    homes = [key for key, schema in sections.items() if name in schema.model_fields]  # type: ignore[union-attr]
    if len(homes) == 1:
        return {homes[0]: {name: value}}
    if homes:
        raise UsageError(f"{name!r} is a key of {', '.join(homes)}: write {homes[0]}={{{name!r}: ...}}")
    known = {*fields, *(key for schema in sections.values() for key in schema.model_fields)}  # type: ignore[union-attr]
    raise UsageError(f"there is no config key {name!r}{nearest(name, known)}; `sagefl config` lists all")


# Data -----------------------------------------------------------------------------------------------------------------


def dataset_of(data: Any) -> tuple[str | None, Dataset | None]:
    """The name of the data, and the data themselves unless the name is enough to load them."""
    if data is None or isinstance(data, str | Path):
        return (None if data is None else str(data)), None
    if callable(data):
        data = data()
    if not isinstance(data, Dataset):
        if not isinstance(data, tuple | list) or len(data) not in SIZES:
            raise UsageError(
                f"data is a {type(data).__name__}; expected a name, a sagefl.data.Dataset, a function that returns "
                "one, or the arrays (x, y, x_test, y_test), and as a fifth the owners of the training samples"
            )
        data = from_tuple("data", data)
    name = f"arrays-{data.digest[:12]}"
    return name, dataclasses.replace(data, name=name)


# Models and methods ---------------------------------------------------------------------------------------------------


def model_of(model: Any) -> dict[str, Any] | None:
    """A model's section of a config: by name, by reference, or for a class of the notebook by its source."""
    if model is None:
        return None
    if isinstance(model, str):
        return {"name": model}
    if isinstance(model, Mapping):
        return dict(model)
    if not isinstance(model, type | FunctionType | partial):
        raise UsageError(f"model is a {type(model).__name__}; expected a name, or a class or function that makes one")
    if (reference := _reference(model)) is not None and _takes_shape(model):
        return {"name": reference}
    name = f"{_called(model)}@{_digest(model)}"
    MODELS[name] = model if _takes_shape(model) else _without_shape(model)
    return {"name": name}


def _takes_shape(model: Callable[..., Any]) -> bool:
    try:
        inspect.signature(model).bind((1,), 2)
    except TypeError:
        return False
    return True


def _without_shape(model: Callable[..., Any]) -> Callable[..., Any]:
    """A model that knows its own shape is called without one."""

    def make(shape: tuple[int, ...], classes: int, **options: Any) -> Any:
        try:
            inspect.signature(model).bind(**options)
        except TypeError as error:
            raise UsageError(
                f"{_called(model)} takes neither the shape of an input and the number of classes, nor nothing but "
                f"model.options: {error}"
            ) from None
        return model(**options)

    make.__module__, make.__qualname__ = model.__module__, _called(model)
    make.made_from = model  # type: ignore[attr-defined]  # for whoever looks for its source
    return make


def loss_of(loss: Any) -> str | None:
    """A loss of the user's own by name: a reference, or for a function of the notebook its source."""
    if loss is None or isinstance(loss, str):
        return loss
    if not callable(loss) or not hasattr(loss, "__qualname__"):
        raise UsageError(f"loss is a {type(loss).__name__}; expected file.py:function, or a function")
    if (reference := _reference(loss)) is not None:
        return reference
    name = f"{loss.__qualname__}@{_digest(loss)}"
    LOSSES[name] = loss
    return name


def methods_of(given: Any) -> list[Any]:
    """The methods of a comparison: several, one alone, or a text as on the command line."""
    if isinstance(given, str):
        return split_list(given)
    return list(given) if isinstance(given, Iterable) and not isinstance(given, Mapping) else [given]


def seeds_of(given: Any) -> list[int]:
    """The seeds of a comparison; none for that of its config."""
    if given is None:
        return []
    if isinstance(given, str):
        return number_list("seeds", given)
    if isinstance(given, int):
        raise UsageError(f"seeds={given} can mean one seed or {given} of them: write [{given}] or range({given})")
    found = list(given) if isinstance(given, Iterable) else [given]
    if not found or not all(isinstance(seed, Integral) for seed in found):
        raise UsageError(
            f"seeds are whole numbers, such as range(3) or [1, 4], got {given!r}; leave them out for one run"
        )
    return [int(seed) for seed in found]


def method_of(given: Any) -> dict[str, Any]:
    """A method's section of a config, from an id with options, a selector or a method class."""
    if isinstance(given, str):
        return method_config(given)
    if isinstance(given, Mapping):
        return dict(given)
    cls = given if isinstance(given, type) else type(given)
    if not issubclass(cls, Selector | Method):
        raise UsageError(f"a method is an id such as 'rg', a Selector or a Method class, got {given!r}")
    options: dict[str, Any] = {}
    if isinstance(given, Selector):
        fields = dataclasses.fields(given)
        options = {f.name: v for f in fields if (v := getattr(given, f.name)) != f.default}
    registered: dict[str, Any] = Method.registered if issubclass(cls, Method) else Selector.registered
    if cls.__module__.split(".")[0] == "sagefl" or (reference := _reference(cls)) is None:
        name = cls.id or cls.__name__
        if registered.setdefault(name, cls) is not cls:
            if registered[name].__module__ != cls.__module__ and not cls.id:
                raise UsageError(f"the name {name} is taken by a registered method: give the class an `id` of its own")
            registered[name] = cls  # a notebook cell that was run again
        return {"id": name, "options": options}
    return {"id": reference, "options": options}


def _reference(thing: Any) -> str | None:
    """`module:name` if that is how others can import it."""
    if isinstance(thing, partial):
        return None
    module = thing.__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    reference = f"{module}:{thing.__qualname__}"
    if module == "__main__" or file is None or "<" in thing.__qualname__:
        return None
    if (found := file_of(reference)) is None or found.resolve() != Path(file).resolve():
        return None
    if changed := stale([thing]):
        raise UsageError(outdated(changed))
    return reference


def _called(thing: Any) -> str:
    """The name of a class or function, also of one whose arguments are given in part."""
    name: str = thing.func.__qualname__ if isinstance(thing, partial) else thing.__qualname__
    return name


def _digest(thing: Any) -> str:
    return hashlib.sha256(json.dumps(source_of_object(thing), sort_keys=True).encode()).hexdigest()[:8]


def engine_for(engine: str, model: Any, methods: Any, loss: Any = None) -> str:
    """The engine that can carry it out: worker processes cannot import what a notebook or a script defines."""
    inner = [m if isinstance(m, type) else type(m) for m in methods if not isinstance(m, str | Mapping)]
    given = (model, loss, *(c for c in inner if issubclass(c, Method)))
    things = [t for t in given if callable(t) and _reference(t) is None]
    local = [_called(t) for t in things if t.__module__.split(".")[0] != "sagefl"]
    if not local:
        return engine
    if engine not in IN_PROCESS:
        raise UsageError(
            f"{local[0]} is defined where workers of the engine {engine} cannot import it: use engine='sequential' or "
            "'stacked', or move it into a file"
        )
    return "sequential" if engine == "auto" else engine
