"""Settings: read once from one file, or from a base and an environment; every mistake is named with its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from lazaretto.config import (
    CatalogWarehouse,
    DatasetSettings,
    DedupeTable,
    DedupeWindow,
    FileFormat,
    FilesSource,
    KafkaSource,
    OnFailure,
    OnMatch,
    PathWarehouse,
    Settings,
    Tombstones,
    load_settings,
)
from lazaretto.errors import ConfigurationError

BASE = """\
warehouse: ./lake
datasets:
  orders:
    contract: contracts/orders.yaml
    rules: ../rules/orders.yml
    source:
      kind: kafka
      bootstrap_servers: broker:9092
      topic: orders
      options: {security.protocol: SASL_SSL}
"""
ORDERS = "datasets:\n  orders:\n    contract: c.yaml\n"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(text: str, name: str = "base.yml") -> Path:
        file = tmp_path / "conf" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    return _write


def _refused(conf: Path, env: str | None = None) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(conf, env)
    assert caught.value.exit_code == 2
    assert len(str(caught.value).splitlines()) == 1
    return caught.value


def test_one_file(write: Write, tmp_path: Path) -> None:
    conf = write(BASE)
    settings = load_settings(conf)
    assert settings == Settings(
        warehouse=PathWarehouse(root=tmp_path / "conf/lake"),
        datasets={
            "orders": DatasetSettings(
                contract=tmp_path / "conf/contracts/orders.yaml",
                rules=tmp_path / "rules/orders.yml",
                source=KafkaSource(
                    kind="kafka",
                    bootstrap_servers="broker:9092",
                    topic="orders",
                    options={"security.protocol": "SASL_SSL"},
                ),
            )
        },
        origin=str(conf),
    )
    assert settings.files_root == tmp_path / "conf/lake"


def test_defaults(write: Write) -> None:
    dataset = load_settings(write("warehouse: x\n" + ORDERS)).datasets["orders"]
    assert dataset.rules is None
    assert dataset.source is None
    assert (dataset.event_id, dataset.event_time) == ("event_id", "event_time")
    assert (dataset.encoding, dataset.max_bytes) == ("utf-8", 1_048_576)
    assert dataset.tombstones is Tombstones.QUARANTINE
    assert dataset.on_failure is OnFailure.QUARANTINE_AND_CONTINUE
    assert dataset.min_completeness == 0.0
    assert dataset.on_match is OnMatch.IGNORE
    assert dataset.dedupe == DedupeTable()


def test_paths_are_relative_to_the_file_and_not_to_where_one_stands(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(BASE)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    settings = load_settings(Path("../conf/base.yml"))
    assert settings.files_root == tmp_path / "conf/lake"
    assert settings.datasets["orders"].contract == tmp_path / "conf/contracts/orders.yaml"


def test_absolute_and_home_paths_stay_what_they_are(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    text = f"warehouse: ~/lake\ndatasets:\n  orders:\n    contract: {tmp_path}/c.yaml\n"
    settings = load_settings(write(text))
    assert settings.files_root == tmp_path / "home/lake"
    assert settings.datasets["orders"].contract == tmp_path / "c.yaml"


def test_base_yml_of_the_folder_is_read_when_nothing_is_given(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(BASE)
    monkeypatch.chdir(tmp_path)
    assert load_settings().files_root == tmp_path / "conf/lake"
    assert load_settings(folder=tmp_path / "conf").origin == str(tmp_path / "conf/base.yml")


def test_an_environment_is_merged_key_by_key(write: Write, tmp_path: Path) -> None:
    base = write(BASE)
    env = write(
        "datasets:\n  orders:\n    max_bytes: 10\n    source:\n      topic: orders-dev\n"
        "      options: {sasl.mechanism: PLAIN}\n  clicks:\n    contract: clicks.yaml\n",
        "dev.yml",
    )
    settings = load_settings(base, "dev")
    orders = settings.datasets["orders"]
    assert orders.max_bytes == 10
    assert orders.rules == tmp_path / "rules/orders.yml"
    assert orders.source == KafkaSource(
        kind="kafka",
        bootstrap_servers="broker:9092",
        topic="orders-dev",
        options={"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
    )
    assert settings.datasets["clicks"].contract == tmp_path / "conf/clicks.yaml"
    assert settings.origin == f"{base} + {env}"


def test_an_environment_of_another_kind_leaves_nothing_of_the_old_source(write: Write, tmp_path: Path) -> None:
    base = write(BASE)
    write("datasets:\n  orders:\n    source: {kind: files, path: ./landing}\n", "local.yml")
    source = load_settings(base, "local").datasets["orders"].source
    assert source == FilesSource(kind="files", path=tmp_path / "conf/landing")
    assert source.format is FileFormat.JSONL


def test_an_environment_changes_the_scope_of_dedupe(write: Write) -> None:
    base = write(BASE + "    dedupe: {scope: window, days: 3}\n")
    assert load_settings(base).datasets["orders"].dedupe == DedupeWindow(scope="window", days=3)
    write("datasets: {orders: {dedupe: {days: 9}}}\n", "longer.yml")
    assert load_settings(base, "longer").datasets["orders"].dedupe == DedupeWindow(scope="window", days=9)
    write("datasets: {orders: {dedupe: {scope: table}}}\n", "whole.yml")
    assert load_settings(base, "whole").datasets["orders"].dedupe == DedupeTable()


CATALOG = "warehouse: {catalog: main, schema: bronze, files: ./volume}\n"


@pytest.mark.parametrize("path", ["warehouse: ./lake\n", "warehouse: {root: ./lake}\n"])
def test_an_environment_changes_the_kind_of_warehouse_both_ways(write: Write, tmp_path: Path, path: str) -> None:
    by_path = PathWarehouse(root=tmp_path / "conf/lake")
    by_name = CatalogWarehouse(catalog="main", schema="bronze", files=tmp_path / "conf/volume")
    write(path + ORDERS, "path.yml")
    write(CATALOG + ORDERS, "catalog.yml")
    conf = tmp_path / "conf"
    assert load_settings(conf / "path.yml").warehouse == by_path
    assert load_settings(conf / "catalog.yml").warehouse == by_name
    assert load_settings(conf / "path.yml", "catalog").warehouse == by_name
    assert load_settings(conf / "catalog.yml", "path").warehouse == by_path
    assert load_settings(conf / "catalog.yml").files_root == tmp_path / "conf/volume"


def test_part_of_a_catalog_is_merged(write: Write) -> None:
    base = write(CATALOG + ORDERS)
    write("warehouse: {schema: other}\n", "dev.yml")
    warehouse = load_settings(base, "dev").warehouse
    assert isinstance(warehouse, CatalogWarehouse)
    assert (warehouse.catalog, warehouse.schema_) == ("main", "other")


@pytest.mark.parametrize("env", [None, "dev", "prod"])
def test_the_project_s_own_files_load(repo_root: Path, env: str | None) -> None:
    settings = load_settings(repo_root / "conf/base.yml", env)
    orders = settings.datasets["orders"]
    assert orders.contract == repo_root / "conf/contracts/orders.odcs.yaml"
    assert orders.rules == repo_root / "dq_rules/orders.yml"
    assert isinstance(orders.source, KafkaSource)
    assert isinstance(settings.warehouse, PathWarehouse if env is None else CatalogWarehouse)


D = "    "  # a key of dataset `orders`, whose first free line is 5
MISTAKES = {
    "near miss at the top": ("warehous: x\n" + ORDERS, 1, "unknown key warehous", "did you mean `warehouse`?"),
    "near miss in a dataset": (D + "max_byte: 3\n", 5, "unknown key datasets.orders.max_byte", "`max_bytes`"),
    "near miss in a source": (
        D + "source: {kind: kafka, bootstrap_server: b, topic: t}\n", 5,
        "unknown key datasets.orders.source.bootstrap_server", "did you mean `bootstrap_servers`?",
    ),
    "near miss in a warehouse": (
        "warehouse: {catalogue: a, schema: b, files: c}\n" + ORDERS, 1, "unknown key warehouse.catalogue", "`catalog`?",
    ),
    "key like no other": (D + "zzz: 3\n", 5, "unknown key datasets.orders.zzz", "one of: contract, rules, event_id"),
    "key of our own": ("warehouse: x\norigin: y\n" + ORDERS, 2, "unknown key origin", "remove it"),
    "key of two lines": ('warehouse: x\n"a\\nb": y\n' + ORDERS, 2, "unknown key a b", "one of: warehouse, datasets"),
    "key that is no text": ("warehouse: x\n1: y\n" + ORDERS, 2, "1: Keys should be strings", "mend"),
    "key twice": (D + "max_bytes: 3\n" + D + "max_bytes: 4\n", 6, "datasets.orders.max_bytes stands here twice", "one"),
    "dataset twice": ("warehouse: x\n" + ORDERS + "  orders:\n    contract: d\n", 5, "datasets.orders stands", "keep"),
    "missing contract": ("warehouse: x\ndatasets:\n  orders:\n    rules: r\n", 3, "orders.contract is missing", "add"),
    "missing part of a catalog": (
        "warehouse: {catalog: a, schema: b}\n" + ORDERS, 1, "warehouse.files is missing", "add it",
    ),
    "missing part of a source": (
        D + "source: {kind: kafka, topic: t}\n", 5, "source.bootstrap_servers is missing", "add",
    ),
    "missing root": ("warehouse: {}\n" + ORDERS, 1, "warehouse.root is missing", "add it"),
    "unknown kind of source": (D + "source: {kind: kafca}\n", 5, "datasets.orders.source: ", "mend this value"),
    "source without kind": (D + "source: {topic: t}\n", 5, "datasets.orders.source: ", "mend this value"),
    "another format": (
        D + "source: {kind: files, path: p, format: csv}\n", 5, "datasets.orders.source.format: ", "mend",
    ),
    "no number": (D + "max_bytes: many\n", 5, "datasets.orders.max_bytes: ", "mend this value"),
    "number too small": (D + "max_bytes: 0\n", 5, "datasets.orders.max_bytes: ", "mend this value"),
    "share beyond one": (D + "min_completeness: 1.5\n", 5, "datasets.orders.min_completeness: ", "mend this value"),
    "unknown policy": (D + "on_failure: carry_on\n", 5, "'quarantine_and_continue' or 'reject_batch'", "mend"),
    "window without days": (D + "dedupe: {scope: window}\n", 5, "datasets.orders.dedupe.days is missing", "add it"),
    "window of no days": (D + "dedupe: {scope: window, days: 0}\n", 5, "datasets.orders.dedupe.days: ", "mend"),
    "option that is no text": (
        D + "source: {kind: kafka, bootstrap_servers: b, topic: t, options: {a: 3}}\n", 5, "source.options.a: ", "mend",
    ),
    "unknown encoding": (D + "encoding: klingon\n", 5, "datasets.orders.encoding: unknown encoding 'klingon'", "mend"),
    "dataset in capitals": ("warehouse: x\ndatasets:\n  Orders: {contract: c}\n", 2, "dataset 'Orders': lower", "mend"),
    "dataset that leaves": ("warehouse: x\ndatasets:\n  ../x: {contract: c}\n", 2, "dataset '../x': lower", "mend"),
    "dataset with line end": ('warehouse: x\ndatasets: {"a\\n": {contract: c}}\n', 2, "dataset 'a\\n': lower", "mend"),
    "dataset called like a tag": (
        "warehouse: x\ndatasets:\n  files: {contract: c, max_bytes: 0}\n", 3, "datasets.files.max_bytes: ", "mend",
    ),
    "dataset of nothing": ("warehouse: x\ndatasets:\n  orders:\n", 3, "datasets.orders: ", "mend this value"),
    "catalog with a dot": (
        "warehouse: {catalog: a.b, schema: s, files: f}\n" + ORDERS, 1, "warehouse.catalog: letters, digits", "mend",
    ),
    "both kinds of warehouse": (
        "warehouse: {root: r, catalog: a, schema: s, files: f}\n" + ORDERS, 1, "unknown key warehouse.root", "catalog",
    ),
    "warehouse that is a number": ("warehouse: 3\n" + ORDERS, 1, "warehouse: ", "mend this value"),
    "YAML error": ("warehouse: x\n  datasets: y\n", 2, "not valid YAML", "mend this line"),
    "YAML that runs code": ("warehouse: !!python/name:os.system\n" + ORDERS, 1, "not valid YAML", "mend this line"),
    "YAML that never ends": ("warehouse: &x {root: *x}\n" + ORDERS, 1, "nested too deeply", "mend"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_line(write: Write, name: str) -> None:
    text, line, what, remedy = MISTAKES[name]
    conf = write("warehouse: x\n" + ORDERS + text if text.startswith(D) else text)
    error = _refused(conf)
    assert error.where == f"{conf}:{line}"
    assert what in str(error)
    assert remedy in (error.remedy or "")


def test_missing_at_the_top_is_told_about_the_file(write: Write) -> None:
    conf = write("warehouse: x\n")
    assert str(_refused(conf)) == f"{conf}: datasets is missing (next: add it)"


@pytest.mark.parametrize("text", ["", "- a\n", "just text\n", "3\n"])
def test_no_mapping(write: Write, text: str) -> None:
    conf = write(text)
    assert str(_refused(conf)) == f"{conf}: not a YAML mapping (next: begin with `warehouse:`)"


def test_a_mistake_in_the_environment_is_told_with_its_own_file(write: Write) -> None:
    base = write(BASE)
    env = write("datasets:\n  orders:\n    max_bytes: none\n", "dev.yml")
    assert _refused(base, "dev").where == f"{env}:3"


def test_missing_files(write: Write, tmp_path: Path) -> None:
    missing = _refused(tmp_path / "none.yml")
    assert str(missing) == (
        f"{tmp_path}/none.yml: cannot read the configuration (FileNotFoundError) (next: check --conf and --env)"
    )
    assert _refused(write(BASE), "dev").where == str(tmp_path / "conf/dev.yml")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    conf = tmp_path / "c.yml"
    conf.write_bytes(b"warehouse: \xff\n")
    assert "UnicodeDecodeError" in str(_refused(conf))


@pytest.mark.parametrize("env", ["../dev", "a/b", "", "dev.yml"])
def test_an_environment_is_a_name(write: Write, env: str) -> None:
    assert "is not a name" in str(_refused(write(BASE), env))


@pytest.mark.parametrize("path", ['"a\\0b"', "~nobody-of-this-name/x"])
def test_a_path_that_cannot_be(write: Write, path: str) -> None:
    assert "is no path" in str(_refused(write(f"warehouse: {path}\n" + ORDERS)))


def test_no_value_of_a_secret_is_repeated(write: Write) -> None:
    text = D + "source: {kind: kafka, bootstrap_servers: b, topic: t, options: {sasl.jaas.config: [hush]}}\n"
    assert "hush" not in str(_refused(write("warehouse: x\n" + ORDERS + text)))


@pytest.mark.parametrize(
    ("written", "known_as"), [("UTF8", "utf-8"), ("latin1", "iso8859-1"), ("Windows-1252", "cp1252")]
)
def test_an_encoding_is_known_by_its_canonical_name(write: Write, written: str, known_as: str) -> None:
    conf = write("warehouse: x\n" + ORDERS + f"    encoding: {written}\n")
    assert load_settings(conf).datasets["orders"].encoding == known_as


def test_settings_are_frozen(write: Write) -> None:
    settings = load_settings(write(BASE))
    orders = settings.datasets["orders"]
    for model, name in ((settings, "origin"), (orders, "max_bytes"), (orders.source, "topic")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(model, name, "other")
    assert orders.max_bytes == 1_048_576
