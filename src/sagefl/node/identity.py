"""Identities: a federation's own certificate authority, a key and certificate per node, and a revocation list.

A node's identity is the DNS name in its certificate (`alice`), signed by the federation's CA. `Identity` is what one
node holds; `judge` is the whole policy: the right name, signed by this CA, not expired, not revoked, and with the
pinned key if one is configured. Both sides use it: the server on the certificate that TLS has verified, the client on
the certificate that it will then insist on (see `sagefl.node.client`).
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
import ssl
import stat
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ..runs.files import UNFIT, write_text
from .errors import NodeError

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
SKEW = datetime.timedelta(days=1)  # certificates are valid from yesterday on, because peers' clocks differ
CA_DAYS, NODE_DAYS, LIST_DAYS = 3650, 365, 90
SOON = datetime.timedelta(days=30)  # before its end a certificate is worth a warning
PEM = serialization.Encoding.PEM
NOT_X509 = (  # what reading a certificate, a list or a key may raise, now or when one of its fields is looked at
    ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)  # fmt: skip
Stamp = tuple[int, int, int] | None  # when a file was changed, as far as can be seen


class Refused(Exception):  # noqa: N818 (a verdict, not an error)
    """A certificate that is not accepted; `kind` is counted, the text says why."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


def now() -> datetime.datetime:
    """The wall clock; used for certificates only."""
    return datetime.datetime.now(datetime.UTC)


def check_name(name: str) -> str:
    """A node's name, which becomes the DNS name in its certificate."""
    if not NAME.fullmatch(name):
        raise NodeError(f"{name!r} cannot name a node: use lower-case letters, digits and hyphens, at most 63")
    return name


def fingerprint(of: x509.Certificate | ec.EllipticCurvePublicKey) -> str:
    """SHA-256 over a public key, or over a certificate's, which pins a neighbour's key."""
    key = of.public_key() if isinstance(of, x509.Certificate) else of
    content = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(content).hexdigest()


# The federation's side -------------------------------------------------------------------------------------------


