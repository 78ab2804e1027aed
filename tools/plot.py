#!/usr/bin/env python3
"""Plots the times of calls, and the bandwidths of copies, over their size. The input is a document that a measuring tool
of gdrcopy has written by --json, or another document of that form. The program needs matplotlib. A document can contain
a title, and its setup can name a driver that was used instead of gdrdrv.

    tools/plot.py RESULTS.json CHART.svg
"""

from __future__ import annotations

import datetime
import io
import json
import math
import sys
import textwrap
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter, NullLocator

# The SVG file contains text as text, not as outlines. Equal results always give equal files.
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gdrapi", "font.sans-serif": ["DejaVu Sans", "Verdana"]})
# The first four are distinguishable with any color blindness.
COLORS = ["#0067a5", "#c24e00", "#2b2b2b", "#7300e6", "#00806a", "#b0307a", "#806000", "#4a6fe3"]
GRAY = "#6b6b6b"  # The color of captions, and of lines that were computed instead of measured.
MARKED = 12  # A curve with fewer points than this shows a dot at each point.
BEYOND = 3  # P0 and P99 extend the y axis by at most this factor beyond the medians.
# Bytes per second of one lane in each generation of PCIe. Copies get less, because each packet also has a header.
LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}


def size_text(size: float, _position: object = None) -> str:
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:g} {unit}"
    return f"{size:g} B"


def described(setup: dict[str, Any], methods: list[str]) -> tuple[str, list[str], tuple[str, float] | None]:
    """Returns the title, the conditions, and the PCIe link's name and bandwidth, or None if the link is not the limit."""
    first, libraries, cuda = setup["libraries"][0], setup["libraries"], setup["cuda_version"]
    gpu = "".join(gpu["name"] for gpu in setup["gpus"] if gpu["number"] == setup["gpu"])
    emulated = gpu == "gdremu GPU"
    link = None if emulated else setup["pcie"]
    link_name = f"PCIe {link['generation']}.0 x{link['lanes']}" if link else ""
    facts = [
        gpu,
        f"{first['mapping_type']} mapping",
        *(f"{library['label']}: libgdrapi {library['version'] or 'of unknown version'}" for library in libraries),
        setup.get("driver") or (f"gdrdrv {first['driver_version']}" if first["driver_version"] else ""),
        f"GPU driver {setup['gpu_driver']}" if setup["gpu_driver"] else "",
        f"CUDA {cuda // 1000}.{cuda % 1000 // 10}",
        link_name,
        setup["cpu_model"] or "",
        "" if setup["cpu"] is None else f"CPU {setup['cpu']}",
        datetime.datetime.fromtimestamp(setup["time"], datetime.timezone.utc).strftime("%Y-%m-%d"),
    ]
    title = f"{'emulated, not PCIe: ' if emulated else ''}gdrcopy {setup['tool']}: {', '.join(methods)}"
    limit = None
    # Copies to cached mappings may use another link than PCIe, so the bandwidth of PCIe is no limit for them.
    if link and all(library["mapping_type"] != "cached" for library in libraries):
        limit = (link_name, LANE[link["generation"]] * link["lanes"])
    return title, [fact for fact in facts if fact], limit


def draw(axes: Any, records: list[dict[str, Any]], methods: list[str], unit: str, limit: tuple[str, float] | None) -> None:
    """Draws medians with bands from P0 to P99, the time of the round trips that reads need, and the limit of the link."""

    def value(record: dict[str, Any], key: str) -> float:
        seconds = (record.get(key) or record["p50_ns"]) / 1e9
        return seconds if unit == "s" else record["size_bytes"] / seconds

    sizes = [record["size_bytes"] for record in records]
    medians = [value(record, "p50_ns") for record in records]
    ends = medians + [value(record, key) for record in records for key in ("p0_ns", "p99_ns")]
    if limit:
        axes.plot(sizes, [limit[1]] * len(sizes), color=GRAY, linewidth=1, linestyle=":", label=limit[0])
        medians.append(limit[1])
    for number, method in reversed(list(enumerate(methods))):  # The first method is drawn on top.
        own = [record for record in records if record["method"] == method]
        sizes = [record["size_bytes"] for record in own]
        floors = [record for record in own if record.get("floor_ns")]
        if number == 0 and floors:
            floor = [value(record, "floor_ns") for record in floors]
            axes.plot([record["size_bytes"] for record in floors], floor, color=GRAY, linewidth=1, linestyle="--", label="round trips")
            medians += floor
        color = COLORS[number % len(COLORS)]
        low, high = ([value(record, key) for record in own] for key in ("p0_ns", "p99_ns"))
        axes.fill_between(sizes, low, high, color=color, alpha=0.12, linewidth=0)
        style = "o-" if len(own) < MARKED else "-"
        axes.plot(sizes, [value(record, "p50_ns") for record in own], style, color=color, linewidth=2, label=method)
    low = max(min(ends + medians), min(medians) / BEYOND)
    high = min(max(ends + medians), max(medians) * BEYOND)
    room = max(1.1, (6 / (high / low)) ** 0.5)  # The y axis spans at least a factor of 6, so it has two labels or more.
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(LogLocator(2, numticks=8))
    axes.xaxis.set_major_formatter(FuncFormatter(size_text))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yscale("log")
    axes.set_ylim(low / room, high * room)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5) if high / low < 200 else (1,)))
    axes.yaxis.set_major_formatter(EngFormatter(unit))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y", color="#dcdcdc")


