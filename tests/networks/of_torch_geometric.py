"""torch_geometric: two layers of each kind of convolution and a pooling, on random graphs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from tests.networks.made import Made

NODES, EDGES, WIDTH = 24, 80, 16
WITH_EDGES = {"NNConv", "GMMConv", "SplineConv", "CGConv", "GENConv", "GINEConv", "PDNConv",
              "GeneralConv", "ResGatedGraphConv", "TransformerConv"}  # fmt: skip
PLAIN = ("GCNConv", "SAGEConv", "GraphConv", "ClusterGCNConv", "LEConv", "MFConv", "GeneralConv",
         "ResGatedGraphConv", "FiLMConv", "MixHopConv", "AntiSymmetricConv", "GatedGraphConv",
         "CGConv", "GINConv", "GINEConv", "NNConv", "EdgeConv", "RGCNConv", "RGATConv", "AGNNConv",
         "FAConv", "GCN2Conv", "HypergraphConv", "WLConvContinuous")  # fmt: skip
HEADS = ("GATConv", "GATv2Conv", "TransformerConv")
CONVOLUTIONS: dict[str, dict[str, Any]] = {
    **{name: {} for name in PLAIN},
    **{name: {"heads": 2, "concat": False} for name in HEADS},
    "ChebConv": {"K": 3}, "SGConv": {"K": 2}, "SSGConv": {"alpha": 0.3, "K": 2},
    "ARMAConv": {"num_stacks": 2, "num_layers": 2}, "TAGConv": {"K": 2},
    "FeaStConv": {"heads": 2}, "GENConv": {"edge_dim": 4, "aggr": "softmax", "learn_t": True},
    "EGConv": {"aggregators": ["sum", "mean", "max", "var"], "num_heads": 4},
    "PDNConv": {"edge_dim": 4, "hidden_channels": 8}, "APPNP": {"K": 3, "alpha": 0.1},
    "PNAConv": {"aggregators": ["mean", "min", "max", "std"],
                "scalers": ["identity", "amplification"], "deg": torch.tensor([0, 4, 8, 8, 4])},
    "GMMConv": {"dim": 4, "kernel_size": 3},
}  # fmt: skip
AGGREGATIONS = ("MedianAggregation", "SoftmaxAggregation", "LSTMAggregation", "Set2Set",
                "SortAggregation", "MultiAggregation", "VarAggregation", "GraphNormPool",
                "TopKPooling", "SAGPooling", "AttentionalAggregation", "MulAggregation",
                "QuantileAggregation", "GRUAggregation")  # fmt: skip


def names() -> list[str]:
    """Return convolutions and what sums up their results."""
    return [*CONVOLUTIONS, *AGGREGATIONS]


class Layered(nn.Module):
    """Two convolutions of one kind with a normalisation, then a sum of each graph's nodes."""

    def __init__(self, kind: str, pool: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList(convolution(kind) for _ in range(2))
        parts: Any = import_module("torch_geometric.nn")
        self.norm = parts.GraphNorm(WIDTH)
        self.kind, self.pool = kind, pooling(pool)
        self.head = nn.LazyLinear(5)

    def forward(self, x: Tensor, edges: Tensor, about: Tensor, graph: Tensor) -> Any:
        """Return scores of graphs and of nodes."""
        first = x
        for layer in self.layers:
            if self.kind in WITH_EDGES:
                x = layer(x, edges, about)
            elif self.kind in ("RGCNConv", "RGATConv"):
                x = layer(x, edges, (about[:, 0] > 0).long())
            elif self.kind in ("GCN2Conv", "FAConv"):
                x = layer(x, first, edges)
            else:
                x = layer(x, edges)
            x = self.norm(torch.relu(x), graph)
        pooled = self.pool(x, graph) if not hasattr(self.pool, "select") else self.pool(
            x, edges, batch=graph)[0]  # fmt: skip
        return self.head(pooled), x


def convolution(kind: str) -> Any:
    """Return a convolution of `WIDTH` channels."""
    maker = getattr(import_module("torch_geometric.nn"), kind)
    options = CONVOLUTIONS[kind]
    if kind in ("GINConv", "GINEConv", "EdgeConv"):
        wide = 2 * WIDTH if kind == "EdgeConv" else WIDTH
        extra = {"edge_dim": 4} if kind == "GINEConv" else {}
        return maker(
            nn.Sequential(nn.Linear(wide, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)), **extra
        )
    if kind == "NNConv":
        return maker(WIDTH, WIDTH, nn.Linear(4, WIDTH * WIDTH))
    if kind in ("RGCNConv", "RGATConv"):
        return maker(WIDTH, WIDTH, num_relations=2)
    if kind == "CGConv":
        return maker(WIDTH, dim=4)
    if kind in ("AGNNConv", "APPNP", "WLConvContinuous"):
        return maker(**options)
    if kind in ("FAConv", "AntiSymmetricConv"):
        return maker(WIDTH)
    if kind == "GCN2Conv":
        return maker(WIDTH, alpha=0.2)
    if kind == "GatedGraphConv":
        return maker(WIDTH, num_layers=2)
    if kind == "MixHopConv":
        return nn_sequence(maker)
    if kind in WITH_EDGES & {"GeneralConv"}:
        return maker(WIDTH, WIDTH, in_edge_channels=4)
    if kind in WITH_EDGES & {"ResGatedGraphConv", "TransformerConv"}:
        return maker(WIDTH, WIDTH, edge_dim=4, **options)
    return maker(WIDTH, WIDTH, **options)


def nn_sequence(maker: Any) -> Any:
    """Return a convolution of three powers and a layer that joins them again."""

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.join = maker(WIDTH, WIDTH, [0, 1, 2]), nn.Linear(3 * WIDTH, WIDTH)

        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            out: Tensor = self.join(self.inner(x, edges))
            return out

    return Joined()


def pooling(name: str) -> Any:
    """Return what makes one row of each graph's nodes, or fewer nodes."""
    parts: Any = import_module("torch_geometric.nn")
    if name == "":
        return parts.MeanAggregation()
    if name in ("TopKPooling", "SAGPooling"):
        return getattr(parts, name)(WIDTH, ratio=0.5)
    special: dict[str, tuple[Any, ...]] = {
        "SoftmaxAggregation": (1.0, True), "LSTMAggregation": (WIDTH, WIDTH), "Set2Set": (WIDTH, 2),
        "SortAggregation": (5,), "MultiAggregation": (["mean", "max", "std", "min"],),
        "QuantileAggregation": ([0.25, 0.6],),
        "GRUAggregation": (WIDTH, WIDTH),
    }  # fmt: skip
    if name == "AttentionalAggregation":
        return parts.AttentionalAggregation(nn.Linear(WIDTH, 1))
    if name == "GraphNormPool":
        return parts.SumAggregation()
    return getattr(parts, name)(*special.get(name, ()))


def make(name: str) -> Made:
    """Return a network with convolutions or with a pooling of this name, and two graphs."""
    kind, pool = ("GCNConv", name) if name in AGGREGATIONS else (name, "")
    network = Layered(kind, pool)
    edges = torch.randint(0, NODES, (2, EDGES))
    graph = (torch.arange(NODES) >= NODES // 2).long()
    edges = edges[:, graph[edges[0]] == graph[edges[1]]]
    given = torch.randn(NODES, WIDTH), edges, torch.rand(edges.shape[1], 4), graph
    network(*given)  # sizes of the head
    return Made(network, given)
