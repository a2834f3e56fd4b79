"""What can be told about a topic without a broker and without a JVM."""

from __future__ import annotations

import pytest

from lazaretto.config import KafkaSource
from lazaretto.errors import ConfigurationError, SourceError
from lazaretto.sources import check_kafka
from lazaretto.sources.kafka import client_options

NOBODY = "127.0.0.1:1"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";'


def source(**options: str) -> KafkaSource:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return KafkaSource(kind="kafka", bootstrap_servers=NOBODY, topic="orders", options=named)


def test_options_may_have_their_prefix_or_not() -> None:
    given = {"kafka.security.protocol": "SSL", "fetch.max.bytes": "1"}
    assert client_options(KafkaSource(kind="kafka", bootstrap_servers="b", topic="t", options=given)) == {
        "security.protocol": "SSL",
        "fetch.max.bytes": "1",
    }


@pytest.mark.parametrize("name", ["isolation_level", "kafka_isolation_level", "bootstrap_servers", "auto_offset_reset"])
def test_options_that_are_ours(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        client_options(source(**{name: "hunter2"}))
    assert "hunter2" not in str(caught.value)
    assert name.replace("_", ".").removeprefix("kafka.") in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [{}, {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_jaas_config": JAAS}],
)
def test_a_broker_that_is_not_there(options: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SourceError) as caught:
        check_kafka(source(**options), timeout_s=1)
    text = str(caught.value)
    assert caught.value.exit_code == 4
    assert "orders" in text
    assert NOBODY in text
    assert "next: " in text
    assert "\n" not in text
    assert "hunter2" not in text
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


@pytest.mark.parametrize(
    "options",
    [
        {"security_protocol": "SSL", "ssl_truststore_location": "/x.jks"},
        {"sasl_jaas_config": "com.sun.security.auth.module.Krb5LoginModule required;"},
    ],
)
def test_what_only_java_can_connect_to_is_not_asked(options: dict[str, str]) -> None:
    assert check_kafka(source(**options), timeout_s=1) is None
