#!/usr/bin/env python3
"""Checks Kubernetes manifests without a cluster.

    PYTHONPATH=TOOLS/packages scripts/kubernetes_manifests.py TOOLS/kubectl [deploy/kubernetes]

scripts/kubernetes_tools.sh TOOLS installs both. Renders the base, every overlay, and the base with
every component. Checks each object against the schema of the oldest and the newest version in
VERSIONS, where unknown fields are errors; then that names refer to something, and the rules for pods
(check_pod). Prints a line for each problem; the exit code is 1 if there is one.
"""

import functools
import pathlib
import shutil
import subprocess
import sys
import tempfile

import kubernetes_validate
import kubernetes_validate.utils
import yaml

VERSIONS = ["1.31", "1.37"]
# Kinds of operators, whose schemas are not part of Kubernetes.
KINDS_WITHOUT_SCHEMA = {"PodMonitor", "ScaledObject"}
# The Secrets that an operator creates: docs/operations.md, "Kubernetes".
SECRETS = {"anneal-database", "anneal-database-ca", "anneal-database-owner", "anneal-providers", "anneal-server-tls"}

# Without a cache, the definitions of all kinds are parsed again for each object.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)


def render(kubectl, folder):
    """The objects of a kustomization."""
    ran = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True)
    if ran.returncode != 0:
        raise ValueError(ran.stderr.strip())
    return [item for item in yaml.safe_load_all(ran.stdout) if item]


def kustomizations(folder):
    """Name and folder of everything that is rendered. Adds a folder for each component: it is rendered
    on the base."""
    yield "base", folder / "base"
    for overlay in sorted((folder / "overlays").iterdir()):
        yield f"overlays/{overlay.name}", overlay
    for component in sorted((folder / "components").iterdir()):
        beside = folder / "rendered" / component.name
        beside.mkdir(parents=True)
        lines = {"resources": ["../../base"], "components": [f"../../components/{component.name}"]}
        (beside / "kustomization.yaml").write_text(yaml.safe_dump(lines))
        yield f"components/{component.name}", beside


def check_schema(item):
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(item, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            place = ".".join(str(key) for key in error.path)
            yield f"Kubernetes {version}: {place}: {error.message}"
        except kubernetes_validate.SchemaNotFoundError as error:
            if item["kind"] not in KINDS_WITHOUT_SCHEMA:
                yield error.message


def pod_template(item):
    return item["spec"]["template"] if item["kind"] in ("Deployment", "Job") else None


def port_names(templates):
    return {
        port["name"]
        for template in templates
        for container in template["spec"]["containers"]
        for port in container.get("ports", [])
    }


def check_pod(spec, config_maps):
    """The rules for pods: rights, limits, and that what they mount exists."""
    if spec.get("enableServiceLinks") is not False or spec.get("automountServiceAccountToken") is not False:
        yield "the pod gets service links or a token"
    if not spec["securityContext"].get("runAsNonRoot") or spec["securityContext"].get("runAsUser") != 10001:
        yield "the pod does not run as the user 10001"
    volumes = {}
    for volume in spec.get("volumes", []):
        volumes[volume["name"]] = volume
        if "configMap" in volume and volume["configMap"]["name"] not in config_maps:
            yield f"no ConfigMap {volume['configMap']['name']}"
        if "secret" in volume and volume["secret"]["secretName"] not in SECRETS:
            yield f"the Secret {volume['secret']['secretName']} is not documented"
    for container in spec["containers"]:
        context = container.get("securityContext", {})
        if context.get("capabilities") != {"drop": ["ALL"]} or context.get("readOnlyRootFilesystem") is not True:
            yield f"the container {container['name']} has capabilities or a writable file system"
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"the container {container['name']} may gain privileges"
        resources = container.get("resources", {})
        if "memory" not in resources.get("limits", {}) or {"cpu", "memory"} - resources.get("requests", {}).keys():
            yield f"the container {container['name']} has no limit of memory or requests nothing"
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes:
                yield f"no volume {mount['name']}"
        sources = [variable.get("valueFrom", {}).get("secretKeyRef") for variable in container.get("env", [])]
        sources += [source.get("secretRef") for source in container.get("envFrom", [])]
        for source in sources:
            if source and source["name"] not in SECRETS:
                yield f"the Secret {source['name']} is not documented"
        ports = {port["name"] for port in container.get("ports", [])}
        for probe in ("livenessProbe", "readinessProbe"):
            if ports and container.get(probe, {}).get("httpGet", {}).get("port") not in ports:
                yield f"the {probe} of {container['name']} names no port"


def matches(selector, labels):
    for expression in selector.get("matchExpressions", []):
        if expression["operator"] != "In" or labels.get(expression["key"]) not in expression["values"]:
            return False
    return selector.get("matchLabels", {}).items() <= labels.items()


def check_selection(item, templates):
    """Objects that select pods or name a Deployment must find them, with the ports that they name."""
    kind, spec = item["kind"], item.get("spec", {})
    if kind in ("ScaledObject", "HorizontalPodAutoscaler"):
        target = spec["scaleTargetRef"]["name"]
        if ("Deployment", target) not in templates:
            yield f"no Deployment {target}"
        return
    selectors = {
        "Service": lambda: {"matchLabels": spec["selector"]},
        "PodDisruptionBudget": lambda: spec["selector"],
        "NetworkPolicy": lambda: spec["podSelector"],
        "PodMonitor": lambda: spec["selector"],
    }
    if kind not in selectors:
        return
    selector = selectors[kind]()
    selected = [template for template in templates.values() if matches(selector, template["metadata"]["labels"])]
    if not selected:
        yield "selects no pod"
    named = [port["targetPort"] for port in spec.get("ports", [])] if kind == "Service" else []
    named += [port["port"] for rule in spec.get("ingress", []) for port in rule["ports"]]
    named += [endpoint["port"] for endpoint in spec.get("podMetricsEndpoints", [])]
    for port in named:
        if not all(port in port_names([template]) for template in selected):
            yield f"a selected pod has no port {port}"


def check(objects):
    config_maps = {item["metadata"]["name"] for item in objects if item["kind"] == "ConfigMap"}
    templates = {(item["kind"], item["metadata"]["name"]): pod_template(item) for item in objects if pod_template(item)}
    for item in objects:
        problems = list(check_schema(item))
        # The other checks expect the fields that the schema demands.
        if not problems:
            problems += check_selection(item, templates)
            if pod_template(item):
                problems += check_pod(pod_template(item)["spec"], config_maps)
        for problem in problems:
            yield f"{item['kind']} {item['metadata']['name']}: {problem}"


def unlisted(folder):
    """Files that the kustomization beside them does not name."""
    for path in sorted(folder.rglob("*.yaml")):
        beside = path.parent / "kustomization.yaml"
        if path != beside and path.name not in beside.read_text():
            yield f"{path.relative_to(folder)}: not named by {beside.relative_to(folder)}"


def main(kubectl, folder="deploy/kubernetes"):
    problems = list(unlisted(pathlib.Path(folder)))
    with tempfile.TemporaryDirectory() as temporary:
        copy = pathlib.Path(temporary, "kubernetes")
        shutil.copytree(folder, copy)
        for name, kustomization in kustomizations(copy):
            try:
                problems += [f"{name}: {problem}" for problem in check(render(kubectl, kustomization))]
            except ValueError as error:
                problems.append(f"{name}: {error}")
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


main(*sys.argv[1:])