class Authority:
    """A federation's certificate authority in one folder: `ca.key`, `ca.pem`, `revoked.pem` and `ends.json`.

    The last says when revoked certificates end, after which they need no place on the list.
    Whoever holds `ca.key` can add members, so keep it off the nodes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
            self.certificate = certificate_in(folder / "ca.pem")
        except (OSError, NodeError, *NOT_X509) as error:
            raise NodeError(f"{folder} holds no usable certificate authority: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise NodeError(f"{folder}/ca.key is not an elliptic-curve key: make a new federation in another folder")
        self.key = key
        self._listed: tuple[Stamp, Revocations] = (None, Revocations(frozenset(), 0, None))

    @classmethod
    def create(cls, folder: Path, name: str = "sagefl federation", days: int = CA_DAYS) -> Authority:
        """Make a new authority; an existing one is never overwritten."""
        if (folder / "ca.key").exists():
            raise NodeError(f"{folder} already holds an authority: use it, or choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = common_name(name)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        made = (
            _certificate(subject, subject, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        write_secret(folder / "ca.key", key_bytes(key))
        write_public(folder / "ca.pem", made.public_bytes(PEM))
        authority = cls(folder)
        authority._sign_revocations({}, frozenset(), 1)
        return authority

    def issue(self, name: str, folder: Path, days: float = NODE_DAYS) -> x509.Certificate:
        """A new key and certificate for `name` in `folder`, with the CA's certificate and revocation list."""
        check_name(name)
        if (folder / "node.key").exists():
            raise NodeError(f"{folder} already holds an identity: choose another folder, or remove that one first")
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        key = ec.generate_private_key(ec.SECP256R1())
        made = self.sign(name, key.public_key(), days)
        write_secret(folder / "node.key", key_bytes(key))
        self._hand_over(made, folder)
        return made

    def renew(self, folder: Path, days: float = NODE_DAYS) -> x509.Certificate:
        """A new certificate for the key that the one in `folder` is for; a running node begins to use it by itself."""
        old = certificate_in(folder / "node.pem")
        names, key = names_in(old), old.public_key()
        if len(names) != 1 or not _issued_by(old, self.certificate) or not isinstance(key, ec.EllipticCurvePublicKey):
            raise NodeError(f"{folder}/node.pem is not a node's certificate of this federation: issue a new identity")
        if old.serial_number in self.revocations().serials:
            raise NodeError(f"the certificate of {names[0]} is revoked: issue a new identity")
        made = self.sign(names[0], key, days)
        self._hand_over(made, folder)
        return made

    def sign(self, name: str, key: ec.EllipticCurvePublicKey, days: float = NODE_DAYS) -> x509.Certificate:
        """A certificate that `key` belongs to the node `name`."""
        purposes = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
        usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return (
            _certificate(common_name(check_name(name)), self.certificate.subject, key, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(purposes, critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self.key, hashes.SHA256())
        )

    def _hand_over(self, made: x509.Certificate, folder: Path) -> None:
        write_public(folder / "node.pem", made.public_bytes(PEM))
        write_public(folder / "ca.pem", self.certificate.public_bytes(PEM))
        write_public(folder / "revoked.pem", (self.folder / "revoked.pem").read_bytes())

    def revoke(self, certificate: x509.Certificate) -> Path:
        """Add a certificate to the revocation list; copy the returned file to every node's folder."""
        return self.revoke_serials({certificate.serial_number: certificate.not_valid_after_utc.timestamp()})

    def revoke_serials(self, ends: Mapping[int, float]) -> Path:
        """`revoke` by serial number, with the time at which each certificate ends; none: the same list, fresh again."""
        listed = self.revocations()
        return self._sign_revocations(ends, listed.serials, listed.number + 1)

    def revocations(self) -> Revocations:
        """The newest list of revoked certificates."""
        path = self.folder / "revoked.pem"
        stamp, held = self._listed
        if stamp is None or stamp != _seen(path):
            stamp = _seen(path)
            held = _read_revocations(path, self.certificate)
            self._listed = stamp, held
        return held

    def _still_valid(self, ends: Mapping[int, float], before: frozenset[int]) -> list[int]:
        """Serial numbers to list: those whose certificates would still be accepted, by this clock or a slow one."""
        path = self.folder / "ends.json"
        try:
            known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            known = {int(serial): float(end) for serial, end in known.items()} | dict(ends)
        except UNFIT as error:
            raise NodeError(
                f"{path} cannot be read: {error}; remove it: what is revoked then stays on the list"
            ) from None
        over = {serial for serial, end in known.items() if end < (now() - SKEW).timestamp()}
        write_text(path, json.dumps({serial: end for serial, end in known.items() if serial not in over}))
        return sorted((before | known.keys()) - over)

    def _sign_revocations(self, ends: Mapping[int, float], before: frozenset[int], number: int) -> Path:
        listed = x509.CertificateRevocationListBuilder().issuer_name(self.certificate.subject)
        listed = listed.last_update(now() - SKEW).next_update(now() + datetime.timedelta(days=LIST_DAYS))
        listed = listed.add_extension(x509.CRLNumber(number), critical=False)
        for serial in self._still_valid(ends, before):
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now())
            listed = listed.add_revoked_certificate(entry.build())
        path = self.folder / "revoked.pem"
        write_public(path, listed.sign(self.key, hashes.SHA256()).public_bytes(PEM))
        return path


# One node's side -------------------------------------------------------------------------------------------------


class Revocations(NamedTuple):
    """A revocation list: serial numbers, which edition it is, and until when it is meant to be used."""

    serials: frozenset[int]
    number: int
    until: datetime.datetime | None


