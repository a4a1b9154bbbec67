// A new definition: what is refused is shown at its place in the text.

import { Button, Card, Problem, html, useState } from "../ui.js";
import { part } from "../http.js";

const CONTEXTS = [
  ["recent", "recent: the newest opener, which stays"],
  ["chronicle", "chronicle: the oldest opener, used up"],
  ["continuous", "continuous: each opener by itself"],
  ["cumulative", "cumulative: all openers together"],
];
const PLACEMENTS = [
  ["auto", "auto: on Spark if it runs, else on the node"],
  ["node", "node: found within milliseconds"],
  ["spark", "spark: about a second later, for very many"],
];
const OPERATIONS = [
  ["SEQ(a, b)", "b after a"],
  ["AND(a, b)", "both, in any order"],
  ["OR(a, b)", "either"],
  ["NOT(a, b, c)", "c after a, without b between"],
  ["A(a, b, c)", "each b after a, until c"],
  ["PLUS(a, 5 SECONDS)", "that long after a"],
  ["P(a, 5 SECONDS, c)", "every so often after a, until c"],
  ["ANY(2, a, b, c)", "two of them"],
];

export function Define({ app, placement, text: given, onDone }) {
  const [name, setName] = useState("");
  const [text, setText] = useState(given ?? "");
  const [context, setContext] = useState("recent");
  const [where, setWhere] = useState(placement === "spark" ? "spark" : "auto");
  const [past, setPast] = useState("");
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const define = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await app.http.put(`/definitions/${part(name.trim())}`, { text, context, placement: where, past: past || null });
      app.toast?.(`${name.trim()} is looked for now`, "ok");
      onDone(name.trim());
    } catch (failure) {
      setError(Object.assign(failure, { of: text }));
      setBusy(false);
    }
  };
  const isInText = error && Number.isInteger(error.position) && error.of === text;
  return html`<${Card} title="A new definition" class="define">
    <form onSubmit=${define} class="stack">
      <div class="define-row">
        <label class="field"
          >Name
          <input
            class="input"
            required
            value=${name}
            placeholder="break_in"
            autocomplete="off"
            spellcheck=${false}
            aria-invalid=${error?.field === "name" ? "true" : undefined}
            onInput=${(event) => setName(event.target.value)}
          />
        </label>
        <${Choice} label="Context" value=${context} options=${CONTEXTS} onChange=${setContext} />
        <${Choice} label="Placement" value=${where} options=${PLACEMENTS} onChange=${setWhere} />
        <label class="field"
          >Past
          <input
            class="input"
            value=${past}
            placeholder="none; or 1h, 100"
            autocomplete="off"
            spellcheck=${false}
            onInput=${(event) => setPast(event.target.value)}
          />
        </label>
      </div>
      <label class="field"
        >Text
        <textarea
          class="textarea define-text"
          required
          rows="3"
          spellcheck=${false}
          aria-invalid=${isInText ? "true" : undefined}
          aria-describedby=${isInText ? "define-error" : undefined}
          placeholder="NOT([type = 'door.open'] AS o, [type = 'badge'] AS b, [type = 'motion'] AS m) WITHIN 2 MINUTES BY door"
          value=${text}
          onInput=${(event) => setText(event.target.value)}
        ></textarea>
      </label>
      ${isInText ? html`<${Where} error=${error} text=${text} />` : html`<${Problem} error=${error} />`}
      <details class="operations">
        <summary>Operations</summary>
        <dl>
          ${OPERATIONS.map(
            ([form, words]) =>
              html`<div key=${form}>
                <dt><code>${form}</code></dt>
                <dd>${words}</dd>
              </div>`,
          )}
        </dl>
        <p class="muted small">
          A part is a filter in brackets, <code>[value > 9] AS v</code>, or the name of another definition. Behind it
          may stand <code>WITHIN 2 MINUTES</code>, <code>BY machine</code> and <code>WHERE b.value > a.value</code>.
        </p>
      </details>
      <footer class="button-row">
        <button type="submit" class="button button-primary" disabled=${isBusy}><span>Define</span></button>
        <${Button} onClick=${() => onDone(null)}>Cancel<//>
      </footer>
    </form>
  <//>`;
}

function Choice({ label, value, options, onChange }) {
  return html`<label class="field"
    >${label}
    <select class="select" value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${options.map(([each, words]) => html`<option key=${each} value=${each}>${words}</option>`)}
    </select>
  </label>`;
}

/** The line of the text in which the mistake is, with a mark below its place. */
function Where({ error, text }) {
  const place = Math.min(error.position, text.length);
  const begin = text.lastIndexOf("\n", place - 1) + 1;
  const end = text.indexOf("\n", place);
  const line = text.slice(begin, end < 0 ? undefined : end);
  return html`<div class="define-error" id="define-error" role="alert">
    <pre
      class="mono"
      tabindex="0"
    >${line}${"\n"}${" ".repeat(place - begin)}<span class="mark">▲</span></pre>
    <p><strong>${error.message}</strong> <span class="muted">at character ${place + 1}</span></p>
    ${error.help && html`<p>${error.help}</p>`}
  </div>`;
}
