// A chart over time (uPlot), in the colours of the theme.
//
//   data     [xs, ys, …]: xs in seconds since 1970 (or plain numbers with `time={false}`), one list for each series
//   series   [{label, tone: "accent" | "ok" | "warn" | "bad" | "muted", fill, bars, unit, digits}]
//   height   pixels; label, for who cannot see it; onSelect(from, to) lets a range be dragged
//
// uPlot is fetched when the first chart is drawn. A new `data` is drawn without making the chart anew.

import { html, useEffect, useRef } from "../../vendor/preact.js";
import { clock } from "./time.js";

let loading = null;
const load = () => (loading ??= import("../../vendor/uPlot.js").then((module) => module.default));

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export function Chart({ data, series, height = 160, label, time = true, onSelect, from, to }) {
  const frame = useRef(null);
  const plot = useRef(null);
  const shown = useRef(data);
  shown.current = data;
  const select = useRef(onSelect);
  select.current = onSelect;
  const key = JSON.stringify([series, height, time, Boolean(onSelect)]);

  useEffect(() => {
    let over = false;
    let made = null;
    const make = async () => {
      const UPlot = await load();
      if (over || !frame.current) return;
      made?.destroy();
      made = plot.current = new UPlot(
        options(UPlot, frame.current.clientWidth, { series, height, time, select }),
        shown.current,
        frame.current,
      );
    };
    make();
    const resized = new ResizeObserver(
      () => made && frame.current && made.setSize({ width: frame.current.clientWidth, height }),
    );
    resized.observe(frame.current);
    const themed = new MutationObserver(make); // its colours are drawn, not styled
    themed.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => {
      over = true;
      resized.disconnect();
      themed.disconnect();
      made?.destroy();
      plot.current = null;
    };
  }, [key]);

  useEffect(() => {
    plot.current?.setData(data);
    if (plot.current && from !== undefined && to !== undefined) plot.current.setScale("x", { min: from, max: to });
  }, [data, from, to]);

  return html`<div class="chart" style=${`min-height: ${height}px`}>
    <div ref=${frame} role="img" aria-label=${label}></div>
  </div>`;
}

// 24 hours, as everywhere on the page; seconds or days where marks are that close or far apart.
function times(_, marks) {
  const apart = marks.length > 1 ? marks[1] - marks[0] : 60;
  return marks.map((at) => {
    if (apart >= 86400) return new Date(at * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
    const shown = clock(at * 1000, { millis: false }).slice(-8);
    return apart >= 60 ? shown.slice(0, 5) : shown;
  });
}

function options(UPlot, width, { series, height, time, select }) {
  const axis = {
    stroke: colour("text-2"),
    grid: { stroke: colour("line"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
  };
  return {
    width,
    height,
    padding: [8, 8, 0, 0],
    scales: { x: { time } },
    legend: { show: series.length > 1 }, // of one series the heading above says the same
    cursor: { drag: { x: Boolean(select.current), y: false, setScale: false }, points: { size: 6 } },
    axes: [{ ...axis, size: 28, values: time ? times : undefined }, { ...axis, size: 52 }],
    series: [
      { value: (_, at) => (at === null || at === undefined ? "–" : time ? clock(at * 1000, { millis: false }) : at) },
      ...series.map(({ label, tone = "accent", fill = false, bars = false, unit = "", digits = 0 }) => ({
        label,
        stroke: colour(tone === "muted" ? "text-2" : tone),
        width: 1.5,
        fill:
          fill || bars
            ? `color-mix(in srgb, ${colour(tone === "muted" ? "text-2" : tone)} ${bars ? 55 : 14}%, transparent)`
            : undefined,
        paths: bars ? UPlot.paths.bars({ size: [0.85, 64], gap: 1 }) : undefined,
        points: { show: false },
        value: (_, shown) =>
          shown === null || shown === undefined ? "–" : `${shown.toFixed(digits)}${unit && ` ${unit}`}`,
      })),
    ],
    hooks: {
      setSelect: [
        (plot) => {
          const { left, width: wide } = plot.select;
          if (!wide || !select.current) return;
          select.current(plot.posToVal(left, "x"), plot.posToVal(left + wide, "x"));
          plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        },
      ],
    },
  };
}