@dataclass
class Identity:
    """One node's key, certificate, CA and revocation list, as loaded from a folder that `Authority.issue` filled."""

    folder: Path
    key: bytes
    certificate: bytes
    ca: bytes
    name: str
    trouble: Callable[[str], None] = field(default=lambda why: None)  # told of a list or certificate that is no good
    _revoked: Revocations = field(default_factory=lambda: Revocations(frozenset(), 0, None))
    _stamp: Stamp = None  # of the revocation list
    _own: Stamp = None  # of this node's certificate
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def load(cls, folder: Path) -> Identity:
        """Read an identity. One that cannot work, or whose key others can read, is refused here, not during a call."""
        key, certificate, ca = (_read(folder / name) for name in ("node.key", "node.pem", "ca.pem"))
        if stat.S_IMODE((folder / "node.key").stat().st_mode) & 0o077:
            raise NodeError(f"{folder}/node.key can be read by others: chmod 600 {folder}/node.key")
        try:
            own, private = _parsed(certificate), serialization.load_pem_private_key(key, None)
            belong = private.public_key() == own.public_key()
            _parsed(ca)
        except NOT_X509 as error:
            raise NodeError(
                f"{folder} holds no usable identity: {error}; issue it again with sagefl node init"
            ) from None
        if not belong:
            raise NodeError(f"{folder}: node.key and node.pem do not belong together; issue the identity again")
        names = names_in(own)
        if len(names) != 1:
            raise NodeError(f"{folder}/node.pem names {names or 'nobody'}; expected exactly one node")
        identity = cls(folder, key, certificate, ca, names[0])
        identity._revoked = _read_revocations(folder / "revoked.pem", identity._authority)
        identity._stamp, identity._own = _seen(folder / "revoked.pem"), _seen(folder / "node.pem")
        try:
            identity.judge(own, {identity.name: None})
        except Refused as refused:
            raise NodeError(f"this node's own certificate will not be accepted: {refused}; issue a new one") from None
        return identity

    @property
    def _authority(self) -> x509.Certificate:
        return _parsed(self.ca)

    def replace_revocations(self, pem: bytes) -> bool:
        """Take over a newer revocation list that somebody handed over; whether it was one.

        Anything else changes nothing; `NodeError` says what is wrong with it.
        """
        found = _parsed_revocations(pem, self._authority, "the list received")
        self.revoked()
        if found.number <= self._revoked.number:
            return False
        write_public(self.folder / "revoked.pem", pem)
        self.revoked()
        return True

    def revoked(self) -> frozenset[int]:
        """Serial numbers no longer accepted; the list is read again whenever its file changes."""
        with self._lock:
            if (seen := _seen(self.folder / "revoked.pem")) != self._stamp:
                self._stamp = seen
                try:
                    found = _read_revocations(self.folder / "revoked.pem", self._authority)
                    if found.number < self._revoked.number:
                        raise NodeError(f"revoked.pem is list {found.number}, older than list {self._revoked.number}")
                    self._revoked = found
                except NodeError as error:
                    self.trouble(f"{error}; the previous list stays in force")
            return self._revoked.serials

    def refresh(self) -> bool:
        """Take over a renewed certificate from the folder; whether there is one. A bad one changes nothing."""
        with self._lock:
            if (seen := _seen(self.folder / "node.pem")) == self._own:
                return False
            self._own = seen
        try:
            found = Identity.load(self.folder)
            if found.name != self.name:
                raise NodeError(f"the new certificate names {found.name}, this node is {self.name}")
        except NodeError as error:
            self.trouble(f"{error}; the previous certificate stays in use")
            return False
        self.key, self.certificate, self.ca = found.key, found.certificate, found.ca
        return True

    @property
    def days_left(self) -> float:
        """How long this node's certificate is still valid."""
        return (_parsed(self.certificate).not_valid_after_utc - now()) / datetime.timedelta(days=1)

    def warnings(self) -> list[tuple[str, str]]:
        """(kind, why) of what needs its operator's attention soon."""
        found = []
        if self.days_left < SOON.days:
            why = f"this node's certificate ends in {self.days_left:.1f} days: sagefl node renew makes a new one"
            found.append(("certificate-ends", why))
        if self._revoked.until is not None and self._revoked.until < now():
            why = f"the revocation list should have been replaced by {self._revoked.until:%F}: get the newest one"
            found.append(("revocation-list-old", why))
        return found

    def judge(self, certificate: x509.Certificate, allowed: dict[str, str | None]) -> str:
        """The neighbour that this certificate belongs to, or `Refused`; `allowed` maps names to pinned keys or None."""
        names = names_in(certificate)
        who = ", ".join(names) or "a certificate without a name"
        if not _issued_by(certificate, self._authority):
            raise Refused("foreign-ca", f"{who} is not signed by this federation's CA")
        if len(names) != 1 or names[0] not in allowed:
            raise Refused("not-a-neighbour", f"{who} is no neighbour in this node's config")
        if not certificate.not_valid_before_utc <= now() <= certificate.not_valid_after_utc:
            until = f"{certificate.not_valid_before_utc:%F} to {certificate.not_valid_after_utc:%F}"
            raise Refused("expired", f"the certificate of {who} is valid from {until}")
        if certificate.serial_number in self.revoked():
            raise Refused("revoked", f"the certificate of {who} is revoked")
        pinned = allowed[names[0]]
        if pinned is not None and fingerprint(certificate) != pinned:
            raise Refused("replaced-key", f"{who} shows another key, not the one pinned in this node's config")
        return names[0]

    def judge_pem(self, pem: bytes, allowed: dict[str, str | None]) -> str:
        """`judge` for a certificate in the form that TLS provides."""
        try:
            certificate = _parsed(pem)
        except NOT_X509 as error:
            raise Refused("unreadable", f"the certificate cannot be read: {error}") from None
        return self.judge(certificate, allowed)

    def tls(self) -> ssl.SSLContext:
        """A client's TLS settings: this identity, trusting this CA alone."""
        context = ssl.create_default_context(cadata=self.ca.decode())
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["h2"])
        context.load_cert_chain(self.folder / "node.pem", self.folder / "node.key")
        return context


