#!/usr/bin/env python3
"""kubernetes-schemas.py VERSION OUT KIND...: writes JSON schemas of Kubernetes that stand alone, as kubeconform reads them.

They come from the package kubernetes-validate, which this Python must have (PyPI), where they refer to one file of definitions.
KIND is a schema's name there, such as daemonset-apps-v1. Unknown keys are refused.
"""

import json
import pathlib
import sys

import kubernetes_validate


def alone(node, definitions):
    """The schema with what it refers to in place of the references; none of the kinds asked for here contains itself."""
    if isinstance(node, list):
        return [alone(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return alone(definitions[node["$ref"].rsplit("/", 1)[1]], definitions)
    # kubeconform reads draft 4 where nothing else is said; these schemas use nothing newer.
    return {key: alone(value, definitions) for key, value in node.items() if key != "$schema"}


version, out, *kinds = sys.argv[1:]
source = pathlib.Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{version}-local-strict"
if not source.is_dir():
    sys.exit(f"kubernetes-schemas: this kubernetes-validate has no schemas of {version}: {source} is not there")
definitions = json.loads((source / "_definitions.json").read_text())["$defs"]
folder = pathlib.Path(out)
folder.mkdir(parents=True, exist_ok=True)
for kind in kinds:
    schema = json.loads((source / f"{kind}.json").read_text())
    (folder / f"{kind}.json").write_text(json.dumps(alone(schema, definitions)))
