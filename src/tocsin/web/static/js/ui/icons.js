// Icons, drawn with strokes of the text's colour, 16 by 16.

import { html } from "../../vendor/preact.js";

const PATHS = {
  live: "M1.5 8h3l2-5 3 10 2-5h3",
  alerts:
    "M8 2a4 4 0 0 0-4 4c0 3.5-1.5 4.5-1.5 5.5h11C13.5 10.500 12 9.500 12 6a4 4 0 0 0-4-4ZM6.500 13.800a1.600 1.600 0 0 0 3 0",
  consumers: "M2 9l2-6h8l2 6v4H2V9Zm0 0h3.500l1 2h3l1-2H14",
  tester: "M2 3h12l-4.700 5.600V13l-2.600-1.300V8.600L2 3Z",
  definitions:
    "M8 4.500v2.500M8 7 4.500 10.500M8 7l3.500 3.500M8 1.500a1.500 1.500 0 1 1 0 3 1.500 1.500 0 0 1 0-3ZM3.500 10.500a1.500 1.500 0 1 1 0 3 1.500 1.500 0 0 1 0-3Zm9 0a1.500 1.500 0 1 1 0 3 1.500 1.500 0 0 1 0-3Z",
  past: "M2.500 8a5.500 5.500 0 1 0 1.800-4.100M2.300 2v2.500h2.500M8 5v3l2 1.500",
  pipeline: "M8 2 14 5 8 8 2 5l6-3ZM2 8l6 3 6-3M2 11l6 3 6-3",
  peers:
    "M8 6a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM3.500 14a1.500 1.500 0 1 0 0-3 1.500 1.500 0 0 0 0 3Zm9 0a1.500 1.500 0 1 0 0-3 1.500 1.500 0 0 0 0 3ZM7 6l-2.500 5M9 6l2.500 5M5 12.500h6",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10ZM10.600 10.600 14 14",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  moon: "M13.500 9.500A6 6 0 0 1 6.500 2.500a6 6 0 1 0 7 7Z",
  auto: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM8 2v12M8 4.500h3.500M8 8h6M8 11.500h3.500",
  pause: "M5.500 3v10M10.500 3v10",
  play: "M4.500 2.800v10.400L13 8 4.500 2.800Z",
  close: "M3.500 3.500l9 9M12.500 3.500l-9 9",
  check: "M2.500 8.500 6 12l7.500-8",
  user: "M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM2.500 14c.500-3 2.700-4.500 5.500-4.500s5 1.500 5.500 4.500",
  copy: "M5.500 5.500v-3h8v8h-3M2.500 5.500h8v8h-8v-8Z",
  up: "M8 13V3M3.500 7.500 8 3l4.500 4.500",
  right: "M6 3l5 5-5 5",
  warn: "M8 2 14.500 13.500h-13L8 2ZM8 6.500v3.500M8 11.800v.100",
  refresh: "M13.500 8a5.500 5.500 0 1 1-1.800-4.100M13.700 2v2.500h-2.500",
  help: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM6.300 6.300A1.800 1.800 0 1 1 8.700 8c-.500.200-.700.500-.700 1M8 11.100v.100",
  more: "M3 8h.010M8 8h.010M13 8h.010",
};

export function Icon({ name, size = 16 }) {
  return html`<svg
    class="icon"
    width=${size}
    height=${size}
    viewBox="0 0 16 16"
    fill="none"
    stroke="currentColor"
    stroke-width="1.5"
    stroke-linecap="round"
    stroke-linejoin="round"
    aria-hidden="true"
  >
    <path d=${PATHS[name]} />
  </svg>`;
}
