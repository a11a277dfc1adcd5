"""Datasets, partitions and roles: everything about *which sample is whose, and what for*.

`load` gets a `Dataset` from one string (embedded, real files, a user's own). A partitioner (`Dirichlet`,
`Shards`, `IID`, `Owners`) deals its training split to clients; `split_roles` gives every sample one of three
roles (train, anchor, eval) that never overlap; a `Federation` is the result. `datasets` lists those with a name, one
entry each in `catalogue`, and `get` fetches them.

`deal` makes a world whose clients come in groups: who belongs together is in `groups`, what they differ in has an
entry each in `shifts`.

What does not live here: models and batches (`sagefl.learning`), graphs (`sagefl.topology`), and decisions
(`sagefl.selection`), which never see data at all. Importing this package needs NumPy alone; pillow and
Hugging Face's library are imported only where they are used.
"""

from .catalogue import NamedDataset, dataset_names, datasets
from .dataset import Dataset
from .errors import DataError, DataMissing
from .federation import AnchorMode, Federation
from .fetch import get
from .files import FileDataset, RawFile, Way
from .groups import Assign
from .loading import load
from .partition import IID, Dirichlet, Owners, Partitioner, Shards
from .places import data_dir
from .roles import Roles, split_roles
from .shifts import SHIFTS, ShiftKind
from .targets import TaskKind
from .worlds import Dealt, Grouping, WorldKind, deal

__all__ = [
    "IID",
    "SHIFTS",
    "AnchorMode",
    "Assign",
    "DataError",
    "DataMissing",
    "Dataset",
    "Dealt",
    "Dirichlet",
    "Federation",
    "FileDataset",
    "Grouping",
    "NamedDataset",
    "Owners",
    "Partitioner",
    "RawFile",
    "Roles",
    "Shards",
    "ShiftKind",
    "TaskKind",
    "Way",
    "WorldKind",
    "data_dir",
    "dataset_names",
    "datasets",
    "deal",
    "get",
    "load",
    "split_roles",
]
