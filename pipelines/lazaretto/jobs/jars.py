"""Resolve jars once, with the Ivy that comes inside pyspark, into a folder beside the interpreter.

Later starts read that folder: no resolution, no network.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import ssl
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from lazaretto.errors import LazarettoError, SourceError
from lazaretto.jobs.java import find_java, install_prefix, user_cache

__all__ = ["SPARK_JARS", "ensure_jars", "spark_coordinates", "spark_jars_folder"]

SCALA = "2.13"
SPARK_JARS = "jars"
_STAMP = "coordinates.txt"


def spark_coordinates() -> list[str]:
    """Maven coordinates (`group:artifact:version`) that Spark needs here, for the installed pyspark and delta-spark."""
    spark, delta = version("pyspark"), version("delta-spark")
    minor = ".".join(spark.split(".")[:2])
    return [
        f"io.delta:delta-spark_{minor}_{SCALA}:{delta}",
        f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{spark}",
        f"org.apache.spark:spark-avro_{SCALA}:{spark}",
    ]


def spark_jars_folder() -> Path | None:
    """The folder of extra jars that `make setup` filled, or None where it holds none for the installed versions."""
    folder = install_prefix() / SPARK_JARS
    return folder if _is_complete(folder, spark_coordinates()) else None


def ensure_jars(folder: Path, coordinates: Sequence[str], *, beside_spark: bool) -> Path:
    """Fill `folder` with the jars of `coordinates` and what they depend on; return it.

    Does nothing when the folder already holds exactly these coordinates. It appears complete or not at all.

    Args:
        folder: where the jars go; replaced when it holds other coordinates.
        coordinates: Maven coordinates, `group:artifact:version`.
        beside_spark: leave out what Spark's own jars folder has (its class loader would win anyway).

    Raises:
        SourceError: the repository cannot be reached or lacks a jar.
        ConfigurationError: there is no Java to run Ivy.
    """
    if _is_complete(folder, coordinates):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(_ivy_cache()):
        if _is_complete(folder, coordinates):
            return folder
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
            fresh = Path(scratch) / "jars"
            _resolve(Path(scratch), fresh, coordinates, _spark_modules() if beside_spark else [])
            (fresh / _STAMP).write_text("\n".join(coordinates) + "\n")
            if folder.exists():
                folder.rename(Path(scratch) / "old")
            fresh.rename(folder)
    return folder


def _is_complete(folder: Path, coordinates: Sequence[str]) -> bool:
    stamp = folder / _STAMP
    return stamp.is_file() and stamp.read_text().split() == list(coordinates)


def _resolve(scratch: Path, into: Path, coordinates: Sequence[str], excluded: Sequence[str]) -> None:
    module = scratch / "ivy.xml"
    module.write_text(_ivy_module(coordinates, excluded))
    pattern = f"{into}/[artifact]-[revision](-[classifier]).[ext]"
    java = find_java()
    command = [str(java.executable), *(_trust_options(scratch) if java.from_pip else []), "-jar", str(_ivy_jar())]
    command += ["-cache", str(_ivy_cache()), "-ivy", str(module)]
    if settings := os.environ.get("LAZARETTO_IVY_SETTINGS"):
        command += ["-settings", settings]
    # `bundle` too: several jars are published under that type only.
    command += ["-confs", "default", "-types", "jar", "bundle", "-retrieve", pattern]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=scratch)
    if done.returncode != 0 or not into.is_dir():
        raise SourceError(
            f"the jars of {', '.join(coordinates)} could not be resolved: {_first_problem(done.stdout + done.stderr)}",
            remedy="check the network (or name a mirror's Ivy settings file in LAZARETTO_IVY_SETTINGS) and run again",
        )


def _ivy_module(coordinates: Sequence[str], excluded: Sequence[str]) -> str:
    wanted = []
    for coordinate in coordinates:
        group, artifact, revision = map(quoteattr, coordinate.split(":"))
        wanted.append(f'<dependency org={group} name={artifact} rev={revision} conf="default->default"/>')
    unwanted = [f"<exclude module={quoteattr(name)}/>" for name in excluded]
    return (
        '<ivy-module version="2.0"><info organisation="lazaretto" module="resolve"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(wanted + unwanted)}</dependencies></ivy-module>"
    )


def _first_problem(output: str) -> str:
    """Ivy prints pages; the most telling line of them."""
    for telling in (r"Host \S+ not found", r"\S+Exception: .+", r"SERVER ERROR: .+", r"module not found: \S+"):
        if found := re.search(telling, output):
            return found.group().strip()
    return "Ivy gave no reason"


def _bytes(file: Path) -> bytes:
    return file.read_bytes() if file.is_file() else b""


def _trust_options(scratch: Path) -> list[str]:
    """Make a Java that came by pip trust what this machine trusts, as pip itself does: a company's proxy, say."""
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
    from cryptography.x509 import Certificate, load_pem_x509_certificate

    bundle = Path(ssl.get_default_verify_paths().cafile or "none")
    certificates: list[Certificate] = []
    for pem in re.findall(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", _bytes(bundle), re.DOTALL):
        # Bundles hold old certificates that break today's rules; Java would not use them either.
        with warnings.catch_warnings(action="ignore"), contextlib.suppress(ValueError):
            certificates.append(load_pem_x509_certificate(pem))
    if not certificates:
        return []
    password = "certificates are public; Java wants a password"
    store = scratch / "trusted.p12"
    store.write_bytes(
        serialize_java_truststore(
            [PKCS12Certificate(each, f"{place}".encode()) for place, each in enumerate(certificates)],
            BestAvailableEncryption(password.encode()),
        )
    )
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={password}"]


def _spark_home() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _ivy_jar() -> Path:
    return next((_spark_home() / "jars").glob("ivy-*.jar"))


def _spark_modules() -> list[str]:
    names = (re.sub(r"-\d.*", "", jar.name) for jar in (_spark_home() / "jars").glob("*.jar"))
    return sorted(set(names))


def _ivy_cache() -> Path:
    """Downloads are kept per user, like pip's, so that a second checkout fetches nothing."""
    return user_cache() / "ivy"


@contextlib.contextmanager
def _one_at_a_time(cache: Path) -> Iterator[None]:
    """Ivy's cache takes one writer; a second process waits here."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Resolve Spark's extra jars for this interpreter (`make setup` calls it)."""
    try:
        ensure_jars(install_prefix() / SPARK_JARS, spark_coordinates(), beside_spark=True)
    except LazarettoError as exc:
        sys.exit(str(exc))


if __name__ == "__main__":
    main()
