// Times, spans and numbers as people read them. Instants come as RFC 3339 text, microseconds, or `Date`.

import { html, useEffect, useState } from "../../vendor/preact.js";

const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });

export const count = (number) => (number === null || number === undefined ? "–" : whole.format(number));

export const decimals = (number, digits = 1) =>
  number === null || number === undefined
    ? "–"
    : new Intl.NumberFormat("en-GB", { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(number);

export function bytes(number) {
  if (number === null || number === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  while (number >= 1024 && power < units.length - 1) {
    number /= 1024;
    power += 1;
  }
  return `${number < 10 && power ? number.toFixed(1) : Math.round(number)} ${units[power]}`;
}

// Seconds as "0.4 ms", "12 s", "3 m 20 s", "2 h 5 m", "4 d 1 h".
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  const sign = seconds < 0 ? "−" : "";
  const long = Math.abs(seconds);
  if (long === 0) return "0 s";
  if (long < 1) return `${sign}${long < 0.01 ? (long * 1000).toFixed(1) : Math.round(long * 1000)} ms`;
  if (long < 10) return `${sign}${long.toFixed(1)} s`;
  if (long < 60) return `${sign}${Math.floor(long)} s`;
  const parts = [
    [86400, "d"],
    [3600, "h"],
    [60, "m"],
    [1, "s"],
  ];
  const first = parts.findIndex(([width]) => long >= width);
  const [width, unit] = parts[first];
  const [next, small] = parts[first + 1];
  const rest = Math.floor((long % width) / next);
  return `${sign}${Math.floor(long / width)} ${unit}${rest ? ` ${rest} ${small}` : ""}`;
}

// Any instant as milliseconds since 1970; null stays null.
export function instant(at) {
  if (at === null || at === undefined || at === "") return null;
  if (at instanceof Date) return at.getTime();
  if (typeof at === "number") return at > 1e14 ? at / 1000 : at;
  return Date.parse(at);
}

const two = (number) => String(number).padStart(2, "0");

// "14:03:07.250", with the day before it if that is not today or `date` says so.
export function clock(at, { date = false, millis = true } = {}) {
  const when = instant(at);
  if (when === null || Number.isNaN(when)) return "–";
  const day = new Date(when);
  const time = `${two(day.getHours())}:${two(day.getMinutes())}:${two(day.getSeconds())}`;
  const shown = millis ? `${time}.${String(day.getMilliseconds()).padStart(3, "0")}` : time;
  if (!date && day.toDateString() === new Date().toDateString()) return shown;
  return `${day.getFullYear()}-${two(day.getMonth() + 1)}-${two(day.getDate())} ${shown}`;
}

export function Time({ at, date = false, millis = true }) {
  const when = instant(at);
  if (when === null || Number.isNaN(when)) return html`<span class="muted">–</span>`;
  const exact = new Date(when).toISOString();
  return html`<time class="num" datetime=${exact} title=${exact}>${clock(at, { date, millis })}</time>`;
}

// Renders its owner again every so often: `const now = useTick(1000)`.
export function useTick(every = 1000) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

export function Ago({ at }) {
  const now = useTick(1000);
  const when = instant(at);
  if (when === null || Number.isNaN(when)) return html`<span class="muted">never</span>`;
  const past = (now - when) / 1000;
  const exact = new Date(when).toISOString();
  const words = past < 1 && past > -1 ? "now" : past < 0 ? `in ${rough(-past)}` : `${rough(past)} ago`;
  return html`<time class="num" datetime=${exact} title=${exact}>${words}</time>`;
}

const rough = (seconds) => duration(seconds < 60 ? Math.floor(seconds) : seconds).replace(/\.0 s$/, " s");
