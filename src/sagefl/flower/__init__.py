"""A guard for clients of Flower: refuse a global model that is proven worse than the last one accepted.

`guard` makes a mod for Flower's `ClientApp`; the decision and what it promises are in `sagefl.selection.guard`. It
needs flwr and NumPy; the audit needs what else the extra `flower` brings.
"""

from ..extras import how_to_install

try:
    from .mod import guard
except ModuleNotFoundError as error:
    if error.name != "flwr":
        raise
    raise ModuleNotFoundError(f"the guard is for Flower: {how_to_install('flower')}", name="flwr") from None

__all__ = ["guard"]
