# SPDX-License-Identifier: Apache-2.0
"""The figures as one HTML file: SVG drawn here, nothing loaded from anywhere, light or dark as the reader likes."""
import html
import math

import targets

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --paper: #fff; --dim: #67707d; --line: #d5dae1; --a: #1f6feb;
  --b: #d1742a; --c: #2b8a4b; --d: #8a57c2; --bad: #c8323c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --paper: #14181e; --dim: #98a2b0; --line: #333b46;
  --a: #6aa5ff; --b: #f0a15e; --c: #62c584; --d: #b892ec; --bad: #ff7a80; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin: 2.2rem 0 .4rem }
p, figcaption { color: var(--dim); margin: .2rem 0 } figure { margin: 0 }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif } svg text { fill: var(--ink) }
svg .dim { fill: var(--dim) } svg .grid { stroke: var(--line); stroke-width: 1 } svg .curve { fill: none;
  stroke-width: 2 } svg .limit { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 4 3 }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-size: .87rem }
td, th { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap } .bad { color: var(--bad) }
"""
COLOURS = ("var(--a)", "var(--b)", "var(--c)", "var(--d)")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 300, 56, 14, 12, 40


def number(value):
    if value is None:
        return "-"
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def label(x, y, text, anchor="start", kind=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{html.escape(text)}</text>'


def stroke(x1, y1, x2, y2, kind="grid"):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def svg(height, parts, title):
    return (f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html.escape(title)}">'
            + "".join(parts) + "</svg>")


# --- bars against targets -----------------------------------------------------------------------------

def used_share(target, value):
    """How much of what the target allows is used: 1 is the limit itself, less is better."""
    if target.low is not None and target.high is not None:
        middle, half = (target.low + target.high) / 2, (target.high - target.low) / 2
        return abs(value - middle) / half
    if target.high is not None:
        return value / target.high if target.high else (0.0 if value <= 0 else 2.0)
    return target.low / value if value > 0 else 2.0


def bars(records):
    rows = [record for record in records if "target" in record and record["value"] is not None]
    if not rows:
        return ""
    begin, end, step = 190, WIDTH - 170, 24
    scale = (end - begin) / 1.6
    height = step * len(rows) + 34
    parts = []
    for i, record in enumerate(rows):
        target = targets.TARGETS[record["name"]]
        share = min(used_share(target, record["value"]), 1.6)
        y = 6 + i * step
        colour = "var(--a)" if record["met"] else "var(--bad)"
        parts.append(label(begin - 8, y + 13, record["name"], "end"))
        parts.append(f'<rect x="{begin}" y="{y + 2}" width="{max(share * scale, 1.5):.1f}" height="{step - 9}" rx="2" '
                     f'fill="{colour}"/>')
        parts.append(label(end + 8, y + 13, f"{number(record['value'])} {record['unit']} ({record['target']})"))
    parts.append(stroke(begin + scale, 2, begin + scale, height - 24, "limit"))
    parts.append(label(begin + scale, height - 8, "the target", "middle", "dim"))
    return figure("Against the targets", svg(height, parts, "bars"),
                  "Length: how much of what the target allows is used. Shorter is better; past the dashed line it is missed.")


# --- curves -------------------------------------------------------------------------------------------

class Axes:
    """Maps values to the picture; @log: decades across."""

    def __init__(self, x_range, y_range, log=False):
        self.log = log
        self.x_range = tuple(math.log10(max(x, 1e-9)) for x in x_range) if log else x_range
        self.y_range = y_range

    def x(self, value):
        value = math.log10(max(value, 1e-9)) if self.log else value
        low, high = self.x_range
        return LEFT + (value - low) / ((high - low) or 1) * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        low, high = self.y_range
        return HEIGHT - BOTTOM - (value - low) / ((high - low) or 1) * (HEIGHT - TOP - BOTTOM)

    def ticks(self):
        low, high = self.x_range
        if self.log:
            decades = range(math.floor(low), math.ceil(high) + 1)
            values = [mantissa * 10.0 ** decade for decade in decades for mantissa in (1, 2, 5)]
            return [value for value in values if low - 1e-9 <= math.log10(value) <= high + 1e-9]
        return [low + (high - low) * i / 6 for i in range(7)]

    def frame(self, x_name, y_text):
        parts = []
        for i in range(5):
            value = self.y_range[0] + (self.y_range[1] - self.y_range[0]) * i / 4
            parts += [stroke(LEFT, self.y(value), WIDTH - RIGHT, self.y(value)),
                      label(LEFT - 6, self.y(value) + 4, y_text(value), "end", "dim")]
        for value in self.ticks():
            parts += [stroke(self.x(value), TOP, self.x(value), HEIGHT - BOTTOM),
                      label(self.x(value), HEIGHT - BOTTOM + 15, f"{value:.3g}", "middle", "dim")]
        return parts + [label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_name, "middle", "dim")]


def legend(names):
    return "".join(f'<span style="color:{COLOURS[i % 4]}">&#9632;</span> {html.escape(name)} &nbsp; '
                   for i, name in enumerate(names))


def draw(axes, curves, x_name, y_text, title, extra=()):
    parts = axes.frame(x_name, y_text) + list(extra)
    for i, points in enumerate(curves):
        path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" class="curve" stroke="{COLOURS[i % 4]}"/>')
    return svg(HEIGHT, parts, title)


def figure(title, picture, caption):
    return f"<h2>{html.escape(title)}</h2><figure>{picture}<figcaption>{caption}</figcaption></figure>"


def distribution(title, curves, unit_ns, unit):
    """curves: {name: [[ns, share], ...]}"""
    scaled = {name: [(max(ns, 1) / unit_ns, share) for ns, share in cdf] for name, cdf in curves.items()}
    every = [x for points in scaled.values() for x, _ in points]
    axes = Axes((min(every), max(every)), (0, 1), log=True)
    picture = draw(axes, scaled.values(), unit, lambda y: f"{100 * y:.0f} %", title)
    return figure(title, picture, "Share of trips that took at most this long. " + legend(scaled))


def trips(title, plot, names, unit_ns, unit):
    curves = {}
    for pinned, both in sorted(plot.items(), reverse=True):
        for name, cdf in zip(names, both):
            curves[f"{name}, {'pinned' if pinned else 'unpinned'}"] = cdf
    return distribution(title, curves, unit_ns, unit)


def fairness(points):
    if len(points) < 2:
        return ""
    axes = Axes((0, points[-1][0]), (0, 1))
    limit = [stroke(LEFT, axes.y(.75), WIDTH - RIGHT, axes.y(.75), "limit")]
    picture = draw(axes, [points], "seconds", lambda y: f"{100 * y:.0f} %", "fairness", limit)
    return figure("Device time at weights 3:1", picture,
                  "Share of the heavier tenant since the beginning; dashed: what its weight entitles it to.")


def recovery(done_ms):
    points = [(ms, i + 1) for i, ms in enumerate(done_ms)]
    axes = Axes((min(0, points[0][0]), points[-1][0]), (0, len(points)))
    killed = [stroke(axes.x(0), TOP, axes.x(0), HEIGHT - BOTTOM, "limit")]
    picture = draw(axes, [points], "milliseconds since the worker was killed", lambda y: f"{y:.0f}", "recovery", killed)
    return figure("A worker killed in the middle of its queue", picture, "Tasks finished; dashed: SIGKILL.")


def rates(plot):
    names = {"raw": "bare ring", "one": "1 client", "single": "1 client, one a call", "pooled": "4 clients, pooled",
             "isolated": "4 clients, isolated"}
    values = [(names[name], pinned, value) for pinned, seen in sorted(plot.items(), reverse=True)
              for name, value in seen.items() if name != "raw"]
    top = max(value for _, _, value in values)
    begin, end, step = 240, WIDTH - 90, 22
    parts = []
    for i, (name, pinned, value) in enumerate(values):
        y = 6 + i * step
        parts += [label(begin - 8, y + 13, f"{name}, {'pinned' if pinned else 'unpinned'}", "end"),
                  f'<rect x="{begin}" y="{y + 2}" width="{value / top * (end - begin):.1f}" height="{step - 8}" rx="2" '
                  f'fill="{COLOURS[0 if pinned else 1]}"/>',
                  label(begin + value / top * (end - begin) + 6, y + 13, number(value))]
    return figure("Empty tasks a second", svg(step * len(values) + 12, parts, "rates"), "64 in flight from each client.")


def pictures(plots):
    parts = []
    if "rtt" in plots:
        parts.append(trips("Round trip of an empty task", plots["rtt"], ("bare word", "Gantry"), 1, "ns"))
    if "parked" in plots:
        parts.append(trips("Round trip when both sides sleep", plots["parked"], ("futex", "Gantry"), 1e3, "us"))
    if "rate" in plots:
        parts.append(rates(plots["rate"]))
    if plots.get("fairness"):
        parts.append(fairness(plots["fairness"]))
    if "isolation" in plots:
        curves = dict(zip(("alone", "beside eight flooding sessions"), plots["isolation"]))
        parts.append(distribution("Trips of a steady victim", curves, 1e6, "ms"))
    if plots.get("recovery"):
        parts.append(recovery(plots["recovery"]))
    return "".join(parts)


# --- the page -----------------------------------------------------------------------------------------

def row(record):
    verdict = ""
    if "target" in record:
        said = {True: "met", False: "missed", None: "not measured"}[record["met"]]
        verdict = f'<span class="{"" if record["met"] else "bad"}">{html.escape(record["target"])}: {said}</span>'
    return (f"<tr><td>{html.escape(record['name'])}</td><td class=n>{number(record['value'])}</td>"
            f"<td>{html.escape(record['unit'])}</td><td>{verdict}</td>"
            f"<td>{html.escape(record.get('how', ''))}</td></tr>")


def page(records, plots):
    """records: as printed, the environment first."""
    env = records[0]
    where = (f"{env['value']}, {env['cores']} cores, Linux {env['kernel']}; commit {env['commit']} of {env['date']}; "
             f"load {env['load']} at the start")
    rows = "".join(row(record) for record in records[1:])
    return ("<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
            f"<title>Gantry: figures</title><style>{STYLE}</style><h1>Gantry: figures</h1><p>{html.escape(where)}</p>"
            f"<p>Made by <code>./dev bench --report</code>.</p>{bars(records)}{pictures(plots)}"
            "<h2>All figures</h2><div class=wide><table><tr><th>figure<th>value<th>unit<th>target<th>how</tr>"
            f"{rows}</table></div></html>\n")
