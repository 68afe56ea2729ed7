#!/usr/bin/env python3
"""check-dashboard.py DASHBOARD: reads a dashboard by Grafana's own types, and reports unknown keys.

This Python must have the package grafana-foundation-sdk (PyPI).
"""

import json
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

# Grafana writes these, but its types lack them: the name of an annotation of Prometheus, and a
# variable's query as text.
UNTYPED = {"titleFormat", "definition"}


def lost(before, after, path):
    """The parts of `before` that are not in `after`."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key in after:
                yield from lost(value, after[key], f"{path}/{key}")
            elif key not in UNTYPED:
                yield f"{path}/{key}"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (one, other) in enumerate(zip(before, after)):
            yield from lost(one, other, f"{path}/{at}")
    elif before != after:
        yield path


register_default_plugins()
written = json.load(open(sys.argv[1], encoding="utf-8"))
known = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(written)))
unknown = list(lost(written, known, ""))
for path in unknown:
    print(f"check-dashboard: Grafana does not know the key {path}", file=sys.stderr)
sys.exit(bool(unknown))
