"""Datasets of the Hugging Face hub, by name, through the optional extra `hf`.

`hf:NAME` is enough when a dataset has the splits `train` and `test`, one image column and one class column; otherwise
say which: `hf:cifar100?label=fine_label`, `hf:NAME?config=CONFIG&test=validation`. For `data.partition = owners`, name
the column that holds the owner of each sample: `hf:NAME?owner=writer_id`. What a name stands for may change on the hub:
`?revision=COMMIT` says which, and is part of a run's identity. Only data is loaded: the library refuses
datasets that would run their own code.
"""

from __future__ import annotations

import importlib
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from ..extras import how_to_install
from .dataset import Dataset
from .errors import DataError

_OPTIONS = ("config", "revision", "train", "test", "image", "label", "owner")


def from_hub(reference: str) -> Dataset:
    """The dataset `hf:NAME[?option=value&...]`; options are config, revision, train, test, image, label and owner."""
    name, options = _parse(reference)
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise DataError(
            f"{reference} needs the Hugging Face `datasets` library ({error}); the extra hf brings it: "
            f"{how_to_install('hf')}"
        ) from error
    try:
        hub = datasets.load_dataset(name, options.get("config"), revision=options.get("revision"))
    except Exception as error:  # the library raises many kinds: network, name, configuration, format
        raise DataError(f"cannot load {name!r} from the Hugging Face hub: {type(error).__name__}: {error}") from error
    return _convert(reference, hub, options)


def _parse(reference: str) -> tuple[str, dict[str, str]]:
    name, _, query = reference.removeprefix("hf:").partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(options.keys() - set(_OPTIONS))
    if not name or unknown:
        what = f"has the unknown option {unknown[0]!r}" if unknown else "names no dataset"
        raise DataError(f"{reference!r} {what}; expected hf:NAME?option=value with options {', '.join(_OPTIONS)}")
    return name, options


def _convert(reference: str, hub: Any, options: dict[str, str]) -> Dataset:
    train, test = (_split(reference, hub, options.get(role, role), role) for role in ("train", "test"))
    image = options.get("image") or _only(reference, train, "image", ("Image", "Array2D", "Array3D"))
    label = options.get("label") or _only(reference, train, "label", ("ClassLabel",))
    owner = options.get("owner")
    for role, column in (("image", image), ("label", label), *([("owner", owner)] if owner else [])):
        if column not in train.features:
            raise DataError(f"{reference} has no column {column!r} for {role}; it has {', '.join(train.features)}")
    return Dataset.from_arrays(
        reference,
        train_x=_images(reference, train, image),
        train_y=_labels(reference, train, label),
        test_x=_images(reference, test, image),
        test_y=_labels(reference, test, label),
        classes=getattr(train.features[label], "num_classes", None),
        owners=np.asarray(train[owner]) if owner else None,
    )


def _split(reference: str, hub: Any, wanted: str, role: str) -> Any:
    if not isinstance(hub, dict) or wanted not in hub:
        have = ", ".join(hub) if isinstance(hub, dict) else "no named splits"
        raise DataError(f"{reference} has no split {wanted!r}; it has {have}. Choose one with ?{role}=SPLIT")
    return hub[wanted]


def _only(reference: str, split: Any, role: str, kinds: tuple[str, ...]) -> str:
    """The only column of the given kinds of feature; kinds are class names, so the library is not needed here."""
    columns = [column for column, feature in split.features.items() if type(feature).__name__ in kinds]
    if len(columns) == 1:
        return str(columns[0])
    raise DataError(
        f"{reference} has {len(columns)} candidate columns for {role} ({', '.join(columns) or 'none'}) among "
        f"{', '.join(split.features)}; choose one with ?{role}=COLUMN"
    )


def _images(reference: str, split: Any, column: str) -> NDArray[Any]:
    images = [np.asarray(image) for image in split[column]]
    shapes = sorted({image.shape for image in images})
    if len(shapes) != 1:
        raise DataError(
            f"{reference}: images in {column!r} have {len(shapes)} different shapes, such as {shapes[:2]}; "
            "expected one. Resize them in your own function and pass it as module:function"
        )
    return np.stack(images)


def _labels(reference: str, split: Any, column: str) -> NDArray[Any]:
    labels = np.asarray(split[column])
    if labels.dtype.kind == "i" and labels.size and labels.min() < 0:
        raise DataError(f"{reference}: {column!r} marks samples as unlabelled (-1); choose a labelled split")
    return labels
