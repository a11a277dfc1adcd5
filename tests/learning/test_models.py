"""The networks clients train: the paper's sizes, a user's own module, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from sagefl.learning.layout import Layout
from sagefl.learning.models import ModelError, build_model, check_model, training_loss

OWN = """
import torch
from torch import nn

class Own(nn.Module):
    def __init__(self, shape, classes, width=8):
        super().__init__()
        self.trunk = nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], width))
        self.top = nn.Linear(width, classes)
        self.register_buffer("scale", torch.tensor(3))

    def forward(self, x):
        return self.top(self.trunk(x))

def not_a_module(shape, classes):
    return "hello"

made = nn.Linear(2, 3)

def compiled(shape, classes):
    return torch.jit.script(nn.Linear(2, classes))
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a module in the current folder, a new one for every test."""
    name = f"own_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return name


@pytest.mark.parametrize(
    ("shape", "latent", "shared", "local"),
    [((1, 28, 28), 64, 216_000, 4_810), ((3, 32, 32), 128, 785_000, 17_802)],
)
def test_the_paper_model_has_the_sizes_of_the_design(
    shape: tuple[int, int, int], latent: int, shared: int, local: int
) -> None:
    model = build_model("encoder-decoder", shape, 10, 1, {})
    layout = Layout.of(model)
    assert layout.shared_size == pytest.approx(shared, rel=0.01)
    assert layout.local_size == local
    x = torch.rand(2, *shape)
    assert model.latent(x).shape == (2, latent)
    assert model.decoder(model.latent(x)).shape == x.shape
    assert model(x).shape == (2, 10)


def test_its_loss_is_cross_entropy_plus_beta_times_the_reconstruction_error() -> None:
    model = build_model("encoder-decoder", (1, 8, 8), 3, 1, {"beta": 0.7})
    x, y = torch.rand(5, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1])
    expected = nn.functional.cross_entropy(model(x), y) + 0.7 * (model.decoder(model.latent(x)) - x).square().mean()
    assert torch.allclose(training_loss(model, x, y), expected)


def test_initial_weights_depend_on_the_seed_alone_and_leave_the_generator_alone() -> None:
    torch.manual_seed(99)
    state = torch.get_rng_state()
    first = Layout.of(model := build_model("mlp", (1, 4, 4), 3, 7, {})).flatten(model)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    again = Layout.of(model := build_model("mlp", (1, 4, 4), 3, 7, {})).flatten(model)
    other = Layout.of(model := build_model("mlp", (1, 4, 4), 3, 8, {})).flatten(model)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_users_module_is_found_in_the_current_folder(own: str) -> None:
    model = build_model(f"{own}:Own", (1, 4, 4), 3, 1, {"width": 5})
    assert Layout.of(model, ["trunk"]).shared_size == 16 * 5 + 5
    everything = Layout.of(model)  # declares nothing
    assert everything.local_size == 0
    assert everything.digest == Layout.of(model, "*").digest
    with pytest.raises(ModelError, match=r"declare the shared part.*trunk\.1\.weight"):
        Layout.of(model, [])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "encoder",
            "unknown model 'encoder', did you mean 'encoder-decoder'.; known: encoder-decoder, mlp, or module:callable",
        ),
        ("{own}:Missing", "cannot load model .*has no attribute 'Missing'"),
        ("no_such_module_here:Own", "cannot load model .*No module named"),
        ("{own}:not_a_module", "must be a torch.nn.Module, got str"),
        ("{own}:made", "is a Linear; expected its class, or a function that makes one"),
        ("{own}:compiled", "Linear is compiled by torch.jit: give the module that it was made from"),
        ("broken_module:Own", "cannot load model 'broken_module:Own': SyntaxError"),
    ],
)
def test_what_cannot_be_loaded_is_said(own: str, name: str, message: str) -> None:
    Path("broken_module.py").write_text("def (")
    with pytest.raises(ModelError, match=message):
        build_model(name.format(own=own), (1, 4, 4), 3, 1, {})


def test_a_package_adds_a_model_by_one_entry(tmp_path: Path) -> None:
    """A really installed distribution: a module and its metadata on the path of a fresh interpreter."""
    (tmp_path / "plugin.py").write_text(OWN)
    metadata = tmp_path / "plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[sagefl.models]\nown = plugin:Own\nmlp = plugin:Own\nno = plugin:No\n")
    code = (
        "import warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from sagefl.learning.models import build_model, models\n"
        "print(*models(), build_model('own', (1, 2, 2), 3, 1, {'width': 5}).top, models()['mlp'].__module__)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
    )  # fmt: skip
    assert told.stdout == (
        "encoder-decoder mlp own Linear(in_features=5, out_features=3, bias=True) sagefl.learning.models\n"
    ), told.stderr


def test_a_mistake_inside_a_model_keeps_its_traceback(own: str) -> None:
    Path(f"{own}.py").write_text("def bad(shape, classes):\n    return len(classes)\n")
    with pytest.raises(TypeError, match="has no len") as caught:
        build_model(f"{own}:bad", (1, 4, 4), 3, 1, {})
    assert caught.traceback[-1].name == "bad"


def test_options_that_do_not_fit_are_said() -> None:
    with pytest.raises(ModelError, match=r"does not take these options.*'depth'"):
        build_model("mlp", (1, 4, 4), 3, 1, {"depth": 3})
    with pytest.raises(ModelError, match="cannot be halved 2 times: pad them to a multiple of 4"):
        build_model("encoder-decoder", (1, 9, 9), 3, 1, {})
    with pytest.raises(ModelError, match=r"takes images .* the data is \(12,\): use mlp"):
        build_model("encoder-decoder", (12,), 3, 1, {})


def test_only_float32_parameters_with_a_shape_are_held() -> None:
    with pytest.raises(ModelError, match="float64"):
        check_model(nn.Linear(2, 2).double())
    with pytest.raises(ModelError, match="lazy modules"):
        check_model(nn.LazyLinear(2))
