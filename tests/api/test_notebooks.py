"""The notebooks that ship, run in a real Jupyter kernel in an empty folder."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def outputs(cells: list[Any]) -> list[dict[str, Any]]:
    """What a notebook's cells show and print, by type."""
    shown: list[dict[str, Any]] = []
    for cell in cells:
        for output in cell.get("outputs", ()):
            shown.append(
                dict(output.get("data", {})) | ({"print": output["text"]} if output.get("name") == "stdout" else {})
            )
    return shown


def run(cells: list[Any] | Path, folder: Path) -> list[dict[str, Any]]:
    """Run a notebook in a folder; an error in a cell is an error here."""
    if isinstance(cells, Path):
        book = nbformat.read(cells, as_version=4)
    else:
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    client = NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.execute(env=os.environ | {"OMP_NUM_THREADS": "1"})
    return outputs(book.cells)


@pytest.fixture(autouse=True)
def event_loop() -> Any:
    """nbclient runs in a loop of its own."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()
    asyncio.set_event_loop(None)


def test_choose_a_peer_in_your_own_loop(tmp_path: Path) -> None:
    printed = "".join(str(out.get("print", "")) for out in run(NOTEBOOKS / "choose_a_peer.ipynb", tmp_path))
    assert "round 3, west:" in printed
    assert "certified" in printed
    assert not list(tmp_path.iterdir())


def test_compare_selectors_on_your_data(tmp_path: Path) -> None:
    shown = run(NOTEBOOKS / "compare_selectors.ipynb", tmp_path)
    tables = [out["text/html"] for out in shown if "text/html" in out and "<th>vs rg</th>" in out["text/html"]]
    assert len(tables) == 1
    assert "<td>BestOfFew</td>" in tables[0]
    assert any("image/png" in out for out in shown)
    assert len(list((tmp_path / "runs" / "cells").iterdir())) == 9


CLASS = """
import numpy as np, sagefl
from torch import nn

STEEP = 1.0

def squash(x):
    return STEEP * x

class Net(nn.Module):
    shared = ("body",)

    def __init__(self, shape, classes):
        super().__init__()
        self.body, self.head = nn.Linear(4, 3), nn.Linear(3, classes)

    def forward(self, x):
        return self.head(squash(self.body(x)).tanh())

x = np.random.default_rng(0).normal(size=(300, 4)).astype("float32")
data = (x[:200], (x[:200, 0] > 0).astype(int), x[200:], (x[200:, 0] > 0).astype(int))
"""
ASK = """
result = sagefl.run(data, Net, "rg", clients=3, rounds=1, topology="complete", progress=False)
print(result.runs[0].read, len(list(__import__("pathlib").Path("runs/cells").iterdir())))
"""


def test_a_class_that_was_edited_in_the_notebook_is_another_run(tmp_path: Path) -> None:
    """As is one whose helper or constant was edited; an unchanged one is read."""
    cells = [CLASS, ASK, ASK, CLASS.replace("tanh", "relu"), ASK, CLASS, ASK]
    cells += [CLASS.replace("STEEP *", "2 * STEEP *"), ASK, CLASS.replace("1.0", "3.0"), ASK]
    cells += [
        "try:\n    sagefl.run(data, Net, engine='processes', clients=3, rounds=1)\n"
        "except sagefl.selection.registry.UsageError as error:\n    print(error)"
    ]
    printed = [str(out["print"]) for out in run(cells, tmp_path) if "print" in out]
    assert [text.strip() for text in printed[:-1]] == ["False 1", "True 1", "False 2", "True 2", "False 3", "False 4"]
    assert (
        "Net is defined where workers of the engine processes cannot import it: use engine='sequential'" in printed[-1]
    )


USING = """
import types
from functools import partial

class Net(nn.Module):
    shared = ("body",)
    {attribute}

    def __init__(self, shape, classes, times=1):
        super().__init__()
        self.body, self.head, self.times = nn.Linear(4, 3), nn.Linear(3, classes), times

    def forward(self, x):
        result = self.body(x) * self.times
        return self.head({use})
"""
STANDS_FOR = {
    "a function of a library": ("ACT = torch.tanh", "ACT = torch.relu", "ACT(result)"),
    "a class of a library": ("ACT = nn.Tanh", "ACT = nn.ReLU", "ACT()(result)"),
    "an object": ("ACT = nn.LeakyReLU(0.1)", "ACT = nn.LeakyReLU(0.2)", "ACT(result)"),
    "a list": ("SCALES = [1, 2]", "SCALES = [1, 3]", "SCALES[1] * result"),
    "settings": ("c = types.SimpleNamespace(d={'a': 1})", "c = types.SimpleNamespace(d={'a': 2})", "c.d['a'] * result"),
    "a tensor": ("T = torch.ones(3).bfloat16()", "T = torch.zeros(3).bfloat16()", "T.float() * result"),
    "arguments": ("twice = partial(torch.mul, other=2)", "twice = partial(torch.mul, other=3)", "twice(result)"),
    "a lambda": ("ACT = lambda x: STEEP * x", "ACT = lambda x: 2 * STEEP * x", "ACT(result)"),
    "an attribute set later": ("", "Net.times_two = 3", "Net.times_two * result"),
    "a method set later": ("", "Net.forward = lambda self, x: self.head(self.body(x))", "result"),
}  # fmt: skip
SHOW = """
result = sagefl.run(data, {model}, "rg", clients=3, rounds=1, topology="complete", progress=False)
print(result.runs[0].read)
"""


def test_what_a_class_uses_of_the_notebook_may_be_anything(tmp_path: Path) -> None:
    """An edit of it makes another run; a local variable that is called like a global one makes none."""
    cells = [CLASS, "import torch", SHOW.format(model="Net")]
    for one, two, use in STANDS_FOR.values():
        made = USING.format(attribute="times_two = 2", use=use)
        show = SHOW.format(model="Net")
        late = two.startswith("Net")
        cells += [one, made, show, *([] if late else [made]), show, two, show]
    made = "def make(times):\n    class Made(Net):\n        def forward(self, x):\n            return times * super()."
    made += "forward(x)\n    return Made"
    cells += [USING.format(attribute="", use="result"), made]
    for one, two in (("make(2)", "make(3)"), ("partial(Net, times=2)", "partial(Net, times=3)")):
        cells += [SHOW.format(model=one), SHOW.format(model=one), SHOW.format(model=two)]
    # As one text: a kernel may cut a line in two.
    printed = "".join(str(out.get("print", "")) for out in run(cells, tmp_path)).split()
    assert printed == ["False", *["False", "True", "False"] * (len(STANDS_FOR) + 2)]
