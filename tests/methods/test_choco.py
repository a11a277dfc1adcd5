from __future__ import annotations

import itertools

import networkx
import pytest
import torch
from clusters import config
from rows import Rows, finished, metropolis, pulled, saved

from sagefl.exchange.compression import REPLICA, Compressor, compress, payload
from sagefl.methods import method
from sagefl.selection.outcome import decode, encode

EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 3), (3, 4)]
CLIENTS = 6  # client 5 has no neighbour
KINDS = ["top-k", "sign", "identity"]
DEFAULTS = method("choco").options


def outcomes(edges=EDGES):
    weights = metropolis(edges, CLIENTS)
    return {k: pulled(weights[k]) for k in range(CLIENTS)}


class Literal:
    """CHOCO-SGD as descriptions of Koloskova et al. 2019, Algorithm 2, have it.

    Every node holds a copy of every neighbour's replica and adds what it receives.
    """

    def __init__(self, rows: Rows, kind: str, ratio: float, gamma: float) -> None:
        self.kind, self.ratio, self.gamma, self.weights = kind, ratio, gamma, metropolis(EDGES, CLIENTS)
        self.real = torch.zeros(rows.layout.shared_stop)
        self.real[:35] = self.real[48 : 48 + 7] = 1
        start = rows.shared.clone()
        self.views = {k: {j: start[j].clone() for j in (k, *self.weights[k])} for k in range(CLIENTS)}

    def round(self, models: torch.Tensor) -> torch.Tensor:
        sent = {
            k: compress(self.kind, self.ratio, models[k] - self.views[k][k], self.real)
            for k in range(CLIENTS)
            if self.weights[k]
        }
        for k, j in itertools.product(range(CLIENTS), sent):
            if j in self.views[k]:
                self.views[k][j] += sent[j]
        moved = models.clone()
        for k, weights in self.weights.items():
            for j, w in weights.items():
                moved[k] += self.gamma * w * (self.views[k][j] - self.views[k][k])
        return moved


@pytest.mark.parametrize("kind", KINDS)
def test_replicas_equal_every_holders_view(kind):
    """One row per client stands for all copies of its replica, and models move as printed."""
    layer = Compressor(kind, 0.2, 0.3)
    rows = Rows.made(CLIENTS, layer)
    literal, generator = Literal(rows, kind, 0.2, 0.3), torch.Generator().manual_seed(5)
    for round in range(6):
        rows.train(generator)
        rows.publish(round)
        heads, expected = rows.heads.clone(), literal.round(rows.shared.clone())
        layer.mix(rows, round, layer.resolve(outcomes(), {}, 0.5))
        replicas = rows.population.extras[REPLICA]
        for k, views in literal.views.items():
            for j, view in views.items():
                assert torch.equal(view, replicas[j]), f"what {k} knows of {j}"
        assert torch.allclose(rows.shared, expected, atol=1e-6)
        assert torch.equal(rows.heads, heads)
        assert not rows.padding.any()


def test_gossip_is_that_of_the_authors_code():
    """`search_gamma` in dl_code/pcode/tools/tune_consensus_stepsize.py of epfml/ChocoSGD.

    There a round steps towards the replicas, X += gamma X^ (W - I), and then sends, X^ += Q(X - X^); replicas start at
    zero. Here it sends first: the first step of theirs moves nothing, the others come in the same order.
    """
    ratio, gamma, rounds = 0.2, 0.3, 9
    layer = Compressor("top-k", ratio, gamma)
    rows = Rows.made(CLIENTS, layer)
    start, real = rows.shared[0].clone().double(), Literal(rows, "top-k", ratio, gamma).real > 0
    rows.train(torch.Generator().manual_seed(5))
    weights, w = metropolis(EDGES, CLIENTS), torch.eye(CLIENTS, dtype=torch.float64)
    for k, around in weights.items():
        for j, share in around.items():
            w[k, j], w[k, k] = share, w[k, k] - share
    x = (rows.shared.double() - start)[:, real].T.clone()  # a column per node, as theirs
    replicas = torch.zeros_like(x)
    for _ in range(rounds + 1):
        x += gamma * replicas @ (w - torch.eye(CLIENTS, dtype=torch.float64))
        for node in range(CLIENTS):
            if weights[node]:
                kept = (x - replicas)[:, node].abs().argsort(descending=True)[: int(ratio * len(x))]
                replicas[kept, node] = x[kept, node]
    for round in range(rounds):
        rows.publish(round)
        layer.mix(rows, round, layer.resolve(outcomes(), {}, 0.5))
    assert torch.allclose((rows.shared.double() - start)[:, real].T, x, atol=1e-5)


def test_whoever_has_no_neighbour_moves_nowhere():
    layer = Compressor("top-k", 0.2, 0.3)
    rows = Rows.made(CLIENTS, layer)
    rows.train(torch.Generator().manual_seed(5))
    rows.publish(0)
    before, replica = rows.shared[5].clone(), rows.population.extras[REPLICA][5].clone()
    layer.mix(rows, 0, layer.resolve(outcomes(), {}, 0.5))
    assert torch.equal(rows.shared[5], before)
    assert torch.equal(rows.population.extras[REPLICA][5], replica)


