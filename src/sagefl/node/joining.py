"""A machine's side of belonging to a federation: joining by ticket, asking for news, inviting, leaving.

The private key is made here and never leaves: what goes to the keeper is a signing request. Before anything is sent the
keeper has shown the key that the ticket, or the node's config, names.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ..errors import said
from ..runs.files import UNFIT, write_text
from .config import KeeperConfig, NeighbourConfig, NodeConfig, host_and_port, typed_address
from .errors import NodeError
from .identity import NOT_X509, PEM, Identity, common_name, fingerprint, key_bytes, write_public, write_secret
from .roster import KEEPER
from .ticket import Ticket

SECONDS = 10.0  # for the keeper to answer
LARGEST = 2**22  # bytes of an answer; the longest list of revocations has less than half of it
FILES = {
    "node.pem": "certificate",
    "ca.pem": "ca",
    "revoked.pem": "revoked",
}  # of an identity, as the keeper names them
MEMBERS = "members.json"  # in the identity folder: the neighbours that the keeper named last


def join(text: str, folder: Path | None, listen: str, address: str | None = None) -> tuple[NodeConfig, Path]:
    """Become the member that a ticket names; returns its config and the folder that holds it as `node.toml`."""
    ticket = Ticket.parse(text)
    folder = folder or Path(ticket.name)
    where = typed_address(address or typed_address(listen))
    if host_and_port(where)[0] in ("0.0.0.0", "::"):
        raise NodeError(f"others could not reach this node at {where}: say --address host:port")
    if (folder / "node.toml").exists():
        raise NodeError(f"{folder} already holds a node: choose another --folder")
    identity = folder / "identity"
    key = _own_key(identity)
    asked = {"secret": ticket.secret, "request": _request(key, ticket.name), "address": where}
    found = _ask(ticket.keeper, _untrusting(), _pinned(ticket.key), "join", asked)
    neighbours = neighbours_in(found)
    with understood():
        document = _document(ticket, found, listen, where)
        signed = {file: found[name].encode() for file, name in FILES.items()}
    config = NodeConfig.parse(document)
    for file, content in signed.items():
        write_public(identity / file, content)
    if Identity.load(identity).name != ticket.name:
        raise NodeError(f"the keeper signed another name than {ticket.name}: ask for a new ticket")
    keep_members(identity, neighbours, {n.number: name for name, n in neighbours.items()})
    write_text(folder / "node.toml", tomli_w.dumps(document))
    return config, folder


@contextmanager
def understood() -> Iterator[None]:
    """What the keeper says is taken apart here: an answer in which something is missing is said to be one."""
    try:
        yield
    except UNFIT as error:
        raise NodeError(
            f"what the keeper says is not what was asked for ({said(error)}): is its version another?"
        ) from None


def neighbours_in(found: Mapping[str, Any]) -> dict[str, NeighbourConfig]:
    """The neighbours that an answer of the keeper names."""
    with understood():
        return {name: NeighbourConfig(**n) for name, n in found["neighbours"].items()}


def _document(ticket: Ticket, found: Mapping[str, Any], listen: str, address: str) -> dict[str, Any]:
    keeper = {"address": ticket.keeper, "key": ticket.key, "advertise": address}
    own = {"name": ticket.name, "number": found["number"], "listen": listen}
    return own | dict(found["settings"]) | {"keeper": keeper}


class KeptBy:
    """The keeper as one member asks it."""

    def __init__(self, keeper: KeeperConfig, identity: Identity) -> None:
        self.keeper, self.identity = keeper, identity

    def news(self, address: str) -> dict[str, Any]:
        """This member's neighbours, number and the newest revocation list; tells the keeper where it is reached."""
        return self._ask("news", {"address": address})

    def renew(self) -> None:
        """A new certificate for the key this member has, put into its identity folder."""
        found = self._ask("renew", {})
        with understood():
            certificate = found["certificate"].encode()
        write_public(self.identity.folder / "node.pem", certificate)

    def invite(self, name: str, minutes: float) -> str:
        """A ticket for somebody else."""
        found = self._ask("invite", {"name": name, "minutes": minutes})
        with understood():
            return str(found["ticket"])

    def leave(self) -> None:
        """Be a member no longer: the certificate is revoked and the neighbours are told."""
        self._ask("leave", {})

    def _ask(self, what: str, content: Mapping[str, Any]) -> dict[str, Any]:
        return _ask(self.keeper.address, self.identity.tls(), _pinned(self.keeper.key), what, content)


