"""Stand-ins for packages that the peers import at the top of a module and never call in the race.

`environment.py` copies this file into the peers' environment together with a .pth file, so that ``import fluke`` works
there without torchvision, wandb and the like. A stand-in can be imported, subclassed and named in an annotation; using
one in any other way raises, so nothing that matters can be replaced by it unnoticed.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any

ABSENT = ("clearml", "datasets", "seaborn", "torchvision", "wandb")


class AbsentError(RuntimeError):
    """Somebody used a package that is not here."""


class _Nothing(type):
    """The type of every name in an absent package."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise AbsentError(f"{cls.__module__}.{cls.__name__} is a stand-in: install {cls.__module__.split('.')[0]}")

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing(name, (), {"__module__": f"{cls.__module__}.{cls.__name__}"})


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing(name, (), {"__module__": self.__name__})


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the absent packages after everything that is really installed."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname.split(".")[0] not in ABSENT:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def install() -> None:
    if not any(isinstance(finder, Absent) for finder in sys.meta_path):
        sys.meta_path.append(Absent())
