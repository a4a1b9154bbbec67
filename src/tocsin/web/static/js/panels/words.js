// Words for figures that the shared ones do not have: few characters, plurals, marks of an axis.

import { count } from "../ui.js";

const SHORT = new Intl.NumberFormat("en-GB", { notation: "compact", maximumFractionDigits: 1 });

/** A number in five characters or so: 0.25, 12.5, 8,421, 12.3K. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 10_000) return SHORT.format(value);
  if (Number.isInteger(value) || size >= 100) return count(value);
  return String(Number(value.toFixed(size < 1 ? 2 : 1)));
}

/** `1 event`, `2 events`. */
export function several(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** A text as a constant of the filter language. */
export function quoted(text) {
  return `'${String(text).replaceAll("'", "''")}'`;
}

const two = (number) => String(number).padStart(2, "0");
const STEPS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200,
  10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000, 31_536_000,
];

/** Round moments between two times in milliseconds, at most so many: [[time, text], …]. */
export function marks(from, to, most) {
  const step = (STEPS.find((each) => (to - from) / 1000 / each <= most) ?? STEPS[STEPS.length - 1]) * 1000;
  const zone = new Date(from).getTimezoneOffset() * 60_000; // days and hours are round where the reader lives
  const found = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step)
    found.push([at, mark(new Date(at), step)]);
  return found;
}

function mark(date, step) {
  if (step >= 86_400_000) return date.toLocaleString("en-GB", { day: "numeric", month: "short" });
  const minutes = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (step >= 60_000) return minutes;
  const seconds = two(date.getSeconds());
  return step >= 1000 ? `${minutes}:${seconds}` : `${seconds}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}
