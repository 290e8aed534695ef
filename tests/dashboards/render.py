"""Draws the dashboard from a Prometheus' data, so that one sees what it looks like without a Grafana.

    render.py PROMETHEUS SECONDS FILE      the last SECONDS of it, as a PNG

Panels stand where Grafana puts them, with their titles, units, legends and thresholds; what Grafana adds (tooltips, zoom) a
picture has not. Fails if a panel has no data.
"""

import json
import math
import pathlib
import re
import sys
import time
import urllib.parse
import urllib.request

import matplotlib

matplotlib.use("Agg")
from matplotlib import dates, pyplot
from matplotlib.ticker import FuncFormatter, MaxNLocator

DASHBOARD = pathlib.Path(__file__).parents[2] / "grafana" / "dashboard.json"

COLUMNS = 24
COLUMN_INCHES, ROW_INCHES = 0.62, 0.34
GAP_INCHES = 0.06
DOTS_PER_INCH = 80
POINTS = 180
RATE_SPAN = "20s"
LEGEND_ENTRIES_MAX = 9
SECONDS_PER_DAY = 86400

BACKGROUND, PANEL, EDGE, TEXT, FAINT = "#111217", "#181b1f", "#2c3235", "#d8d9da", "#8e8e8e"
NAMED = {"green": "#73bf69", "orange": "#ff9830", "red": "#f2495c", "yellow": "#fade2a", "blue": "#5794f2", "text": TEXT}
LINES = ["#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff", "#ffa6b0", "#96d98d", "#c4162a"]


def scaled(value, names, step):
    at = 0
    while abs(value) >= step and at < len(names) - 1:
        value, at = value / step, at + 1
    return f"{value:.3g}{names[at]}"


def in_seconds(value):
    for limit, factor, name in [(1e-3, 1e6, " µs"), (1, 1e3, " ms"), (120, 1, " s"), (7200, 1 / 60, " min"), (172800, 1 / 3600, " h")]:
        if abs(value) < limit:
            return f"{value * factor:.3g}{name}"
    return f"{value / SECONDS_PER_DAY:.3g} d"


def shown(value, unit):
    if math.isnan(value):
        return "no data"
    bytes_names = [" B", " KiB", " MiB", " GiB", " TiB"]
    per_second = {"reqps": " req/s", "ops": " ops/s"}
    if unit == "s":
        return in_seconds(value) if value else "0 s"
    if unit == "bytes":
        return scaled(value, bytes_names, 1024)
    if unit == "Bps":
        return scaled(value, bytes_names, 1024) + "/s"
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "bool_yes_no":
        return "Yes" if value else "No"
    return scaled(value, ["", " K", " M", " G", " T"], 1000) + per_second.get(unit, "")


class Prometheus:
    """What a Prometheus has of the last while."""

    def __init__(self, address, seconds):
        self.address = address
        self.end = time.time()
        self.start = self.end - seconds
        self.step = max(1, seconds / POINTS)

    def series(self, query):
        """(labels, times, values) of each series."""
        query = re.sub(r"\$(job|namespace|instance)\b", ".*", query.replace("$__rate_interval", RATE_SPAN))
        span = {"start": self.start, "end": self.end, "step": self.step}
        url = f"{self.address}/api/v1/query_range?" + urllib.parse.urlencode({"query": query, **span})
        with urllib.request.urlopen(url, timeout=30) as answer:
            result = json.load(answer)["data"]["result"]
        for one in result:
            times, values = zip(*one["values"])
            yield one["metric"], [at / SECONDS_PER_DAY for at in times], [float(value) for value in values]


def legend(pattern, labels):
    if not pattern:
        return ", ".join(f"{name}={value}" for name, value in labels.items() if name not in {"__name__", "job"})
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), pattern)


def color_of(value, steps):
    reached = [step for step in steps if step["value"] is None or value >= step["value"]]
    return NAMED.get(reached[-1]["color"], reached[-1]["color"]) if reached else TEXT


