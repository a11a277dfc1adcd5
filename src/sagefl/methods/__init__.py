"""Methods by id: what a run trains with. A method is a selector, an exchange and local-training hooks.

Every selector is a method by itself (plain exchange, plain training). Published methods that change more than the
choice of peers have a file here, which holds their rule as well.
"""

from .base import Method, method, method_class, methods

__all__ = ["Method", "method", "method_class", "methods"]
