"""Kafka's own jars, fetched by Maven once and kept.

Promises: `kafka_jars` returns a directory that holds the broker and all it needs, whole; a fetch that was interrupted
leaves nothing that would be taken for one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["KAFKA_VERSION", "ServerMissingError", "cache_directory", "java", "kafka_jars"]

KAFKA_VERSION: Final = "4.3.1"
JAVA_MAJOR_MIN: Final = 17
_SCALA_VERSION: Final = "2.13"
# The broker's jars hold log4j, and nothing that leads its messages there.
_LOG4J_VERSION: Final = "2.25.4"
_FETCH_TIMEOUT_S: Final = 600.0

_POM: Final = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kvfold.tests</groupId>
  <artifactId>kafka-broker</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_{scala}</artifactId>
      <version>{kafka}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>{log4j}</version>
    </dependency>
  </dependencies>
  <build>
    <plugins>
      <plugin>
        <groupId>org.apache.maven.plugins</groupId>
        <artifactId>maven-dependency-plugin</artifactId>
        <version>3.8.1</version>
      </plugin>
    </plugins>
  </build>
</project>
"""


class ServerMissingError(Exception):
    """A server that the tests need cannot be had on this machine; the message says what to install."""


def cache_directory() -> Path:
    """Return where fetched things are kept: `KVFOLD_TEST_CACHE`, else `.kafka` at the project's root."""
    named = os.environ.get("KVFOLD_TEST_CACHE")
    directory = Path(named).expanduser() if named else Path(__file__).parents[2] / ".kafka"
    return directory.resolve()


def kafka_jars() -> Path:
    """Return the directory of the jars, fetched on first use.

    Raises `ServerMissingError` where Maven is missing or cannot fetch them.
    """
    # The name says what is inside, so that a changed list of jars is fetched anew.
    contents = hashlib.sha256(_pom().encode()).hexdigest()[:8]
    target = cache_directory() / f"kafka_{_SCALA_VERSION}-{KAFKA_VERSION}-{contents}"
    if target.is_dir():
        return target
    maven = shutil.which("mvn")
    if maven is None:
        raise ServerMissingError(
            "Maven is needed to fetch Kafka's jars: install it (Debian: apt-get install maven)"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{target.name}.partial-") as work:
        _fetch(maven, Path(work))
        try:
            (Path(work) / "jars").rename(target)
        except OSError:
            # Another session was quicker. Anything else is a fault.
            if not target.is_dir():
                raise
    return target


def java() -> str:
    """Return the Java to run: JAVA_HOME's, else the path's.

    Raises `ServerMissingError` where there is none, or one older than Kafka needs.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    major = None if found is None else _java_major(found)
    if found is None or major is None or major < JAVA_MAJOR_MIN:
        what = "none was found" if major is None else f"{found} is version {major}"
        raise ServerMissingError(
            f"Kafka needs Java {JAVA_MAJOR_MIN} or later; {what} "
            "(Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk, with JAVA_HOME set)"
        )
    return found


def _java_major(java: str) -> int | None:
    """Return the major version of a Java, None where it does not run."""
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    # The first quoted words are the version, "17.0.15" or "1.8.0_292"; macOS has a `java` that only says where to get one.
    words = answer.stderr.split('"')
    if answer.returncode != 0 or len(words) < 2:
        return None
    first, *rest = words[1].split(".")
    number = rest[0] if first == "1" and rest else first
    digits = "".join(character for character in number if character.isdigit())
    return int(digits) if digits else None


def _pom() -> str:
    return _POM.format(scala=_SCALA_VERSION, kafka=KAFKA_VERSION, log4j=_LOG4J_VERSION)


def _fetch(maven: str, work: Path) -> None:
    pom = work / "pom.xml"
    pom.write_text(_pom())
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    answer = subprocess.run(
        [*command, f"-DoutputDirectory={work / 'jars'}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_FETCH_TIMEOUT_S,
    )
    if answer.returncode != 0:
        raise ServerMissingError(f"Maven could not fetch Kafka {KAFKA_VERSION}:\n{answer.stdout[-4000:]}")
    for jar in (work / "jars").iterdir():
        # A rename puts the directory in place at once; its files have to be on the disk by then.
        with jar.open("rb") as file:
            os.fsync(file.fileno())
