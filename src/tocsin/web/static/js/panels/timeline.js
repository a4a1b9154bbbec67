// The time line: bars of what happened, a stretch of it chosen by dragging, and a slider that scrubs the stretch along.
//
// Times are milliseconds since 1970. What is chosen always begins and ends between two bars, so that the number of
// events in it is known without asking.

import { Button, html, useEffect, useRef, useState } from "../ui.js";
import { clock } from "../ui/time.js";
import { Histogram } from "./pictures.js";

const TURN = 450; // milliseconds from one stretch to the next while it plays

/** Bars and the stretch that is chosen: {from, to}. `onChoose` hears of another, `onZoom` of one to be looked at closer. */
export function TimeLine({ found, chosen, onChoose, onZoom }) {
  const drag = useRef(null);
  const start = Date.parse(found.from);
  const step = found.seconds * 1000;
  const size = found.counts.length;
  const first = Math.round((chosen.from - start) / step);
  const wide = Math.max(1, Math.round((chosen.to - chosen.from) / step));
  const choose = (begin, width) => {
    const place = Math.max(0, Math.min(size - width, begin));
    onChoose({ from: start + place * step, to: start + (place + width) * step });
  };
  const bar = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    return Math.max(0, Math.min(size - 1, Math.floor(((event.clientX - box.left) / box.width) * size)));
  };
  const plot = {
    onPointerDown: (event) => {
      if (event.button) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      const at = bar(event);
      const isInside = wide > 1 && wide < size && at >= first && at < first + wide;
      drag.current = isInside ? { grip: at - first } : { anchor: at };
      if (!isInside) choose(at, 1);
    },
    onPointerMove: (event) => {
      if (!drag.current) return;
      const at = bar(event);
      const { grip, anchor } = drag.current;
      if (grip !== undefined) choose(at - grip, wide);
      else choose(Math.min(at, anchor), Math.abs(at - anchor) + 1);
    },
    onPointerUp: () => (drag.current = null),
    onPointerCancel: () => (drag.current = null),
    onDblClick: () => onZoom(chosen),
  };
  const left = Math.max(0, first);
  const right = Math.min(size, first + wide);
  return html`<div class="timeline">
    <${Histogram} found=${found} label="Events over time" height=${150} plot=${plot}>
      ${
        right > left &&
        html`<span
          class="chosen-stretch"
          aria-hidden="true"
          style=${`left:${(100 * left) / size}%;width:${(100 * (right - left)) / size}%`}
        ></span>`
      }
    <//>
    <input
      type="range"
      class="scrubber"
      aria-label="Moment"
      aria-valuetext=${`${clock(chosen.from, { millis: step < 1000 })} to ${clock(chosen.to, { millis: step < 1000 })}`}
      min="0"
      max=${Math.max(0, size - wide)}
      value=${Math.max(0, Math.min(size - wide, first))}
      onInput=${(event) => choose(Number(event.target.value), wide)}
    />
  </div>`;
}

/** Lets the stretch run along the bars, half of its own length at a time, until their end. */
export function Play({ found, chosen, onChoose }) {
  const [isPlaying, setPlaying] = useState(false);
  useEffect(() => {
    if (!isPlaying) return undefined;
    const timer = setTimeout(() => {
      const step = found.seconds * 1000;
      const on = Math.max(1, Math.round((chosen.to - chosen.from) / step / 2)) * step;
      if (chosen.to + on > Date.parse(found.from) + found.counts.length * step) setPlaying(false);
      else onChoose({ from: chosen.from + on, to: chosen.to + on });
    }, TURN);
    return () => clearTimeout(timer);
  }, [isPlaying, chosen, found]);
  return html`<${Button}
    small
    icon=${isPlaying ? "pause" : "play"}
    aria-pressed=${isPlaying ? "true" : "false"}
    onClick=${() => setPlaying(!isPlaying)}
    >${isPlaying ? "Stop" : "Play"}<//
  >`;
}

/** The whole journal in a strip, and which part of it is shown; dragging or a click shows another. */
export function Overview({ found, shown, onShow }) {
  const anchor = useRef(null);
  const start = Date.parse(found.from);
  const long = found.counts.length * found.seconds * 1000;
  const at = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    return start + long * Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
  };
  const plot = {
    onPointerDown: (event) => {
      if (event.button) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      anchor.current = at(event);
    },
    onPointerUp: (event) => {
      if (anchor.current === null) return;
      const [from, to] = [anchor.current, at(event)].sort((a, b) => a - b);
      anchor.current = null;
      const span = shown.to - shown.from;
      if (to - from > long / 100) onShow({ from, to });
      else onShow({ from: from - span / 2, to: from + span / 2 });
    },
    onPointerCancel: () => (anchor.current = null),
  };
  const left = Math.max(0, Math.min(1, (shown.from - start) / long));
  const right = Math.max(0, Math.min(1, (shown.to - start) / long));
  return html`<div class="overview">
    <${Histogram} found=${{ ...found, matched: null }} label="The whole journal" height=${34} plot=${plot}>
      <span
        class="shown-part"
        aria-hidden="true"
        style=${`left:${100 * left}%;width:${Math.max(0.4, 100 * (right - left))}%`}
      ></span>
    <//>
  </div>`;
}
