"""The Databricks bundle: every job is one that Databricks knows, and the parts of databricks.yml fit together.

The CLI validates a bundle only against a workspace, so this is what can be known without one. Each check is also shown
to fail on a planted mistake.
"""

from __future__ import annotations

import copy
import os
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from databricks.bundles.jobs import Job

from lazaretto.config import CatalogWarehouse, KafkaSource, load_settings

TOP = {"artifacts", "bundle", "include", "permissions", "sync", "targets", "variables"}
"""What databricks.yml uses of the keys that Databricks knows."""

TARGET = {"default", "mode", "permissions", "presets", "resources", "run_as", "variables", "workspace"}
VARIABLE = {"default", "description", "lookup", "type"}
ARTIFACT = {"build", "dynamic_version", "executable", "files", "path", "type"}
LEVELS = {"CAN_MANAGE", "CAN_RUN", "CAN_VIEW"}
KNOWN_REFERENCES = {
    "bundle.name", "bundle.target", "workspace.current_user.userName", "workspace.file_path", "workspace.root_path",
}  # fmt: skip

_REFERENCE = re.compile(r"\$\{([^}]+)\}")


@dataclass
class Bundle:
    """databricks.yml and the files it includes, as they are written."""

    root: Path
    top: dict[str, Any]
    parts: dict[Path, dict[str, Any]]

    @classmethod
    def read(cls, root: Path) -> Bundle:
        top = yaml.safe_load((root / "databricks.yml").read_text(encoding="utf-8"))
        files = [file for pattern in top["include"] for file in sorted(root.glob(pattern))]
        return cls(root, top, {file: yaml.safe_load(file.read_text(encoding="utf-8")) for file in files})

    def jobs(self) -> Iterator[tuple[Path, str, dict[str, Any]]]:
        for file, part in self.parts.items():
            for name, job in part["resources"]["jobs"].items():
                yield file, name, job

    def job(self, name: str) -> dict[str, Any]:
        return next(job for _, found, job in self.jobs() if found == name)

    def resolved(self, value: Any, target: str) -> Any:
        """`value` with its variables as the target has them; other references stay."""
        values = {name: spec.get("default") for name, spec in self.top["variables"].items()}
        values |= self.top["targets"][target].get("variables") or {}

        def resolve(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: resolve(each) for key, each in value.items()}
            if isinstance(value, list):
                return [resolve(each) for each in value]
            if not isinstance(value, str):
                return value
            whole = _REFERENCE.fullmatch(value)
            if whole and whole[1].startswith("var."):
                return resolve(copy.deepcopy(values[whole[1].removeprefix("var.")]))
            return _REFERENCE.sub(
                lambda m: str(resolve(values[m[1].removeprefix("var.")])) if m[1].startswith("var.") else m[0], value
            )

        return resolve(value)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


def mistakes(bundle: Bundle) -> list[str]:
    """Everything that does not fit, in words; empty when all is well."""
    return [*_top_level(bundle), *_variables(bundle), *_jobs(bundle)]


def _top_level(bundle: Bundle) -> Iterator[str]:
    top = bundle.top
    yield from (f"unknown top-level key {key}" for key in top.keys() - TOP)
    for pattern in top["include"]:
        if not list(bundle.root.glob(pattern)):
            yield f"include {pattern} matches nothing"
    for folder in top["sync"]["paths"]:
        if not (bundle.root / folder).is_dir():
            yield f"sync path {folder} is not there"
    if set(top["targets"]) != {"dev", "prod"}:
        yield f"targets are {sorted(top['targets'])}"
    for name, target in top["targets"].items():
        yield from (f"unknown key {key} in target {name}" for key in target.keys() - TARGET)
        if target.get("mode") not in ("development", "production"):
            yield f"target {name} has mode {target.get('mode')}"
    if [name for name, target in top["targets"].items() if target.get("default")] != ["dev"]:
        yield "dev alone is the default target"
    for name, artifact in top["artifacts"].items():
        yield from (f"unknown key {key} in artifact {name}" for key in artifact.keys() - ARTIFACT)
        if artifact.get("type") != "whl":
            yield f"artifact {name} is a {artifact.get('type')}"
    for permission in top["permissions"]:
        if permission.get("level") not in LEVELS:
            yield f"unknown permission {permission.get('level')}"


