"""A study as a TOML file: methods x worlds x seeds, what is compared, and what is reported.

`designs/` holds the studies that come with sagefl and, in `start.toml`, one to start from, in which every key is
explained. A world is a set of config keys, of any section; a cell is a run's config and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field, field_validator

from ..errors import UsageError
from ..methods.fidelity import ranked
from ..runs.config import RunConfig, merged, read_toml
from ..runs.sections import ConfigError, ConfigSection
from ..selection.registry import nearest
from ..settings import nested, parse_method
from .collect import measure_names
from .errors import StudyError
from .matrix import Cell
from .results import Configuration

if TYPE_CHECKING:
    from ..methods import Method

SHIPPED = (
    "paper",
    "gap",
    "beyond",
    "confirmation",
    "worlds",
    "further",
    "culprits",
    "ablations",
    "misses",
    "level",
    "time",
)
ALIKE = "two worlds look the same in tables: give each of [[worlds]] a name of its own"
_AXES = {"datasets": "data.dataset", "topologies": "topology", "alphas": "data.alpha"}  # of a grid, by name
_TOLD = {"data.dataset", "data.alpha", "topology", "topology.kind"}  # keys that tell worlds apart without a name


class Primary(ConfigSection):
    """A comparison that was named before anything was run."""

    method: str
    against: str = "rg"
    measure: str = "client"
    world: str | None = None


@dataclass(frozen=True)
class Trial:
    """What a study compares, and in which runs."""

    methods: tuple[str, ...]
    names: Mapping[str, str]
    references: tuple[str, ...]
    against: str
    primary: tuple[Primary, ...]
    report: tuple[str, ...]
    level: float
    pooled: bool  # whether worlds are replications, too, rather than compared one by one
    worlds: tuple[Configuration, ...]
    replications: int  # how often every method is run

    @property
    def contenders(self) -> tuple[str, ...]:
        """The methods that are compared; those only inspired by a paper are not."""
        return tuple(m for m in self.methods if m not in (*self.references, self.against) and ranked(m))

    @property
    def lead(self) -> str:
        """The measure that is drawn: that of the primary comparison, else the first reported."""
        return self.primary[0].measure if self.primary else self.report[0]

    @property
    def family(self) -> int:
        """How many comparisons there are beside the primary ones."""
        every = len(self.contenders) * len(self.report) * (1 if self.pooled else len(self.worlds))
        return every - sum(self.pooled or p.world is not None for p in self.primary)

    def show(self, method: str) -> str:
        """A method's name in tables."""
        return self.names.get(method, method)


class StageSpec(ConfigSection):
    """A part of the matrix that is run before the rest, with methods and seeds of its own."""

    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    datasets: tuple[str, ...] = ()
    topologies: tuple[str, ...] = ()
    alphas: tuple[float, ...] = ()

    @property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        """The part of the grid that it names."""
        return {axis: getattr(self, axis) for axis in _AXES}

    def within(self, axes: Mapping[str, Sequence[Any]]) -> StageSpec | None:
        """What is left of it where only these values of some axes are asked for."""
        left = {axis: tuple(v for v in of if not axes.get(axis) or v in axes[axis]) for axis, of in self.axes.items()}
        return self.model_copy(update=left) if all(left[axis] or not self.axes[axis] for axis in left) else None


class _World(NamedTuple):
    name: str
    keys: dict[str, Any]
    seeds: Sequence[int]


