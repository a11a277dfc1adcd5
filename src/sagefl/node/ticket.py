"""A ticket: one line of text with which a machine joins a federation.

It says who is invited, where the keeper is, which key the keeper has (so that nobody else can pose as it), and a secret
that the keeper knows again. Whoever holds it can join under that name until it is used or out of date: hand it over as
one would a password.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass

from ..runs.files import UNFIT
from .config import host_and_port
from .errors import NodeError
from .identity import check_name

MARK = "sagefl-ticket-"
LONGEST = 2000


@dataclass(frozen=True)
class Ticket:
    """What a ticket says."""

    name: str
    keeper: str  # host:port
    key: str  # fingerprint of the keeper's key
    secret: str

    def __str__(self) -> str:
        content = json.dumps(list(asdict(self).values()), separators=(",", ":")).encode()
        return MARK + base64.urlsafe_b64encode(content).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> Ticket:
        """A ticket as it was pasted; one that is cut off or altered is refused."""
        code = text.strip().removeprefix(MARK)
        try:
            found = json.loads(base64.urlsafe_b64decode(code[:LONGEST] + "=" * (-len(code) % 4)))
            name, keeper, key, secret = (str(part) for part in found)
            host_and_port(keeper)
            bytes.fromhex(key + secret)
        except UNFIT:
            raise NodeError(
                f"this is not a ticket: a ticket begins with {MARK} and is copied whole; sagefl node invite makes one"
            ) from None
        return cls(check_name(name), keeper, key, secret)