def kept_by(config: NodeConfig) -> KeptBy:
    """The keeper that a node's config names."""
    if config.keeper is None:
        raise NodeError(f"{config.name} has no keeper: it did not join by ticket")
    return KeptBy(config.keeper, Identity.load(Path(config.identity)))


def keep_members(identity: Path, neighbours: Mapping[str, NeighbourConfig], ever: Mapping[int, str]) -> None:
    """Write down who the neighbours are and who ever was one, so that a node can start while the keeper is away."""
    known = {name: n.model_dump() for name, n in neighbours.items()}
    write_text(identity / MEMBERS, json.dumps({"neighbours": known, "ever": dict(ever)}, indent=1))


def kept_members(identity: Path) -> tuple[dict[str, NeighbourConfig], dict[int, str]]:
    """The neighbours that the keeper named last, and the names of all who ever were, by number."""
    path = identity / MEMBERS
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        known = {name: NeighbourConfig(**n) for name, n in found["neighbours"].items()}
        return known, {int(number): str(name) for number, name in found["ever"].items()}
    except FileNotFoundError:
        return {}, {}
    except (OSError, *UNFIT) as error:
        raise NodeError(f"{path} cannot be read: {error}; remove it, and the keeper will send it again") from None


# Talking to the keeper ---------------------------------------------------------------------------------------------


def _ask(
    address: str,
    tls: ssl.SSLContext,
    check: Callable[[x509.Certificate], None],
    what: str,
    content: Mapping[str, Any],
) -> dict[str, Any]:
    """One question to the keeper, once it has proved who it is."""
    host, port = host_and_port(address)
    try:
        with (
            socket.create_connection((host, port), timeout=SECONDS) as plain,
            tls.wrap_socket(plain, server_hostname=KEEPER) as secure,
        ):
            check(x509.load_der_x509_certificate(secure.getpeercert(binary_form=True) or b""))
            connection = http.client.HTTPConnection(host, port)
            connection.sock = secure
            connection.request("POST", f"/v1/{what}", json.dumps(content), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            status, told = answer.status, answer.read(LARGEST + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise NodeError(f"the keeper at {address} does not answer: {error}") from None
    if len(told) > LARGEST:
        raise NodeError(
            f"the keeper's answer has more than {LARGEST} bytes: nothing of it is used, not its revocations"
        )
    if answer.length:  # bytes that were announced and did not come
        raise NodeError(f"the keeper's answer is cut off after {len(told)} bytes: nothing of it is used")
    return granted(status, told)


def granted(status: int, told: bytes) -> dict[str, Any]:
    """What the keeper says, if it says yes."""
    try:
        found = json.loads(told)
    except UNFIT as error:
        raise NodeError(f"the keeper's answer cannot be read: {error}") from None
    if status != 200 or not isinstance(found, dict):
        why = found.get("error", "no reason given") if isinstance(found, dict) else "no reason given"
        raise NodeError(f"the keeper refuses: {why}")
    return found


def _pinned(key: str) -> Callable[[x509.Certificate], None]:
    def check(certificate: x509.Certificate) -> None:
        if fingerprint(certificate) != key:
            raise NodeError("whoever answers there is not the keeper: its key is not the one expected")

    return check


def _untrusting() -> ssl.SSLContext:
    """TLS before one knows the federation's CA: the keeper is told by its key (`_pinned`), before anything is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _own_key(identity: Path) -> ec.EllipticCurvePrivateKey:
    """The key of an attempt to join that was cut off, or a new one."""
    path = identity / "node.key"
    if path.exists():
        if (identity / "node.pem").exists():
            raise NodeError(f"{identity} already holds an identity: choose another --folder")
        try:
            found = serialization.load_pem_private_key(path.read_bytes(), None)
        except (OSError, *NOT_X509) as error:
            raise NodeError(f"{path} cannot be read: {error}; remove it, and a new key will be made") from None
        if isinstance(found, ec.EllipticCurvePrivateKey):
            return found
    identity.mkdir(parents=True, exist_ok=True)
    identity.chmod(0o700)
    key = ec.generate_private_key(ec.SECP256R1())
    write_secret(path, key_bytes(key))
    return key


def _request(key: ec.EllipticCurvePrivateKey, name: str) -> str:
    made = x509.CertificateSigningRequestBuilder().subject_name(common_name(name)).sign(key, hashes.SHA256())
    return made.public_bytes(PEM).decode()