class Board:
    """The sheet that panels are drawn on."""

    def __init__(self, panels):
        self.rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
        self.width, self.height = COLUMNS * COLUMN_INCHES, self.rows * ROW_INCHES
        self.figure = pyplot.figure(figsize=(self.width, self.height), dpi=DOTS_PER_INCH, facecolor=BACKGROUND)

    def place(self, grid):
        """Where a panel stands: left, bottom, width and height, as shares of the sheet."""
        left, width = grid["x"] * COLUMN_INCHES + GAP_INCHES, grid["w"] * COLUMN_INCHES - 2 * GAP_INCHES
        top, height = grid["y"] * ROW_INCHES + GAP_INCHES, grid["h"] * ROW_INCHES - 2 * GAP_INCHES
        return (left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height)

    def frame(self, panel, color=PANEL):
        left, bottom, width, height = self.place(panel["gridPos"])
        self.figure.add_artist(
            matplotlib.patches.Rectangle(
                (left, bottom), width, height, facecolor=color, edgecolor=EDGE, linewidth=0.8,
                transform=self.figure.transFigure, zorder=-1,
            )
        )
        return left, bottom, width, height

    def write(self, x, y, text, **style):
        self.figure.text(x, y, text, **{"color": TEXT, "fontsize": 9, "va": "top", **style})

    def row(self, panel):
        left, bottom, _, height = self.place(panel["gridPos"])
        self.write(left + 0.002, bottom + height / 2, panel["title"], fontsize=12, va="center", weight="bold")

    def stat(self, panel, prometheus):
        defaults = panel["fieldConfig"]["defaults"]
        values = [series[2][-1] for target in panel["targets"] for series in prometheus.series(target["expr"])]
        value = values[0] if values else float("nan")
        filled = panel["options"].get("colorMode") == "background"
        color = color_of(value, defaults["thresholds"]["steps"]) if defaults["color"]["mode"] == "thresholds" else TEXT
        left, bottom, width, height = self.frame(panel, color if filled else PANEL)
        on = "#111217" if filled else TEXT
        self.write(left + 0.004, bottom + height * 0.93, panel["title"], color=on)
        style = {"color": on if filled else color, "fontsize": 22, "ha": "center", "va": "center", "weight": "bold"}
        self.write(left + width / 2, bottom + height * 0.4, shown(value, defaults["unit"]), **style)
        return bool(values)

    def timeseries(self, panel, prometheus):
        unit = panel["fieldConfig"]["defaults"]["unit"]
        custom = panel["fieldConfig"]["defaults"].get("custom", {})
        left, bottom, width, height = self.frame(panel)
        self.write(left + 0.004, bottom + height * 0.97, panel["title"])
        axes = self.figure.add_axes((left + width * 0.15, bottom + height * 0.32, width * 0.82, height * 0.54))
        axes.set_facecolor(PANEL)
        lines = [
            (legend(target.get("legendFormat"), labels), times, values)
            for target in panel["targets"]
            for labels, times, values in prometheus.series(target["expr"])
            if not all(math.isnan(value) for value in values)
        ]
        for at, (name, times, values) in enumerate(lines):
            color = LINES[at % len(LINES)]
            axes.plot(times, values, color=color, linewidth=1.1, label=f"{name}  {shown(values[-1], unit)}")
            if custom.get("fillOpacity"):
                axes.fill_between(times, values, color=color, alpha=custom["fillOpacity"] / 100, linewidth=0)
        self.dress(axes, prometheus, unit, lowest=min((v for line in lines for v in line[2] if not math.isnan(v)), default=0))
        if lines:
            handles, labels = axes.get_legend_handles_labels()
            if len(handles) > LEGEND_ENTRIES_MAX:
                handles, labels = handles[:LEGEND_ENTRIES_MAX], [*labels[: LEGEND_ENTRIES_MAX - 1], f"… {len(labels)} in all"]
            axes.legend(
                handles, labels, loc="upper center", bbox_to_anchor=(0.44, -0.16), ncol=3, fontsize=6.2, frameon=False,
                labelcolor=TEXT, handlelength=1, columnspacing=1, borderaxespad=0,
            )
        return bool(lines)

    def dress(self, axes, prometheus, unit, lowest):
        axes.set_xlim(prometheus.start / SECONDS_PER_DAY, prometheus.end / SECONDS_PER_DAY)
        axes.set_ylim(min(lowest, 0), max(axes.get_ylim()[1], 0) or 1)
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, unit)))
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(dates.DateFormatter("%H:%M:%S"))
        axes.tick_params(colors=FAINT, labelsize=6.5, length=0)
        axes.grid(color=EDGE, linewidth=0.5)
        for side in axes.spines.values():
            side.set_visible(False)


def main(address, seconds, path):
    panels = json.loads(DASHBOARD.read_text())["panels"]
    prometheus, board = Prometheus(address, float(seconds)), Board(panels)
    empty = []
    for panel in panels:
        if panel["type"] == "row":
            board.row(panel)
        elif not getattr(board, panel["type"])(panel, prometheus):
            empty.append(panel["title"])
    board.figure.savefig(path, facecolor=BACKGROUND, pil_kwargs={"optimize": True})
    print(f"{len(panels)} panels and rows drawn; without data: {', '.join(empty) or 'none'}")
    return not empty


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    sys.exit(not main(*sys.argv[1:]))
