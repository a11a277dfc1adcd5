"""A federation's folder: its authority, its roster and what all members share, changed under one lock.

`authority/` signs, `roster.json` says who belongs to it, `members/` holds the certificates given last, `keeper/` is the
identity under which the keeper serves, and `settings.toml` (if there is one) holds the sections that every member's
config begins with.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from filelock import FileLock, Timeout

from ..runs.config import read_toml
from ..runs.files import write_text
from .config import NodeConfig, host_and_port, typed_address
from .errors import NodeError
from .identity import (
    CA_DAYS,
    LIST_DAYS,
    PEM,
    SOON,
    Authority,
    certificate_in,
    check_name,
    fingerprint,
    now,
    write_public,
)
from .roster import KEEPER, Roster
from .ticket import Ticket

MINUTES = 60.0  # how long a ticket is good for, unless told otherwise
LONGEST_TICKET = 7 * 24 * 60.0
CERTIFICATES = 20_000  # valid ones, revoked or not: even if all are revoked, the list fits into an answer
WAIT = 10.0  # seconds for another process to let go of the roster
SHARED = (
    "rounds", "seed", "clients", "data", "model", "training", "method", "evaluation", "topology", "exchange",
    "acceptance", "privacy",
)  # fmt: skip


class Registry:
    """A federation as its keeper manages it; every method may be called by several processes."""

    def __init__(self, folder: Path) -> None:
        if not (folder / "roster.json").is_file():
            raise NodeError(f"{folder} holds no federation: sagefl node keep {folder} makes one")
        self.folder, self.authority = folder, Authority(folder / "authority")
        self.settings = self._settings()

    @classmethod
    def create(cls, folder: Path, address: str, degree: int | None = None) -> Registry:
        """The federation in `folder`, made if there is none, whose keeper is reached at `address`."""
        typed_address(address)
        home = folder / "authority"
        authority = Authority(home) if (home / "ca.key").exists() else Authority.create(home)
        if not (folder / KEEPER / "node.key").exists():
            authority.issue(KEEPER, folder / KEEPER, CA_DAYS)
        if not (folder / "roster.json").exists():
            write_text(folder / "roster.json", Roster().to_json())
            (folder / "roster.json").chmod(0o600)
        made = cls(folder)
        with made.open() as roster:
            roster.address, roster.degree = address, degree or roster.degree
        return made

    @contextmanager
    def open(self) -> Iterator[Roster]:
        """The roster, to be read or changed; what was changed is written unless the block fails."""
        path = self.folder / "roster.json"
        try:
            with FileLock(str(self.folder / ".roster.lock"), timeout=WAIT):
                before = path.read_text(encoding="utf-8")
                roster = Roster.from_json(before)
                yield roster
                if (after := roster.to_json()) != before:
                    write_text(path, after)
                    path.chmod(0o600)
        except Timeout:
            raise NodeError(f"{path} is held by another process: try again") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NodeError(f"{path} cannot be used: {error}") from None

    # What it does for people and members ---------------------------------------------------------------------------

    def invite(self, name: str, minutes: float = MINUTES) -> Ticket:
        """A ticket for a new member."""
        if not 0 < minutes <= LONGEST_TICKET:
            raise NodeError(f"a ticket is good for more than 0 and up to {LONGEST_TICKET:.0f} minutes, got {minutes:g}")
        key = fingerprint(certificate_in(self.folder / KEEPER / "node.pem"))
        secret = secrets.token_bytes(16)
        with self.open() as roster:
            roster.invite(name, secret, time.time(), time.time() + 60 * minutes)
            return Ticket(name, roster.address, key, secret.hex())

    def join(self, secret: str, request: str, address: str) -> dict[str, Any]:
        """Sign the request of whoever has a ticket; returns everything a new member needs."""
        host_and_port(address)
        key, shown = _requested_key(request), bytes.fromhex(secret)
        with self.open() as roster:
            name = roster.admit(shown, fingerprint(key), address, time.time())
            made = self._newest(roster, name) or self._sign(roster, name, key)
        certificates = {
            "certificate": made.public_bytes(PEM).decode(),
            "ca": self.authority.certificate.public_bytes(PEM).decode(),
        }
        return {"name": name, **certificates, "settings": self.settings, **self.news(name)}

    def news(self, name: str, address: str | None = None) -> dict[str, Any]:
        """What a member has to know now: its neighbours, and the newest revocation list."""
        with self.open() as roster:
            if name not in roster.members:
                raise NodeError(f"{name} is no member of this federation: ask for a ticket")
            if address is not None:
                host_and_port(address)
                roster.move(name, address)
            listed = self._fresh_list().decode()
            number, edition = roster.members[name].number, roster.edition
            return {"number": number, "edition": edition, "neighbours": roster.around(name), "revoked": listed}

    def renew(self, name: str, certificate: x509.Certificate) -> dict[str, Any]:
        """A new certificate for the key that a member has, near the end of its old one.

        Whoever asks again is given the same one: nobody has more than two that are valid.
        """
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)  # it was signed here
        with self.open() as roster:
            found = self._newest(roster, name)
            if found is not None and found.serial_number == certificate.serial_number:
                left = (found.not_valid_after_utc - now()) / timedelta(days=1)
                raise NodeError(f"this certificate is valid for {left:.0f} more days: ask in the last {SOON.days}")
            made = found or self._sign(roster, name, key)
        return {"certificate": made.public_bytes(PEM).decode(), "new": found is None}

    def dismiss(self, name: str) -> None:
        """Take a member out and revoke its certificates; its neighbours hear of it with their next question."""
        with self.open() as roster:
            self.authority.revoke_serials(roster.dismiss(name))
            self._given(name).unlink(missing_ok=True)

    # Pieces --------------------------------------------------------------------------------------------------------

    def _newest(self, roster: Roster, name: str) -> x509.Certificate | None:
        """The certificate that a member was given last, unless that one ends soon."""
        try:
            found = certificate_in(self._given(name))
        except NodeError:
            return None
        known = found.serial_number in roster.members[name].serials
        return found if known and found.not_valid_after_utc - now() > SOON else None

    def _sign(self, roster: Roster, name: str, key: ec.EllipticCurvePublicKey) -> x509.Certificate:
        member = roster.members[name]
        member.serials = {serial: end for serial, end in member.serials.items() if end > time.time()}
        valid = len(self.authority.revocations().serials) + sum(len(m.serials) for m in roster.members.values())
        if valid >= CERTIFICATES:
            raise NodeError(f"{valid} certificates were signed within a year, revoked ones included: no more for now")
        made = self.authority.sign(name, key)
        self._given(name).parent.mkdir(exist_ok=True)
        write_public(self._given(name), made.public_bytes(PEM))
        member.serials[made.serial_number] = made.not_valid_after_utc.timestamp()
        return made

    def _given(self, name: str) -> Path:
        return self.folder / "members" / f"{check_name(name)}.pem"

    def _fresh_list(self) -> bytes:
        until = self.authority.revocations().until
        if until is None or until - now() < timedelta(days=LIST_DAYS / 2):
            self.authority.revoke_serials({})
        return (self.folder / "authority" / "revoked.pem").read_bytes()

    def _settings(self) -> dict[str, Any]:
        path = self.folder / "settings.toml"
        if not path.is_file():
            return {}
        found = read_toml(path)
        if alien := sorted(found.keys() - set(SHARED)):
            raise NodeError(f"{path} holds {', '.join(alien)}; members share only {', '.join(SHARED)}")
        NodeConfig.parse({"name": "anybody", **found})  # a mistake is the keeper's to find, not the members'
        return found


def _requested_key(pem: str) -> ec.EllipticCurvePublicKey:
    """The key of a signing request, whose holder has signed it."""
    try:
        request = x509.load_pem_x509_csr(pem.encode())
        key, valid = request.public_key(), request.is_signature_valid
    except Exception as error:
        raise NodeError(f"the signing request cannot be read: {error}") from None
    if not valid or not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise NodeError("the signing request is not signed by a key on the curve P-256")
    return key
