"""Datasets, partitions and roles: everything about *which sample is whose, and what for*.

`load` gets a `Dataset` from one string (embedded, real files, a user's own). A partitioner (`Dirichlet`,
`Shards`, `IID`, `Owners`) deals its training split to clients; `split_roles` gives every sample one of three
roles (train, anchor, eval) that never overlap; a `Federation` is the result. `get` and `status` fetch real data
and say what is there.

What does not live here: models and batches (`sagefl.learning`), graphs (`sagefl.topology`), and decisions
(`sagefl.selection`), which never see data at all. Importing this package needs NumPy alone; pillow and Hugging
Face's library are imported only where they are used.
"""

from sagefl.data.dataset import Dataset
from sagefl.data.datasets import EMBEDDED, NAMES, load
from sagefl.data.errors import DataError, DataMissing
from sagefl.data.federation import AnchorMode, Federation
from sagefl.data.fetch import Status, get, status
from sagefl.data.partition import IID, Dirichlet, Owners, Partitioner, Shards
from sagefl.data.places import data_dir
from sagefl.data.roles import Roles, split_roles

__all__ = [
    "EMBEDDED",
    "IID",
    "NAMES",
    "AnchorMode",
    "DataError",
    "DataMissing",
    "Dataset",
    "Dirichlet",
    "Federation",
    "Owners",
    "Partitioner",
    "Roles",
    "Shards",
    "Status",
    "data_dir",
    "get",
    "load",
    "split_roles",
    "status",
]
