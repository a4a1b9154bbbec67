// The tester: would this filter have matched? How often, when, and what. Nothing is subscribed to, nobody notices.

import {
  Button,
  Empty,
  FilterBox,
  Loading,
  Panel,
  Problem,
  Segmented,
  Stat,
  Stats,
  count,
  html,
  useEffect,
  useState,
} from "../ui.js";
import { clock } from "../ui/time.js";
import { EventList } from "./eventlist.js";
import { Histogram } from "./pictures.js";
import { several } from "./words.js";

const PASTS = [
  ["5m", "5 min"],
  ["1h", "1 h"],
  ["24h", "1 day"],
  ["7d", "1 week"],
  ["100", "Last 100"],
];
const WORDS = {
  "5m": "the last 5 minutes",
  "1h": "the last hour",
  "24h": "the last day",
  "7d": "the last week",
  100: "the last 100 matches",
};
const EXAMPLES = [
  "value > 9",
  "priority >= 8",
  "type LIKE 'machine.%' AND value BETWEEN 5 AND 7",
  "subject IS NOT NULL",
];
const BARS = 90;

export function Tester({ app }) {
  const [text, setText] = useState(app.params.filter ?? "");
  const [filter, setFilter] = useState(app.params.filter ?? "");
  const [past, setPast] = useState("1h");
  const [turn, setTurn] = useState(0);
  const { answer, error, isBusy } = useTested(app, filter, past, turn);
  useEffect(() => {
    if (app.params.filter !== undefined) take(app.params.filter);
  }, [app.params.filter]);
  const take = (given) => {
    setText(given);
    setFilter(given);
  };
  const note =
    "Would this filter have matched? It looks at what has happened; nothing is subscribed to, and nobody notices.";
  return html`<${Panel} title="Tester" note=${note}>
    <${FilterBox} app=${app} value=${text} onChange=${setText} onCommit=${setFilter} />
    <div class="toolbar">
      <${Segmented} label="How much of the past" value=${past} options=${PASTS} onChange=${setPast} />
      <${Button} icon="refresh" onClick=${() => setTurn(turn + 1)}>Look again<//>
      <span class="spacer"></span>
      <${Button} icon="past" onClick=${() => app.go("past", { filter })}>Time line<//>
      <${Button} kind="primary" icon="live" onClick=${() => app.go("live", { filter })}>Listen to this<//>
    </div>
    ${!text && html`<${Examples} take=${take} />`}
    <${Problem} error=${error} />
    ${!answer && isBusy && html`<${Loading} words="Looking at the past …" />`}
    ${answer && html`<div class=${isBusy ? "is-stale" : ""}><${Answer} answer=${answer} app=${app} /></div>`}
  <//>`;
}

/** The node's answer for a filter and a past; what is known stays while the next is looked for. */
function useTested(app, filter, past, turn) {
  const [state, setState] = useState({ answer: null, error: null, isBusy: true });
  useEffect(() => {
    const given = new AbortController();
    const { signal } = given;
    setState((before) => ({ ...before, isBusy: true }));
    (async () => {
      try {
        const found = await app.http.get("/filters/test", { filter: filter || "true", past, limit: 20 }, { signal });
        const range = { filter, from: found.from, to: found.to, buckets: BARS };
        let bars = found.looked ? await app.http.get("/history", range, { signal }) : null;
        if (bars && Date.parse(bars.oldest) > Date.parse(bars.from))
          bars = await app.http.get("/history", { ...range, from: bars.oldest }, { signal }); // not hours in which there was no journal
        setState({ answer: { ...found, bars, asked: filter, past }, error: null, isBusy: false });
      } catch (error) {
        if (!signal.aborted) setState({ answer: null, error, isBusy: false });
      }
    })();
    return () => given.abort();
  }, [filter, past, turn]);
  return state;
}

function Answer({ answer, app }) {
  const { matched, looked, complete, examples, bars } = answer;
  const words = WORDS[answer.past];
  const lead = answer.asked ? "It matches" : "Without a filter everything matches:";
  if (!looked) {
    return html`<${Empty}
      icon="past"
      title=${`Nothing was published in ${words}`}
      command=${'tocsin pub machine.value \'{"machine": "m7", "value": 9.2}\''}
      >Choose a longer past, or publish something.<//
    >`;
  }
  return html`<section aria-label="What was found">
    <p class="verdict" aria-live="polite">
      ${
        matched
          ? html`<strong class="yes">Yes.</strong> ${lead} <strong>${several(matched, "event")}</strong> of ${words}.`
          : html`<strong class="no">No.</strong> No event of ${words} matches; ${several(looked, "was", "were")} looked at.`
      }
    </p>
    <${Stats}>
      <${Stat} label="Matched" value=${count(matched)} note=${rate(matched, looked)} tone=${matched ? "ok" : "warn"} />
      <${Stat}
        label="Looked at"
        value=${count(looked)}
        note=${complete ? "all of that past" : "not all of it: that would take too long"}
        tone=${complete ? undefined : "warn"}
      />
      <${Stat} label="First" value=${answer.first ? clock(answer.first, { millis: false }) : "–"} />
      <${Stat} label="Last" value=${answer.last ? clock(answer.last, { millis: false }) : "–"} />
    <//>
    ${bars && html`<${Histogram} found=${answer.asked ? bars : { ...bars, matched: null }} label="Matches over time" />`}
    ${
      matched > 0 &&
      html`<h2 class="section">
          ${examples.length < matched ? `The newest ${count(examples.length)}` : "All of them"}
        </h2>
        <${EventList} app=${app} events=${examples} label="Examples" />`
    }
  </section>`;
}

function Examples({ take }) {
  return html`<div class="examples">
    <span class="muted">Try</span>
    ${EXAMPLES.map(
      (each) =>
        html`<button type="button" key=${each} class="example" onClick=${() => take(each)}><code>${each}</code></button>`,
    )}
  </div>`;
}

function rate(matched, looked) {
  const share = (100 * matched) / looked;
  if (!matched) return "nothing";
  return share < 0.1 ? "less than one in a thousand" : `${share.toFixed(share < 10 ? 1 : 0)} % of what was looked at`;
}
