"""A real Kafka broker on this machine, for the demo and the tests: one KRaft node on 127.0.0.1, no Docker.

Meant for minutes, not for production: its data goes with it unless you name a folder.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lazaretto.errors import SourceError
from lazaretto.jobs.jars import ensure_jars
from lazaretto.jobs.java import find_java, install_prefix

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

__all__ = ["KAFKA_COORDINATES", "LocalBroker", "kafka_jars"]

KAFKA_COORDINATES = ["org.apache.kafka:kafka_2.13:4.4.0"]

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
_JVM_OPTIONS = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def kafka_jars() -> Path:
    """The folder of Kafka's jars, resolved at the first call.

    Raises:
        SourceError: they are not there yet, and the repository cannot be reached.
    """
    return ensure_jars(install_prefix() / "kafka", KAFKA_COORDINATES, beside_spark=False)


class LocalBroker:
    """One broker process; use it as a context manager.

    `stop` and `kill` keep the data, so that `start` continues on the same log and the same address. Leaving the
    context ends the process and removes the data (a `data_dir` that was passed in stays). The process ends with this
    one too, however this one ends.

    Args:
        data_dir: where the log goes; a temporary folder by default.
        settings: more lines for `server.properties`.
    """

    def __init__(self, *, data_dir: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        self._given_dir = data_dir
        self._settings = dict(settings or {})
        self._home: Path | None = None
        self._ports: tuple[int, int] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, the same for the life of this object."""
        if self._ports is None:
            raise RuntimeError("the broker was never started")
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def data_dir(self) -> Path:
        """Where its log, its settings and its own `broker.log` are."""
        if self._home is None:
            raise RuntimeError("the broker was never started, or is closed")
        return self._home

    @property
    def pid(self) -> int | None:
        """Process id of the running broker, or None."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> Self:
        """Start the broker, or start it again on the data it left; return when it answers.

        Raises:
            SourceError: Kafka's jars cannot be fetched, or the broker does not come up.
            ConfigurationError: there is no Java.
        """
        if self.pid is not None:
            return self
        classpath = f"{kafka_jars()}/*"
        java = str(find_java().executable)
        if self._home is None:
            atexit.register(self.close)
            self._home = self._given_dir or Path(tempfile.mkdtemp(prefix="lazaretto-kafka-"))
            self._home.mkdir(parents=True, exist_ok=True)
        self._ports = self._ports or _two_free_ports()
        properties = self._home / "server.properties"
        properties.write_text(_server_properties(self._home, *self._ports, self._settings))
        if not (self._home / "data" / "meta.properties").exists():
            self._format([java, *_JVM_OPTIONS, "-cp", classpath], properties)
        with (self._home / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [java, *_JVM_OPTIONS, "-cp", classpath, "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._home,
                # Ctrl-C on the terminal is ours to handle; the broker must outlive the queries that read it.
                start_new_session=True,
            )
        self._watchdog = _end_with_us(self._process.pid, None if self._given_dir else self._home)
        self._wait_until_it_answers()
        return self

    def stop(self) -> None:
        """End the broker in good order; its data stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the broker as a power cut would (SIGKILL); its data stays."""
        self._end(signal.SIGKILL)

    def restart(self) -> Self:
        """Stop if running, then start on the same data and address."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """End the broker and remove its data, unless the folder was passed in. Repeatable."""
        self.stop()
        if self._home is not None and self._given_dir is None:
            shutil.rmtree(self._home, ignore_errors=True)
        self._home = None
        atexit.unregister(self.close)

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic; return when every partition has a leader.

        Raises:
            SourceError: the broker refuses (the topic exists, a setting is wrong) or does not answer.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.cimpl import NewTopic

        admin = self._admin()
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        try:
            admin.create_topics([topic], operation_timeout=30)[name].result(timeout=30)
            deadline = time.monotonic() + 30
            while True:
                found = admin.list_topics(name, timeout=10).topics[name].partitions
                if len(found) == partitions and all(each.leader >= 0 for each in found.values()):
                    return
                if time.monotonic() > deadline:
                    raise SourceError(f"topic {name} has no leader after 30 s", where=self.bootstrap_servers)
                time.sleep(0.05)
        except KafkaException as exc:
            raise SourceError(f"topic {name} was not created: {exc}", where=self.bootstrap_servers) from exc

    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        # Level 0: while the broker starts, refused connections are no news for the user's terminal.
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def _format(self, java: list[str], properties: Path) -> None:
        command = [*java, "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(properties)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._home)
        if done.returncode != 0:
            reason = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
            raise SourceError(f"the broker's folder could not be prepared: {reason}", where=str(self._home))

    def _wait_until_it_answers(self) -> None:
        from confluent_kafka import KafkaException

        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        admin = None
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                reason = self._last_log_line()
                self._end(signal.SIGKILL)
                raise SourceError(f"the broker ended while starting: {reason}", where=self.bootstrap_servers)
            if admin is None and not _listens(self.bootstrap_servers):
                time.sleep(0.05)
                continue
            admin = admin or self._admin()
            with contextlib.suppress(KafkaException):
                if admin.list_topics(timeout=2).brokers:
                    return
        self._end(signal.SIGKILL)
        raise SourceError(f"the broker does not answer after {START_TIMEOUT_S:.0f} s", where=self.bootstrap_servers)

    def _last_log_line(self) -> str:
        assert self._home is not None
        lines = (self._home / "broker.log").read_text(errors="replace").splitlines()
        errors = [line for line in lines if "ERROR" in line or "Exception" in line]
        return (errors or lines or ["it printed nothing"])[-1].strip()

    def _end(self, how: signal.Signals) -> None:
        # The watchdog first: the process id may belong to another process once the broker has ended.
        _reap(self._watchdog, signal.SIGKILL)
        _reap(self._process, how)
        self._watchdog = self._process = None


def _end_with_us(pid: int, folder: Path | None) -> subprocess.Popen[bytes]:
    """A shell that kills `pid` and removes `folder` when our end of its standard input closes.

    The system closes it even when we are killed and no handler of ours can run.
    """
    script = 'read -r _; kill -9 "$1" 2>/dev/null; [ -z "$2" ] || rm -rf "$2"'
    return subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", str(pid), str(folder or "")],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _reap(process: subprocess.Popen[bytes] | None, how: signal.Signals) -> None:
    if process is None:
        return
    if process.poll() is None:
        process.send_signal(how)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _listens(address: str) -> bool:
    host, port = address.split(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False


def _two_free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


def _cluster_id() -> str:
    """Kafka's form of a random UUID: 22 characters of URL-safe base64. A leading `-` would read as an option."""
    while True:
        text = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _server_properties(home: Path, port: int, controller_port: int, settings: Mapping[str, str]) -> str:
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(home / "data"),
        # Kafka's own topics default to three replicas and fifty partitions; one node has to do.
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # After a kill the broker's old registration must expire before it may come back (9 s by default).
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # A misspelt topic is an error, not a new topic.
        "auto.create.topics.enable": "false",
        **settings,
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())
