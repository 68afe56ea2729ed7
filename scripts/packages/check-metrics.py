#!/usr/bin/env python3
"""check-metrics.py EXPOSITION RULES DASHBOARD: checks that alerts and dashboard use only exposed metrics.

It checks that
- every metric and label in use is in EXPOSITION (OpenMetrics text, as the daemon serves it);
- every alert has a unit test in which it fires (RULES with .test.yml for .yml);
- docs/operate/metrics.md describes every metric in EXPOSITION;
- the dashboard's panels have titles, descriptions, units, and places that do not overlap.
It prints the dashboard's expressions as recording rules, for promtool to check.
"""

import json
import re
import sys

# Series that Prometheus itself adds to what it scrapes.
OF_PROMETHEUS = {"up": {"job", "instance"}}
TARGET_LABELS = {"job", "instance"}
NAME = re.compile(r"\b(hawkeye_\w+|up)\b(?:\{([^}]*)\})?")
SAMPLE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? [^ ]+$")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")

DESCRIBED = "docs/operate/metrics.md"

mistakes = []


def exposed(path):
    """The labels of each series, by its name."""
    series = {}
    for line in open(path, encoding="utf-8"):
        sample = None if line.startswith("#") else SAMPLE.match(line)
        if sample:
            series.setdefault(sample[1], set()).update(re.findall(r'(\w+)="', sample[2] or ""))
    return series


def check(where, expression, series):
    found = NAME.findall(expression)
    for name, matchers in found:
        labels = OF_PROMETHEUS.get(name, series.get(name))
        if labels is None:
            mistakes.append(f"{where}: the daemon exposes no {name}")
            continue
        for label in set(LABEL.findall(matchers)) - labels - TARGET_LABELS:
            mistakes.append(f"{where}: {name} has no label {label}")
    if not found:
        mistakes.append(f"{where}: no metric in {expression!r}")


def of_rules(path):
    """Alerts and their expressions. promtool checks the YAML, so a simple parser is enough here."""
    alerts = {}
    for part in re.split(r"^\s*- alert: ", open(path, encoding="utf-8").read(), flags=re.MULTILINE)[1:]:
        name = part.split()[0]
        expression = re.search(r"^\s*expr: (?:\|\n)?(.*?)(?=^\s*(?:for|labels):)", part, flags=re.MULTILINE | re.DOTALL)
        alerts[name] = expression[1]
    return alerts


def fired(path):
    """Alerts that a unit test expects to fire."""
    text = open(path.replace(".yml", ".test.yml"), encoding="utf-8").read()
    return set(re.findall(r"alertname: (\w+)\n\s*exp_alerts:\n", text))


def panels(dashboard):
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def check_panels(dashboard):
    ids = [panel["id"] for panel in dashboard["panels"]]
    if len(ids) != len(set(ids)):
        mistakes.append("dashboard: two panels have the same id")
    taken = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                if x >= 24 or taken.setdefault((x, y), panel["title"]) != panel["title"]:
                    mistakes.append(f"dashboard: {panel['title']!r} overlaps {taken.get((x, y))!r}, or exceeds the 24 columns")
    for panel in panels(dashboard):
        if not panel["title"] or not panel["description"] or not panel["fieldConfig"]["defaults"].get("unit"):
            mistakes.append(f"dashboard: {panel['title']!r} lacks a title, a description or a unit")


def expressions(dashboard):
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for note in dashboard["annotations"]["list"]:
        yield note["name"], note["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]


exposition, rules, dashboard_file = sys.argv[1:]
series = exposed(exposition)
alerts = of_rules(rules)
for alert, expression in alerts.items():
    check(alert, expression, series)
for alert in alerts.keys() - fired(rules):
    mistakes.append(f"{alert}: no unit test in which it fires")
dashboard = json.load(open(dashboard_file, encoding="utf-8"))
check_panels(dashboard)
recorded = []
for title, expression in expressions(dashboard):
    check(title, expression, series)
    if not expression.startswith("label_values("):
        plain = expression.replace("$__rate_interval", "5m")
        recorded.append({"record": f"dashboard:{len(recorded)}", "expr": plain})
described = set(re.findall(r"`(hawkeye_\w+)", open(DESCRIBED, encoding="utf-8").read()))
for name in series.keys() - described:
    mistakes.append(f"{name} is exposed, but {DESCRIBED} does not describe it")

# JSON is YAML.
print(json.dumps({"groups": [{"name": "dashboard", "rules": recorded}]}))
for mistake in sorted(set(mistakes)):
    print(f"check-metrics: {mistake}", file=sys.stderr)
print(f"check-metrics: {len(alerts)} alerts and {len(recorded)} expressions of the dashboard, {len(series)} metrics", file=sys.stderr)
sys.exit(bool(mistakes))
