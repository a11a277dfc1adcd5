"""What a node refuses before it starts."""

from __future__ import annotations

from ..learning.devices import find_device
from ..learning.models import build_model
from ..learning.workbench import latent_shape
from ..methods import Method
from .config import NodeConfig, is_loopback
from .errors import NodeError
from .identity import Identity


def check_setting(config: NodeConfig, identity: Identity | None, *, insecure: bool) -> None:
    """Whether the parts of a config fit together, and fit this node's identity."""
    find_device(config.device)
    if insecure:
        far = [a for a in (config.listen, *(n.address for n in config.neighbours.values())) if not is_loopback(a)]
        if far:
            raise NodeError(f"--insecure is for loopback addresses only, not {', '.join(far)}: remove the flag")
        if config.keeper is not None:
            raise NodeError("--insecure has no identities, which the keeper needs: remove the flag, or [keeper]")
    elif identity is not None and identity.name != config.name:
        raise NodeError(f"{config.identity} belongs to {identity.name}, but this node is called {config.name}")
    if config.privacy.mechanism != "none" and config.data.loss is not None:
        raise NodeError("privacy perturbs labels that are right or wrong: leave out data.loss")
    if config.evaluation.losses == "full":
        raise NodeError('evaluation.losses = "full" would probe for the record alone: use "asked" or "none"')


def pulling_method(config: NodeConfig, classes: int) -> Method:
    """The method, if it exchanges in a way that nodes can: by pulling whole blocks."""
    made = config.effective_method(classes)
    if made.needs_truth:
        raise NodeError(f"method {made.id} knows the truth, which only the simulator can tell: choose another method")
    if made.selector.pushes:
        raise NodeError(f"method {made.id} pushes models to its peers, and nodes pull: choose another method")
    layer = type(made.exchange)
    own = "" if "beyond" in vars(layer) else "exchanges in a way of its own"
    if beyond := made.selector.beyond or layer.beyond or own:
        raise NodeError(f"method {made.id} {beyond}, which only the simulator does: choose another method")
    return made


def check_method(config: NodeConfig) -> None:
    """Refuse now what a node of this config would refuse when it starts: its device, data, model and method."""
    find_device(config.device)
    data = config.data.load()
    made = pulling_method(config, data.classes)
    model = build_model(config.model.name, data.input_shape, data.classes, config.seed, config.model.options)
    private = config.mechanism(data.classes) is not None
    latents = not private and latent_shape(model, data.train_x[:1]) is not None
    made.suited(latents=latents, graded=data.clipped_at is not None)