def test_compressors_by_hand():
    x, real = torch.tensor([3.0, -1.0, 0.5, -4.0, 0.0]), torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0])
    assert compress("top-k", 0.5, x, real).tolist() == [3.0, 0.0, 0.0, -4.0, 0.0]
    assert compress("top-k", 0.01, x, real).tolist() == [0.0, 0.0, 0.0, -4.0, 0.0]  # always one at least
    assert compress("sign", 1.0, x, real).tolist() == [2.125, -2.125, 2.125, -2.125, 0.0]
    assert torch.equal(compress("identity", 1.0, x, real), x)


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_of_all_models_stays(kind):
    layer = Compressor(kind, 0.2, 0.5)
    rows = Rows.made(CLIENTS, layer)
    rows.train(torch.Generator().manual_seed(2), scale=1.0)
    rows.publish(0)
    mean = rows.shared.mean(0)
    layer.mix(rows, 0, layer.resolve(outcomes(), {}, 0.5))
    assert torch.allclose(rows.shared.mean(0), mean, atol=1e-6)


@pytest.mark.parametrize("kind", ["top-k", "sign"])
def test_gossip_alone_reaches_consensus_at_the_default_step(kind):
    """On the paper's graph; what is dropped at first arrives later, so that in the end nothing is lost."""
    clients = 20
    graph = networkx.barabasi_albert_graph(clients, 3, seed=1)
    weights = metropolis(list(graph.edges), clients)
    layer = Compressor(kind, DEFAULTS.ratio, DEFAULTS.gamma)
    rows = Rows.made(clients, layer)
    rows.train(torch.Generator().manual_seed(2), scale=1.0)
    apart = rows.shared.var(0).sum()
    for round in range(150):
        rows.publish(round)
        layer.mix(rows, round, layer.resolve({k: pulled(weights[k]) for k in range(clients)}, {}, 0.5))
    assert rows.shared.var(0).sum() < 0.05 * apart


def test_payloads():
    assert payload("top-k", 0.1, 1000) == 100 * 8
    assert payload("top-k", 0.0001, 1000) == 8
    assert payload("sign", 0.1, 1001) == 126 + 4
    assert payload("identity", 0.1, 1000) == 4000


def test_missed_messages_are_paid_for_when_one_is_back():
    layer = Compressor("top-k", 0.1, 0.5)
    rows = Rows.made(CLIENTS, layer)
    size = rows.layout.shared_size
    message, block = payload("top-k", 0.1, size), 4 * size
    assert (size, message, block) == (42, 32, 168)

    def bytes_of(client: int, edges: list[tuple[int, int]]) -> int:
        found = outcomes(edges)
        layer.resolve(found, {}, 0.5)
        return layer.traffic(client, found[client], {}, rows.sizes).models

    assert bytes_of(0, EDGES) == 2 * message
    assert bytes_of(0, [(2, 3), (3, 4)]) == 0  # 0 is away, 1 is silent, 3 goes on talking
    layer.load(decode(encode(layer.state())))  # a resumed run owes the same
    assert bytes_of(0, EDGES) == message + 2 * message
    for _ in range(7):
        assert bytes_of(0, [(2, 3), (3, 4)]) == 0
    assert bytes_of(0, EDGES) == message + block  # eight messages would be more than the block itself


def test_without_compression_it_is_d_psgd(tmp_path):
    """Also in the simulator, where messages are the published rows: identity and gamma = 1, allclose."""
    plain = finished(config("d-psgd", rounds=3), tmp_path / "plain").directory
    same = finished(config("choco:compression=identity:gamma=1", rounds=3), tmp_path / "same").directory
    other = finished(config("choco:compression=identity:gamma=0.5", rounds=3), tmp_path / "other").directory
    assert torch.allclose(saved(same, "params"), saved(plain, "params"), atol=1e-4)
    assert not torch.allclose(saved(other, "params"), saved(plain, "params"), atol=1e-2)
    a, b = plain.table("decisions"), same.table("decisions")
    assert a.select("chosen", "weights", "model_bytes").equals(b.select("chosen", "weights", "model_bytes"))


@pytest.mark.parametrize(("kind", "message"), [("top-k", 41 * 8), ("sign", 51 + 4)])
def test_in_the_simulator_messages_are_counted(kind, message, tmp_path):
    decisions = finished(config(f"choco:compression={kind}", rounds=2), tmp_path / "run").directory.table("decisions")
    assert (decisions["model_bytes"] == decisions["merged"] * message).all()  # 408 shared scalars
    assert set(decisions["merged"]) == {11}


@pytest.mark.parametrize("options", [{"compression": "zip"}, {"ratio": 0.0}, {"gamma": 1.5}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        method("choco", **options)
