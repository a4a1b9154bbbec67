// A table of rows: sorted by a press on a heading, opened by a click or Enter, cards on a narrow screen.
//
//   columns  [{key, label, cell(row), sort(row), num, wide, main, hide}]
//              cell   what is shown; the row's own `key` if left out
//              sort   a value to sort by; without it the column cannot be sorted
//              num    numbers: tabular figures, on the right
//              wide   takes the room that is left
//              main   on a narrow screen: the heading of the card
//              hide   not shown on a narrow screen
//   keyOf(row) a stable key; onOpen(row) makes rows open; isOpen(row) marks one
//   order    [key, "up" | "down"] to begin with; most rows shown at once (200)

import { html, useState } from "../../vendor/preact.js";
import { Button } from "./bits.js";
import { count } from "./time.js";

export function Table({ columns, rows, keyOf, onOpen, isOpen, order: first = null, label, most = 200 }) {
  const [order, setOrder] = useState(first);
  const [limit, setLimit] = useState(most);
  const sorted = order ? sort(rows, columns, order) : rows;
  const shown = sorted.slice(0, limit);
  return html`<div class="table-frame">
    <table class="table" aria-label=${label}>
      <thead>
        <tr>
          ${columns.map((column) => html`<${Heading} key=${column.key} column=${column} order=${order} setOrder=${setOrder} />`)}
        </tr>
      </thead>
      <tbody>
        ${shown.map((row) => {
          const opens = onOpen && (() => onOpen(row));
          return html`<tr
            key=${keyOf(row)}
            class=${`${opens ? "opens" : ""} ${isOpen && isOpen(row) ? "is-open" : ""}`}
            tabindex=${opens ? 0 : undefined}
            aria-expanded=${opens && isOpen ? String(Boolean(isOpen(row))) : undefined}
            onClick=${opens && ((event) => !event.target.closest("button, a, input, select") && opens())}
            onKeyDown=${opens && ((event) => openByKey(event, opens))}
          >
            ${columns.map(
              (column) =>
                html`<td key=${column.key} class=${classes(column)} data-label=${column.label}>
                  ${column.cell ? column.cell(row) : row[column.key]}
                </td>`,
            )}
          </tr>`;
        })}
      </tbody>
    </table>
    ${
      sorted.length > limit &&
      html`<p class="table-more">
        <span class="muted">${count(limit)} of ${count(sorted.length)}</span>
        <${Button} small onClick=${() => setLimit(limit + most)}>Show more<//>
      </p>`
    }
  </div>`;
}

function Heading({ column, order, setOrder }) {
  const way = order && order[0] === column.key ? order[1] : null;
  const aria = way ? (way === "up" ? "ascending" : "descending") : undefined;
  if (!column.sort) return html`<th scope="col" class=${classes(column)}>${column.label}</th>`;
  const turn = () => setOrder([column.key, way === "down" ? "up" : way === "up" ? "down" : column.num ? "down" : "up"]);
  return html`<th scope="col" class=${classes(column)} aria-sort=${aria}>
    <button type="button" class="sort" onClick=${turn}>
      ${column.label}<span class="sort-mark" aria-hidden="true">${way === "up" ? "↑" : way === "down" ? "↓" : ""}</span>
    </button>
  </th>`;
}

const classes = ({ num, wide, main, hide }) =>
  [num && "num", wide && "wide", main && "main", hide && "hide"].filter(Boolean).join(" ");

export function openByKey(event, open) {
  if (event.target !== event.currentTarget || (event.key !== "Enter" && event.key !== " ")) return;
  event.preventDefault();
  open();
}

function sort(rows, columns, [key, way]) {
  const value = columns.find((column) => column.key === key)?.sort;
  if (!value) return rows;
  const sign = way === "up" ? 1 : -1;
  return [...rows].sort((one, other) => sign * compare(value(one), value(other)));
}

function compare(one, other) {
  if (one === other) return 0;
  if (one === null || one === undefined) return -1;
  if (other === null || other === undefined) return 1;
  if (typeof one === "string") return one.localeCompare(String(other), undefined, { numeric: true });
  return one < other ? -1 : 1;
}
