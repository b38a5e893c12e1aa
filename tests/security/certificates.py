"""Certificates as an authority of one's own makes them, with the openssl program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def require_openssl() -> str:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("no openssl program here to make certificates with: apt-get install openssl")
    return program


class Authority:
    """Signs certificates of servers; clients that trust `root` accept them."""

    def __init__(self, folder: Path, name: str) -> None:
        self._openssl = require_openssl()
        self._folder, self._name = folder, name
        self.root = folder / f"{name}.crt"
        self._key = folder / f"{name}.key"
        self._run(
            *("req", "-x509", *_NEW_KEY, "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-keyout", str(self._key), "-out", str(self.root)),
        )

    def certify(self, host: str) -> tuple[Path, Path]:
        """The certificate of the server at `host`, and its private key."""
        stem = self._folder / f"{self._name}-{host}"
        key, request, certificate = (stem.with_suffix(f".{end}") for end in ("key", "csr", "pem"))
        names = stem.with_suffix(".names")
        names.write_text(f"subjectAltName=DNS:{host}\n")
        self._run(
            *("req", *_NEW_KEY, "-nodes", "-subj", f"/CN={host}"),
            *("-keyout", str(key), "-out", str(request)),
        )
        self._run(
            *("x509", "-req", "-days", "2", "-in", str(request), "-extfile", str(names)),
            *("-CA", str(self.root), "-CAkey", str(self._key), "-CAcreateserial"),
            *("-out", str(certificate)),
        )
        return certificate, key

    def _run(self, *words: str) -> None:
        ran = subprocess.run(
            [self._openssl, *words], capture_output=True, text=True, timeout=30, check=False
        )
        assert ran.returncode == 0, ran.stderr
