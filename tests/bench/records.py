# SPDX-License-Identifier: Apache-2.0
"""Figures as the benchmarks write and print them: one JSON object each, and one line."""
import targets


def record_of(figure, target=None):
    """@figure: name, value, unit and how it was measured."""
    record = {"name": figure.name, "value": figure.value, "unit": figure.unit}
    if isinstance(figure.value, float):
        record["value"] = float(f"{figure.value:.6g}")
    if target:
        record["target"] = targets.text(target)
        record["met"] = targets.is_met(target, figure.value)
    if figure.how:
        record["how"] = figure.how
    return record


def line(record, value, width):
    verdict = ""
    if "target" in record:
        judged = {True: "ok", False: "MISSED", None: "not measured"}[record["met"]]
        verdict = f"  [{judged}: {record['target']}]"
    return f"{record['name']:<{width}} {value:>14} {record['unit']:<8}{verdict}  {record.get('how', '')}".rstrip()


def plain_line(record):
    value = record["value"]
    return line(record, f"{value:.6g}" if isinstance(value, float) else str(value), 44)