def _variables(bundle: Bundle) -> Iterator[str]:
    declared = set(bundle.top["variables"])
    used: set[str] = set()
    for text in _texts([bundle.top, *bundle.parts.values()]):
        for reference in _REFERENCE.findall(text):
            if reference.startswith("var."):
                used.add(reference.removeprefix("var.").split(".")[0])
            elif reference not in KNOWN_REFERENCES:
                yield f"unknown reference {reference}"
    yield from (f"variable {name} is not declared" for name in sorted(used - declared))
    yield from (f"variable {name} is not used" for name in sorted(declared - used))
    for name, spec in bundle.top["variables"].items():
        yield from (f"unknown key {key} in variable {name}" for key in spec.keys() - VARIABLE)
    for name, target in bundle.top["targets"].items():
        yield from (
            f"target {name} sets {key}, which is not declared"
            for key in (target.get("variables") or {}).keys() - declared
        )


def _jobs(bundle: Bundle) -> Iterator[str]:
    project = tomllib.loads((bundle.root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for file, name, job in bundle.jobs():
        versions = {"as written": job}
        for target in bundle.top["targets"]:
            try:
                versions[f"in {target}"] = bundle.resolved(job, target)
            except KeyError:
                continue  # an undeclared variable is told elsewhere
        for how, version in versions.items():
            try:
                Job.from_dict(copy.deepcopy(version))
            except (TypeError, ValueError) as exc:
                yield f"job {name} {how}: {exc}"
        if job.get("max_concurrent_runs") != 1:
            yield f"job {name}: one writer per table needs max_concurrent_runs: 1"
        clusters = {cluster.get("job_cluster_key") for cluster in job.get("job_clusters", [])}
        declared = {parameter["name"] for parameter in job.get("parameters", [])}
        for task in job["tasks"]:
            yield from _task(bundle, file, f"job {name} task {task.get('task_key')}", task, clusters, declared, project)


def _task(
    bundle: Bundle, file: Path, where: str, task: dict[str, Any], clusters: set[Any], declared: set[str], project: Any
) -> Iterator[str]:
    if task.get("job_cluster_key") not in clusters:
        yield f"{where}: no cluster {task.get('job_cluster_key')}"
    wheel = task.get("python_wheel_task", {})
    if wheel.get("package_name") != project["name"] or wheel.get("entry_point") not in project["scripts"]:
        yield f"{where}: the package has no entry point {wheel.get('package_name')}:{wheel.get('entry_point')}"
    for parameter in re.findall(r"\{\{job\.parameters\.(\w+)\}\}", " ".join(wheel.get("parameters", []))):
        if parameter not in declared:
            yield f"{where}: no job parameter {parameter}"
    built = [
        (bundle.root / artifact["path"]).resolve() / found
        for artifact in bundle.top["artifacts"].values()
        for found in re.findall(r"--wheel-dir (\S+)", artifact["build"])
    ]
    wheels = [Path(os.path.normpath(file.parent / each["whl"])) for each in task.get("libraries", []) if "whl" in each]
    if [each.parent for each in wheels] != built or not all(each.match(f"{project['name']}-*.whl") for each in wheels):
        yield f"{where}: takes {[str(each) for each in wheels]}, but the wheel is built in {[str(b) for b in built]}"


@pytest.fixture
def bundle(repo_root: Path) -> Bundle:
    return Bundle.read(repo_root)


def test_it_fits_together(bundle: Bundle) -> None:
    assert mistakes(bundle) == []
    assert {name for _, name, _ in bundle.jobs()} == {"orders_stream", "orders_batch", "maintenance"}


def test_what_the_jobs_run(bundle: Bundle) -> None:
    commands = {
        name: [task["python_wheel_task"]["parameters"] for task in job["tasks"]] for _, name, job in bundle.jobs()
    }
    before = ["--conf", "${workspace.file_path}/conf/base.yml", "--env", "${bundle.target}", "--log-format", "json",
              "--correlation-id", "{{job.run_id}}"]  # fmt: skip
    assert commands == {
        "orders_stream": [[*before, "stream", "orders"]],
        "orders_batch": [[*before, "batch", "orders", "--manifest", "{{job.parameters.manifest}}"]],
        "maintenance": [[*before, "maintain", "optimize"]],
    }


def test_the_command_line_takes_these_parameters(bundle: Bundle) -> None:
    main = pytest.importorskip("lazaretto.cli.main")
    import typer

    command = typer.main.get_command(main.app)
    for _, name, job in bundle.jobs():
        for task in job["tasks"]:
            arguments = [*task["python_wheel_task"]["parameters"], "--help"]
            # --help ends it after the names of commands and options were understood.
            assert command.main(arguments, standalone_mode=False, obj=main.Context()) in (0, None), name


@pytest.mark.parametrize("target", ["dev", "prod"])
def test_the_cluster_runs_the_spark_we_are_built_for(bundle: Bundle, target: str) -> None:
    for _, _, job in bundle.jobs():
        for cluster in bundle.resolved(job, target)["job_clusters"]:
            # Databricks Runtime 19 is Spark 4.2.
            assert cluster["new_cluster"]["spark_version"].startswith("19.")
            assert isinstance(cluster["new_cluster"]["num_workers"], int)


def _plant(**where: Any) -> Callable[[Bundle], None]:
    def plant(bundle: Bundle) -> None:
        for path, value in where.items():
            *keys, last = path.split("__")
            node: Any = bundle.top if keys[0] == "top" else bundle.job(keys[0])
            for key in keys[1:]:
                node = node[int(key) if key.isdigit() else key]
            node[int(last) if last.isdigit() else last] = value

    return plant


@pytest.mark.parametrize(
    ("plant", "told"),
    [
        (_plant(orders_stream__retries=3), "Unexpected field 'retries' for class Job"),
        (_plant(orders_stream__continuous__pause_status="ON"), "'ON' is not a valid PauseStatus"),
        (_plant(orders_batch__tasks__0__max_retries="often"), "orders_batch as written: invalid literal for int"),
        (_plant(orders_batch__timeout_seconds="${var.patience}"), "variable patience is not declared"),
        (_plant(orders_batch__name="${workspace.nobody}"), "unknown reference workspace.nobody"),
        (_plant(orders_batch__max_concurrent_runs=2), "one writer per table"),
        (_plant(orders_batch__parameters=[]), "no job parameter manifest"),
        (_plant(maintenance__tasks__0__libraries__0__whl="../dist/lazaretto-*.whl"), "but the wheel is built in"),
        (_plant(maintenance__tasks__0__job_cluster_key="other"), "no cluster other"),
        (_plant(maintenance__tasks__0__python_wheel_task__entry_point="run"), "no entry point lazaretto:run"),
        (_plant(top__variables__cluster__default__spark_verison="19"), "Unexpected field 'spark_verison'"),
        (_plant(top__variables__workers__default="two"), "maintenance in prod: invalid literal for int"),
        (_plant(top__variables__spare={"default": 1}), "variable spare is not used"),
        (_plant(top__target={}), "unknown top-level key target"),
        (_plant(top__include=["conf/bundel/*.yml"]), "include conf/bundel/*.yml matches nothing"),
        (_plant(top__targets__prod__mode="prod"), "target prod has mode prod"),
        (_plant(top__targets__dev__variables={"wokers": 1}), "target dev sets wokers, which is not declared"),
        (_plant(top__permissions__0__level="MANAGE"), "unknown permission MANAGE"),
        (_plant(top__artifacts__lazaretto__build="python3 -m pip wheel --wheel-dir out ."), "/out"),
    ],
)
def test_planted_mistakes_are_found(bundle: Bundle, plant: Callable[[Bundle], None], told: str) -> None:
    plant(bundle)
    found = mistakes(bundle)
    assert any(told in mistake for mistake in found), found


@pytest.mark.parametrize("env", ["dev", "prod"])
def test_each_target_has_its_settings(repo_root: Path, env: str, bundle: Bundle) -> None:
    assert env in bundle.top["targets"]
    settings = load_settings(env=env, folder=repo_root / "conf")
    assert isinstance(settings.warehouse, CatalogWarehouse)
    assert settings.warehouse.catalog == env
    source = settings.datasets["orders"].source
    assert isinstance(source, KafkaSource)
    # The login is named, not written down; the cluster gets it from the secret scope.
    [variable] = re.findall(r"\$\{env:(\w+)\}", source.options["sasl.jaas.config"])
    secrets = bundle.resolved(bundle.job("orders_stream"), env)["job_clusters"][0]["new_cluster"]["spark_env_vars"]
    assert secrets[variable] == "{{secrets/lazaretto/kafka-jaas}}"
    assert "password" not in (repo_root / f"conf/{env}.yml").read_text(encoding="utf-8").lower()
