// Small pictures: sparklines, shares of a whole, histograms over time.
//
// Each says in words what it shows, for who does not see it. Colours are those of the theme, by class.

import { count, html, useEffect, useRef, useState } from "../ui.js";
import { clock } from "../ui/time.js";
import { marks, several } from "./words.js";

/** The width of an element in pixels, as it changes; 0 until it is known. */
function useWidth(ref) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!ref.current) return undefined;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.round(entry.contentRect.width)));
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

const NARROW = matchMedia("(max-width: 600px)");

/** Is it a phone's screen? */
export function useNarrow() {
  const [isNarrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const hear = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", hear);
    return () => NARROW.removeEventListener("change", hear);
  }, []);
  return isNarrow;
}

/** A line without axes, with the ground below it. Gaps (null) stay gaps. */
export function Spark({ values, label, tone = "accent" }) {
  const most = Math.max(1, ...values.filter((value) => value !== null));
  const step = values.length > 1 ? 100 / (values.length - 1) : 0;
  const runs = [];
  values.forEach((value, place) => {
    if (value === null) return;
    const point = [(place * step).toFixed(1), (22 - (value / most) * 20).toFixed(1)];
    if (place && values[place - 1] !== null && runs.length) runs[runs.length - 1].push(point);
    else runs.push([point]);
  });
  return html`<svg
    class=${`sparkline tone-${tone}`}
    viewBox="0 0 100 24"
    preserveAspectRatio="none"
    role="img"
    aria-label=${label}
  >
    ${runs.map(
      (run) =>
        html`<polygon points=${`${run[0][0]},24 ${run.join(" ")} ${run[run.length - 1][0]},24`} />
          <polyline points=${run.join(" ")} vector-effect="non-scaling-stroke" />`,
    )}
  </svg>`;
}

/** How much of a whole is taken. */
export function Share({ part, whole, label, tone }) {
  const percent = whole ? Math.min(100, (100 * part) / whole) : 0;
  return html`<span
    class=${`share tone-${tone ?? (percent >= 100 ? "bad" : percent >= 75 ? "warn" : "accent")}`}
    role="img"
    aria-label=${label}
  >
    <span style=${`width:${percent.toFixed(1)}%`}></span>
  </span>`;
}

/** Times below a picture of so many pixels. */
export function TimeAxis({ from, to, width }) {
  const place = (at) => (100 * (at - from)) / (to - from || 1);
  const found = marks(from, to, Math.max(2, Math.floor(width / 90))).filter(
    ([at]) => place(at) >= 3 && place(at) <= 97,
  );
  return html`<div class="time-axis" aria-hidden="true">
    ${found.map(([at, text]) => html`<span key=${at} style=${`left:${place(at).toFixed(2)}%`}>${text}</span>`)}
  </div>`;
}

/** What GET /history gives as bars: how many in each stretch of time and, with a filter, how many of them matched. */
export function Histogram({ found, label, height = 120, children, plot = {} }) {
  const ref = useRef(null);
  const width = useWidth(ref);
  const [under, setUnder] = useState(null);
  const { counts, matched } = found;
  const from = Date.parse(found.from);
  const step = found.seconds * 1000;
  const to = from + counts.length * step;
  const most = Math.max(1, ...counts); // null, what was not looked at, counts as 0
  const unseen = counts.findIndex((value) => value !== null);
  const told = (place) => {
    if (counts[place] === null) return "not looked at";
    return `${matched ? `${count(matched[place])} of ` : ""}${several(counts[place], "event")}`;
  };
  const follow = (event) => {
    plot.onPointerMove?.(event);
    const box = ref.current.getBoundingClientRect();
    const place = Math.floor(((event.clientX - box.left) / box.width) * counts.length);
    setUnder(place >= 0 && place < counts.length ? place : null);
  };
  const total = counts.reduce((sum, each) => sum + each, 0);
  const chosen = matched?.reduce((sum, each) => sum + each, 0);
  const share = matched ? `, of which ${count(chosen)} match` : "";
  const said = `${label}: ${several(total, "event")}${share}, from ${clock(from)} to ${clock(to)}`;
  return html`<figure class="histogram">
    <div
      class="plot"
      ref=${ref}
      style=${`height:${height}px`}
      ...${plot}
      onPointerMove=${follow}
      onPointerLeave=${() => setUnder(null)}
    >
      <${Bars} counts=${counts} matched=${matched} most=${most} label=${said} />
      <span class="most num" aria-hidden="true">${count(most)}</span>
      ${unseen > 0 && html`<span class="unseen" style=${`width:${(100 * unseen) / counts.length}%`}>not looked at</span>`}
      ${children}
      ${
        under !== null &&
        html`<div
          class="tip"
          aria-hidden="true"
          data-side=${under > counts.length / 2 ? "left" : "right"}
          style=${`left:${((under + 0.5) / counts.length) * 100}%`}
        >
          <strong
            >${told(under)}</strong
          >
          <span>${clock(from + under * step, { millis: step < 1000 })}</span>
        </div>`
      }
    </div>
    <${TimeAxis} from=${from} to=${to} width=${width || 600} />
  </figure>`;
}

/** One path for each kind of bar: a picture of hundreds of them is drawn again in a moment. */
function Bars({ counts, matched, most, label }) {
  const path = (values) =>
    values.map((value, place) => (value ? bar(place, Math.max(2, (98 * value) / most)) : "")).join("");
  return html`<svg viewBox=${`0 0 ${counts.length} 100`} preserveAspectRatio="none" role="img" aria-label=${label}>
    <path class="rule" d=${`M0 2H${counts.length}M0 51H${counts.length}`} vector-effect="non-scaling-stroke" />
    <path class=${matched ? "all" : "chosen"} d=${path(counts)} />
    ${matched && html`<path class="chosen" d=${path(matched)} />`}
  </svg>`;
}

const bar = (place, tall) => `M${place + 0.08} 100v${-tall.toFixed(2)}h.84v${tall.toFixed(2)}z`;
