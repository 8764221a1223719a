"""The Docker image of the test broker: Kafka's jars on a base with Java.

The base is `KVFOLD_TEST_DOCKER_BASE`, else a public one; any image with `java` (17 or later) and `sh` will do. The build
uses no network beyond getting the base. As a command, `python tests/support/docker_image.py`, it makes the image and
prints its name.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

import docker
import docker.errors

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.kafka_jars import KAFKA_VERSION, ServerMissingError, kafka_jars

__all__ = ["ImageMissingError", "kafka_image"]

_PUBLIC_BASE: Final = "eclipse-temurin:21-jre"
_PARTS: Final = ("Dockerfile", "start-broker.sh", "log4j2.properties")
_BUILD_TIMEOUT_S: Final = 600


class ImageMissingError(Exception):
    """The image cannot be made; the message says why."""


def kafka_image() -> str:
    """Return the name of the broker's image, made where it is missing.

    Raises `ImageMissingError` where base or jars cannot be had.
    """
    base = os.environ.get("KVFOLD_TEST_DOCKER_BASE") or _PUBLIC_BASE
    client = docker.from_env(timeout=_BUILD_TIMEOUT_S)
    try:
        tag = f"kvfold-test-kafka:{KAFKA_VERSION}-{_fingerprint(base)}"
        try:
            client.images.get(tag)
        except docker.errors.ImageNotFound:
            _build(client, base=base, tag=tag)
        return tag
    except (docker.errors.DockerException, ServerMissingError) as error:
        raise ImageMissingError(f"no image of Kafka on {base} ({error})") from error
    finally:
        client.close()


def _fingerprint(base: str) -> str:
    """Return a name for all that goes into the image, so that a changed recipe is built anew."""
    digest = hashlib.sha256(base.encode())
    for name in _PARTS:
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()[:12]


def _build(client: docker.DockerClient, *, base: str, tag: str) -> None:
    with tempfile.TemporaryDirectory() as context:
        shutil.copytree(kafka_jars(), Path(context) / "jars")
        for name in _PARTS:
            shutil.copy(Path(__file__).with_name(name), context)
        client.images.build(path=context, tag=tag, buildargs={"BASE": base}, rm=True)


if __name__ == "__main__":
    print(kafka_image())