def chart(document: dict[str, Any]) -> Figure:
    records, methods = [], []
    load = document.get("load", {}).get("p50_ns", 0)
    for record in document["records"]:
        names = {"method": record.get("method") or record["library"], "group": record.get("direction") or record["call"]}
        if names["method"] not in methods:
            methods.append(names["method"])
        if names["group"] == "read" and load >= 200:  # Loads of less than 200 ns hit a cache of the CPU.
            # A CPU core requests 16 cache lines of 64 bytes at the same time.
            names["floor_ns"] = load * math.ceil((record.get("alignment_bytes", 0) + record["size_bytes"]) / 1024)
        if record["size_bytes"] and record.get("p50_ns"):  # Logarithmic axes have no 0.
            records.append({**record, **names})
    groups = list(dict.fromkeys(record["group"] for record in records))
    if "setup" in document:
        title, facts, limit = described(document["setup"], methods)
        title = document.get("title", title)
    else:
        title, facts, limit = document["title"], document["facts"], None
    ranges = ", with the range from P0 to P99" if any("p99_ns" in record for record in records) else ""
    facts = [*facts, f"medians{ranges}; both axes are logarithmic"]
    if "write" in groups:
        facts.append("a write ends when the CPU has taken the data, before the bus has carried it")
    panels = [(group, "time") for group in groups]
    panels += [(group, "bandwidth") for group in groups if group in ("write", "read")]
    rows = (len(panels) + 1) // 2
    height = 1.5 + 4 * rows
    figure = Figure(figsize=(13, height))
    figure.set_layout_engine("constrained", h_pad=0.12)
    figure.suptitle(f"{title}\n", x=0.01, ha="left", weight="bold", size=18)  # The legend is placed on the title's second line.
    figure.supxlabel(textwrap.fill("; ".join(facts), 150), x=0.01, ha="left", size=11, color=GRAY)
    lines: dict[str, Any] = {}
    all_axes = list(figure.subplots(rows, 2, squeeze=False).flat)
    for axes, (group, quantity) in zip(all_axes, panels):
        of_group = [record for record in records if record["group"] == group]
        of_panel = limit if (group, quantity) == ("write", "bandwidth") else None
        draw(axes, of_group, methods, "s" if quantity == "time" else "B/s", of_panel)
        axes.set_title(f"{group}: {quantity}", weight="bold")
        lines.update((line.get_label(), line) for line in reversed(axes.lines))
    for axes in all_axes[len(panels) :]:
        axes.set_axis_off()
    place = {"loc": "upper left", "bbox_to_anchor": (0, 1 - 0.4 / height)}
    figure.legend(lines.values(), lines, ncols=len(lines), frameon=False, fontsize=12, **place)
    return figure


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: plot.py RESULTS.json CHART.svg")
    svg = io.StringIO()
    try:
        with open(sys.argv[1]) as file:
            figure = chart(json.load(file))
        figure.savefig(svg, format="svg", metadata={"Date": None})
        with open(sys.argv[2], "w") as file:
            file.write(" ".join(svg.getvalue().split()) + "\n")  # One line, because a diff by lines would not be readable anyway.
    except OSError as error:
        sys.exit(f"plot.py: {error}")
    except (KeyError, TypeError, ValueError) as error:
        sys.exit(f"plot.py: {sys.argv[1]} has no results over size: {error!r}")


if __name__ == "__main__":
    main()
