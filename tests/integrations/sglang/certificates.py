"""Certificates of an authority that exists for one test run."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates, and keeps all files in a folder.

    Attributes:
        file: Its own certificate: what to trust.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("an authority for tests")
        own = self._signed(self._name, self._key, x509.BasicConstraints(ca=True, path_length=None))
        self.file = folder / "authority.pem"
        self.file.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def certificate(self, address: str) -> tuple[str, str]:
        """Files of a certificate for an IP address, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
        signed = self._signed(_name(address), key, names)
        written = self._folder / f"{address}.pem", self._folder / f"{address}.key"
        written[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        written[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return str(written[0]), str(written[1])

    def server(self, address: str = "127.0.0.1", *, asks_clients: bool = False) -> ssl.SSLContext:
        """What a server at an address shows, and whether it wants a certificate of this authority in return."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.file))
        context.load_cert_chain(*self.certificate(address))
        context.verify_mode = ssl.CERT_REQUIRED if asks_clients else ssl.CERT_NONE
        return context

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        ours = self._key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(extension, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ours), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
