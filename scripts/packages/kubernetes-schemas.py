#!/usr/bin/env python3
"""kubernetes-schemas.py VERSION OUT KIND...: writes JSON schemas of Kubernetes without references.

kubeconform reads schemas in this form. They come from the package kubernetes-validate (PyPI), which
this Python must have; there they refer to one file of definitions. KIND is a schema's name there,
such as daemonset-apps-v1. The schemas refuse unknown keys.
"""

import json
import pathlib
import sys

import kubernetes_validate


def alone(node, definitions):
    """The schema with all references replaced; none of the kinds in use here contains itself."""
    if isinstance(node, list):
        return [alone(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return alone(definitions[node["$ref"].rsplit("/", 1)[1]], definitions)
    # kubeconform assumes draft 4 without "$schema"; these schemas use nothing newer.
    return {key: alone(value, definitions) for key, value in node.items() if key != "$schema"}


version, out, *kinds = sys.argv[1:]
source = pathlib.Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{version}-local-strict"
if not source.is_dir():
    sys.exit(f"kubernetes-schemas: this kubernetes-validate has no schemas of {version}: {source} does not exist")
definitions = json.loads((source / "_definitions.json").read_text())["$defs"]
folder = pathlib.Path(out)
folder.mkdir(parents=True, exist_ok=True)
for kind in kinds:
    schema = json.loads((source / f"{kind}.json").read_text())
    (folder / f"{kind}.json").write_text(json.dumps(alone(schema, definitions)))
