// Which keys there are. `?` shows it, and so does the button beside the theme.

import { Dialog, html } from "../ui.js";
import { ROUTES } from "./routes.js";

const KEYS = [
  [["/"], "to the filter"],
  [["↑", "↓"], "through the rows"],
  [["Enter"], "opens a row"],
  [["Esc"], "closes what is open"],
  [["?"], "shows this"],
];

export function KeySheet({ onClose }) {
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <dl class="keys">
      ${KEYS.map(([keys, words]) => html`<${Line} key=${words} keys=${keys} words=${words} />`)}
      ${ROUTES.map(({ label, key }) => html`<${Line} key=${label} keys=${["g", key]} words=${`to ${label}`} />`)}
    </dl>
  <//>`;
}

function Line({ keys, words }) {
  return html`<div>
    <dt>${keys.map((each) => html`<kbd key=${each}>${each}</kbd>`)}</dt>
    <dd>${words}</dd>
  </div>`;
}