# Pieces ----------------------------------------------------------------------------------------------------------


def certificate_in(path: Path) -> x509.Certificate:
    """The certificate that a file holds."""
    try:
        return _parsed(_read(path))
    except NOT_X509 as error:
        raise NodeError(f"{path} is not a certificate: {error}") from None


@lru_cache(maxsize=256)
def _parsed(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


@lru_cache(maxsize=256)  # checked in every call; dates and revocation are not cached, but a signature cannot change
def _issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, *NOT_X509):
        return False
    return True


@lru_cache(maxsize=256)
def names_in(certificate: x509.Certificate) -> tuple[str, ...]:
    """Whom a certificate names; a node's has exactly one name."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, *NOT_X509):
        return ()
    return tuple(found.value.get_values_for_type(x509.DNSName))


def common_name(name: str) -> x509.Name:
    """A name as certificates and signing requests write it."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float
) -> x509.CertificateBuilder:
    start = now() - SKEW
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(max(now() + datetime.timedelta(days=days), start + datetime.timedelta(seconds=1)))
    )


def key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as a file holds it."""
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _seen(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read_revocations(path: Path, authority: x509.Certificate) -> Revocations:
    return _parsed_revocations(_read(path), authority, str(path))


def _parsed_revocations(pem: bytes, authority: x509.Certificate, path: str) -> Revocations:
    try:
        listed = x509.load_pem_x509_crl(pem)
    except NOT_X509 as error:
        raise NodeError(f"{path} is not a revocation list: {error}") from None
    key = authority.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not listed.is_signature_valid(key):
        raise NodeError(f"{path} is not signed by this federation's CA: copy it again from where the CA is kept")
    try:
        number = listed.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except (x509.ExtensionNotFound, *NOT_X509):
        number = 0
    return Revocations(frozenset(entry.serial_number for entry in listed), number, listed.next_update_utc)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NodeError(f"cannot read {path}: {error.strerror}; sagefl node init makes a node's identity") from None


def write_secret(path: Path, content: bytes) -> None:
    """Readable by the owner alone from the first byte on; an existing file is never overwritten."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def write_public(path: Path, content: bytes) -> None:
    """Replaced in one step, because nodes may be reading the revocation list."""
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}")
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    Path(partial).chmod(0o644)
    Path(partial).replace(path)