class Spec(ConfigSection):
    """The keys of a study's file."""

    title: str
    methods: tuple[str, ...] = Field(min_length=1)
    names: dict[str, str] = Field(default_factory=dict)
    base: dict[str, Any] = Field(default_factory=dict)
    worlds: tuple[dict[str, Any], ...] = ({},)
    grid: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    seeds: tuple[int, ...] = (1, 2, 3)
    order: tuple[Literal["methods", "worlds", "seeds"], ...] = ("seeds", "worlds", "methods")  # outermost first
    stages: tuple[StageSpec, ...] = ()  # what is run first, in this order; the rest of the matrix follows
    references: tuple[str, ...] = ()
    primary: tuple[Primary, ...] = ()
    report: tuple[str, ...] = ("client", "accuracy")
    level: float = Field(default=0.95, gt=0, lt=1)
    pooled: bool = False
    small: bool = False

    @field_validator("primary", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return [value] if isinstance(value, dict) else value

    @property
    def against(self) -> str:
        """The method that the others are compared with."""
        return self.primary[0].against if self.primary else (*self.references, "rg")[0]

    def check(self) -> None:
        """Refuse what could only fail after the runs."""
        staged = [spec for stage in self.stages for spec in stage.methods]
        for spec in (*self.methods, *staged):
            id, options = parse_method(spec)
            _made(id, options)
        if sorted(self.order) != ["methods", "seeds", "worlds"]:
            raise StudyError(f"order names methods, worlds and seeds once each, got {', '.join(self.order)}")
        names = [world.name for world in self._worlds()]
        if any(names) and not all(names):
            raise StudyError("some of [[worlds]] have a name and some have none: name all of them, or none")
        if any(names) and len(set(names)) < len(names):
            raise StudyError(ALIKE)
        known = measure_names()
        for measure in (*self.report, *(p.measure for p in self.primary)):
            if measure not in known:
                close = nearest(measure, known)
                raise StudyError(f"report: no run has a number {measure!r}{close}; there are {', '.join(known)}")
        if not self.report:
            return
        primary = [p.method for p in self.primary]
        named = {"stages": staged, "references": self.references, "primary": primary, "against": [self.against]}
        for key, specs in named.items():
            for spec in specs:
                if spec not in self.methods:
                    raise StudyError(
                        f"{key} names {spec!r}, which is not one of the methods{nearest(spec, self.methods)}"
                    )
        for p in self.primary:
            if p.method in (*self.references, p.against) or p.against != self.against or p.measure not in self.report:
                raise StudyError(
                    f"primary: {p.method!r} against {p.against!r} on {p.measure!r} must compare a method that is no "
                    "reference, all primary ones with the same other, on a measure that `report` names"
                )
            if not ranked(p.method):
                raise StudyError(f"primary: {p.method!r} is only inspired by its paper, and is not ranked")
            if p.world is not None and p.world not in names:
                raise StudyError(f"primary: there is no world {p.world!r}; there are {', '.join(names)}")

    def narrowed(self, **axes: Sequence[Any]) -> Spec:
        """With other values of the grid's data sets, topologies or alphas; those left empty stay."""
        grid = dict(self.grid)
        for axis, values in axes.items():
            if not values:
                continue
            if (key := _AXES[axis]) not in grid:
                raise StudyError(f"this study has no {axis} to choose from: its file has no {key!r} in [grid]")
            kinds = {known["kind"]: known for known in grid[key]} if axis == "topologies" else {}
            grid[key] = tuple(kinds.get(v, {"kind": v}) if axis == "topologies" else v for v in values)
        stages = [stage.within(axes) for stage in self.stages]
        return self.model_copy(update={"grid": grid, "stages": tuple(stage for stage in stages if stage)})

    def staged(self, added: Sequence[str] = (), overrides: Mapping[str, Any] | None = None) -> list[Cell]:
        """All runs: those of the stages first, then the rest of the matrix; `added` methods belong to all of them."""
        parts = [(self.narrowed(**stage.axes), stage.methods, stage.seeds) for stage in self.stages]
        made = []
        for spec, methods, seeds in (*parts, (self, (), ())):
            made += spec.cells(list(dict.fromkeys([*(methods or self.methods), *added])), seeds, overrides)
        return list({cell.config.digest: cell for cell in made}.values())

    def cells(
        self, methods: Sequence[str] = (), seeds: Sequence[int] = (), overrides: Mapping[str, Any] | None = None
    ) -> list[Cell]:
        """The runs of the matrix, in the file's order; the same run twice is one."""
        worlds, methods = self._worlds(), list(methods or self.methods)
        places = []
        for m, (w, world) in product(range(len(methods)), enumerate(worlds)):
            for s, seed in enumerate(seeds or world.seeds or self.seeds):
                place = {"methods": m, "worlds": w, "seeds": s}
                places.append(([place[axis] for axis in self.order], methods[m], world, seed))
        places.sort(key=itemgetter(0))
        made = [self._cell(method, world, seed, overrides or {}) for _, method, world, seed in places]
        return list({cell.config.digest: cell for cell in made}.values())

    def trial(self) -> Trial | None:
        """What is compared; None where nothing is."""
        if not self.report:
            return None
        cells = self.staged()
        if len({(cell.configuration, cell.method, cell.seed) for cell in cells}) < len(cells):
            raise StudyError(ALIKE)
        worlds = tuple(dict.fromkeys(cell.configuration for cell in cells))
        runs = len({(cell.configuration, cell.seed) for cell in cells})
        how = (self.level, self.pooled)
        compared = (self.references, self.against, self.primary, self.report)
        return Trial(self.methods, self.names, *compared, *how, worlds, runs)

    def _worlds(self) -> list[_World]:
        made = []
        for given in self.worlds:
            keys = {k: v for k, v in given.items() if k not in ("name", "seeds")}
            for values in product(*self.grid.values()):
                point = dict(zip(self.grid, values, strict=True))
                said = [
                    f"{k.rpartition('.')[2]} {v}" for k, v in point.items() if given.get("name") or point.keys() - _TOLD
                ]
                name = ", ".join([*([given["name"]] if given.get("name") else []), *said])
                made.append(_World(name, merged(keys, nested(point)), given.get("seeds", ())))
        return made

    def _cell(self, method: str, world: _World, seed: int, overrides: Mapping[str, Any]) -> Cell:
        id, options = parse_method(method)
        own = {"seed": seed, "method": {"id": id, "options": options}}
        try:
            config = RunConfig.parse(merged(merged(merged(self.base, world.keys), own), overrides))
            if config.data.anchor_order == "fixed":
                _made(id, options).asked_in("fixed")
        except (ConfigError, UsageError) as error:
            raise StudyError(f"world {world.name!r}: {error}" if world.name else str(error)) from None
        at = Configuration(config.data.dataset, config.topology.kind, config.data.alpha, world.name)
        return Cell(at, method, config)


def _made(id: str, options: Mapping[str, Any]) -> Method:
    from ..methods import method

    return method(id, **options)


def shipped(name: str) -> str:
    """The text of a file in `designs/`."""
    return (resources.files(__package__) / "designs" / f"{name}.toml").read_text(encoding="utf-8")


def read_spec(source: Path | str, preset: str | None = None) -> tuple[Spec, str, str]:
    """A study that comes with sagefl, by name, or that of a file; its text; and its name at that scale."""
    import tomllib

    name = str(source)
    if name in SHIPPED:
        text = shipped(name)
        document = tomllib.loads(text)
    elif Path(source).suffix != ".toml" and not Path(source).is_file():
        raise StudyError(f"no study {name!r}{nearest(name, SHIPPED)}: name a file, or one of {', '.join(SHIPPED)}")
    else:
        document, text, name = read_toml(Path(source)), Path(source).read_text(encoding="utf-8"), Path(source).stem
    presets = document.pop("presets", {})
    chosen = preset or next(iter(presets), None)
    if chosen is not None and chosen not in presets:
        there = f"presets: {', '.join(presets)}" if presets else "its file has no [presets]"
        raise StudyError(f"unknown preset {chosen!r}{nearest(chosen, presets)}; {there}")
    spec = Spec.parse(merged(document, presets[chosen]) if chosen else document)
    spec.check()
    return spec, text, name if chosen in (None, name) else f"{name}-{chosen}"
