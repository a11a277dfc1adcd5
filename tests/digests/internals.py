"""The only modules of sagefl that these tests import beside its command line: when one moves, its line here follows."""

from sagefl import make, replay
from sagefl.data import IID, Dirichlet, Federation, Shards, load
from sagefl.node.wire import node_pb2
from sagefl.topology import GraphKind, build

__all__ = ["IID", "Dirichlet", "Federation", "GraphKind", "Shards", "build", "load", "make", "node_pb2", "replay"]
