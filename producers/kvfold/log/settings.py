"""Configuration: environment variables, read once, as one frozen model. They begin with `KVFOLD_`, but for those in
`NAMED_VARIABLES`, which the documents of deployments name.

`Settings.from_env` is pure. A wrong value is a `ConfigurationError` that names the variable, the value (never a
secret's) and what is accepted; an unknown `KVFOLD_` variable is refused too, since it is most often a typing mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from kvfold.log.kafka_settings import TOPIC, KafkaSettings
from kvfold.schemas.errors import ConfigurationError

__all__ = ["IGNORED_PREFIXES", "NAMED_VARIABLES", "PREFIX", "Settings", "variable_of"]

PREFIX: Final = "KVFOLD_"
IGNORED_PREFIXES: Final = ("KVFOLD_TEST_",)
"""Variables of the test suite, which may stand in the same environment."""

NAMED_VARIABLES: Final[Mapping[str, str]] = {
    "redis_url": "REDIS_URL",
    "encryption_key": "KV_ENCRYPTION_KEY",
    "encryption_keys_old": "KV_ENCRYPTION_KEYS_OLD",
}
"""Variables without the prefix, by their fields. An empty one is an absent one."""

_SECRET_FIELDS: Final = ("postgres", "redis_url", "encryption_key", "encryption_keys_old")

_Port = Annotated[int, Field(ge=0, le=65_535)]


class Settings(BaseModel):
    """Everything a kvfold process is told. Each field is the variable that `variable_of` says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kafka: str | None = Field(
        None, min_length=1, description="bootstrap servers, host:port,…; absent = embedded log"
    )
    postgres: SecretStr | None = Field(None, description="DSN; absent = embedded server in KVFOLD_DATA")
    data: Path = Field(Path("kvfold-data"), description="folder of the embedded server")
    redis_url: SecretStr | None = Field(
        None, description="URL of the volatile tier's Redis; absent = in memory (kvfold dev only)"
    )
    encryption_key: SecretStr | None = Field(
        None,
        description="base64 of the key of secret namespaces, 16, 24 or 32 bytes; absent = they answer 503",
    )
    encryption_keys_old: SecretStr | None = Field(
        None,
        description="keys that still open what they encrypted, each as KV_ENCRYPTION_KEY, comma-separated",
    )
    topic: str = Field(TOPIC, pattern=r"^[A-Za-z0-9._-]{1,249}$", description="a Kafka topic name")
    partitions: int = Field(12, ge=1, le=10_000, description="partition count, fixed at first use")
    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: _Port | None = Field(None, description="port to listen on, 0 to 65535; 0 = any free one")
    url: str = Field(
        "http://127.0.0.1:8080", pattern=r"^https?://", description="where client commands talk to"
    )
    owner: str | None = Field(None, min_length=1, max_length=40, description="name of this projector process")
    claim_ms: int = Field(
        10_000, ge=1_000, le=600_000, description="milliseconds that a claim holds unrenewed"
    )
    fold_threads: int = Field(2, ge=1, le=64, description="partitions folded at the same time by one process")
    telemetry_port: _Port = Field(8082, description="the projector's /metrics and /healthz; 0 = any free one")
    worker_telemetry_port: _Port | None = Field(
        None, description="the worker's /metrics; absent = not served, 0 = any free one"
    )
    metrics_instance_ids: bool | None = Field(
        None,
        description="true or false: whether metrics of keys name their instance; absent = not for Prometheus",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="debug, info, warning or error"
    )
    log_format: Literal["text", "json"] = Field("text", description="text or json")
    kafka_replication_factor: int = Field(1, ge=1, le=32_767, description="of a topic that kvfold creates")
    kafka_min_insync_replicas: int = Field(1, ge=1, le=32_767, description="min.insync.replicas of the topic")
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    kafka_ssl_cafile: str | None = None
    kafka_ssl_certfile: str | None = None
    kafka_ssl_keyfile: str | None = None
    kafka_ssl_password: SecretStr | None = None
    kafka_ssl_crlfile: str | None = None
    kafka_ssl_check_hostname: bool = True
    kafka_sasl_mechanism: str | None = None
    kafka_sasl_plain_username: str | None = None
    kafka_sasl_plain_password: SecretStr | None = None

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> Settings:
        """Reads the settings from a mapping such as `os.environ`.

        Raises:
            ConfigurationError: names the variable and what is accepted.
        """
        values = {
            name.removeprefix(PREFIX).lower(): text
            for name, text in environment.items()
            if name.startswith(PREFIX) and not name.startswith(IGNORED_PREFIXES)
        }
        for field, variable in NAMED_VARIABLES.items():
            if field in values:
                raise ConfigurationError(f"{PREFIX}{field.upper()} is no setting of kvfold: it is {variable}")
            if environment.get(variable):
                values[field] = environment[variable]
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigurationError(_explain(cls, values, error)) from None

    def kafka_settings(self) -> KafkaSettings:
        """How to reach the topic; only where `kafka` is set."""
        assert self.kafka is not None
        options: dict[str, Any] = {
            name.removeprefix("kafka_"): value.get_secret_value() if isinstance(value, SecretStr) else value
            for name in type(self).model_fields
            if name.startswith("kafka_")
            for value in [getattr(self, name)]
        }
        return KafkaSettings(
            bootstrap_servers=self.kafka, topic=self.topic, partition_count=self.partitions, **options
        )


def variable_of(field: str) -> str:
    """The environment variable of a field."""
    return NAMED_VARIABLES.get(field, PREFIX + field.upper())


def _explain(model: type[Settings], values: Mapping[str, str], error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    name = str(first["loc"][0])
    variable = variable_of(name)
    if name not in model.model_fields:
        known = ", ".join(map(variable_of, model.model_fields))
        return f"{variable} is no setting of kvfold: known are {known}"
    accepted = model.model_fields[name].description or first["msg"]
    secret = "password" in name or name in _SECRET_FIELDS
    shown = "a value that is not shown" if secret else repr(values.get(name, "")[:80])
    return f"{variable} is {shown}: accepted is {accepted} ({first['msg']})"
