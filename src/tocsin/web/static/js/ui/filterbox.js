// A box for a filter, in the language of docs/FILTERS.md. The node reads it, as it reads every other filter: when typing
// pauses it is asked whether the text is one, and what it refuses is marked at its position, under the box.
//
//   app        for `app.http`
//   value      the text; onChange(text) hears every letter
//   onCommit   hears (text, canonical) on Enter, and when typing pauses at a text that is a filter
//   extra      things to stand at the end of the box; label, placeholder, id

import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { Icon } from "./icons.js";

const PAUSE = 350; // milliseconds without a letter

export function FilterBox({
  app,
  value,
  onChange,
  onCommit,
  placeholder = "value > 9 AND type LIKE 'machine.%'",
  label = "Filter",
  extra,
  id = "filter",
}) {
  const [state, setState] = useState({ error: null, canonical: null, text: value ? null : "" }); // what was checked last
  const [scroll, setScroll] = useState(0);
  const asked = useRef(0);
  const timer = useRef(0);
  const commit = useRef(onCommit);
  commit.current = onCommit;

  const check = async (text) => {
    const number = (asked.current += 1);
    clearTimeout(timer.current);
    if (!text.trim()) {
      setState({ error: null, canonical: null, text });
      commit.current?.("", null);
      return;
    }
    try {
      const { filter } = await app.http.get("/filters/check", { filter: text });
      if (number !== asked.current) return; // somebody typed on
      setState({ error: null, canonical: filter, text });
      commit.current?.(text, filter);
    } catch (error) {
      if (number === asked.current) setState({ error, canonical: null, text });
    }
  };

  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    clearTimeout(timer.current); // what was typed and taken back is not asked for
    asked.current += 1;
    if (value === state.text) return undefined; // checked already
    timer.current = setTimeout(() => check(value), PAUSE);
    return undefined;
  }, [value]);

  const { error } = state;
  const stale = value !== state.text;
  const place = error && Number.isInteger(error.position) ? Math.min(error.position, value.length) : null;
  return html`<div class=${`filterbox${error && !stale ? " is-wrong" : ""}`}>
    <div class="filterbox-row">
      <${Icon} name="search" />
      <div class="filterbox-field">
        <input
          id=${id}
          class="filterbox-input"
          type="text"
          value=${value}
          aria-label=${label}
          aria-invalid=${error && !stale ? "true" : "false"}
          aria-describedby=${error && !stale ? `${id}-error` : undefined}
          autocomplete="off"
          autocapitalize="off"
          autocorrect="off"
          spellcheck=${false}
          placeholder=${placeholder}
          data-filter
          onInput=${(event) => onChange(event.target.value)}
          onScroll=${(event) => setScroll(event.target.scrollLeft)}
          onKeyDown=${(event) => {
            if (event.key === "Enter") check(value);
            if (event.key === "Escape" && value) {
              event.stopPropagation();
              onChange("");
            }
          }}
        />
        ${
          place !== null &&
          !stale &&
          html`<div class="filterbox-caret" aria-hidden="true">
            <span style=${`transform: translateX(calc(${place}ch - ${scroll}px))`}><small>▲</small></span>
          </div>`
        }
      </div>
      ${value && html`<button type="button" class="icon-button" aria-label="Clear the filter" title="Clear" onClick=${() => onChange("")}><${Icon} name="close" size=${14} /></button>`}
      ${extra}
    </div>
    ${
      error &&
      !stale &&
      html`<div class="filterbox-error" id=${`${id}-error`} role="alert">
        <p>
          <strong>${error.message}</strong
          >${place !== null && html`<span class="muted"> · at character ${place + 1}</span>`}
        </p>
        ${error.help && html`<p class="small">${error.help}</p>`}
      </div>`
    }
  </div>`;
}
