// The live stream: events as the node takes them, newest first, filtered by the node.
//
// It is drawn a few times a second, whatever the rate. The newest 500 are kept, only those in view are in the document.
// While somebody reads (paused, scrolled down, a row in focus or opened) the list holds still and what comes is counted.
// A browser that falls behind skips to now, and says so. `livefeed.js` is where the events come from.

import { LiveFeed } from "./livefeed.js";
import {
  count,
  decimals,
  Empty,
  EventRow,
  FilterBox,
  Button,
  html,
  Icon,
  Panel,
  Problem,
  useEffect,
  useMemo,
  useRef,
  useState,
} from "../ui.js";

const PASTS = [
  ["0", "from now on"],
  ["20", "with the last 20"],
  ["100", "with the last 100"],
];

export function Live({ app }) {
  const [text, setText] = useState(app.params.filter || "");
  const [, drawn] = useState(0);
  const feed = useMemo(() => new LiveFeed(app, () => drawn((version) => version + 1)), []);
  const [query, setQuery] = useState({
    filter: app.params.filter || "",
    past: app.params.past || "100",
    system: app.params.system === "1",
  });
  useEffect(() => () => feed.close(), []);
  useEffect(() => {
    feed.open(query);
    const { filter, past, system } = query;
    app.go("live", { filter, past: past === "100" ? "" : past, system: system ? "1" : "" }, { replace: true });
  }, [query.filter, query.past, query.system]);
  useEffect(() => feed.hold("drawer", Boolean(app.openedEvent)), [app.openedEvent]);

  const change = (part) => setQuery((old) => ({ ...old, ...part }));
  const isPaused = feed.isHeldBy("pause");
  const actions = html`<label class="visually-hidden" for="past">How much of the past</label>
    <select id="past" class="select" value=${query.past} onChange=${(event) => change({ past: event.target.value })}>
      ${PASTS.map(([value, words]) => html`<option key=${value} value=${value}>${words}</option>`)}
    </select>
    <${Button}
      icon=${isPaused ? "play" : "pause"}
      kind=${isPaused ? "primary" : "plain"}
      onClick=${() => feed.hold("pause", !isPaused)}
    >
      ${isPaused ? "Resume" : "Pause"}
    <//>`;
  return html`<${Panel} title="Live" note="Every event, as it arrives. Open one to see all that is known of it." fill actions=${actions}>
    <${FilterBox}
      app=${app}
      value=${text}
      onChange=${setText}
      onCommit=${(filter) => change({ filter })}
      placeholder="Everything. Try  value > 9 AND type LIKE 'machine.%'"
    />
    <${Problem} error=${feed.error} onRetry=${() => feed.open(query)} />
    <${Figures} feed=${feed} system=${query.system} onSystem=${(system) => change({ system })} />
    <${Rows} app=${app} feed=${feed} query=${query} onClear=${() => setText("")} />
  <//>`;
}

function Figures({ feed, system, onSystem }) {
  const rates = feed.rates;
  const top = Math.max(1, ...rates);
  const points = rates
    .map((rate, place) => `${(place * 120) / (rates.length - 1)},${23 - (rate / top) * 21}`)
    .join(" ");
  return html`<div class="live-figures">
    <svg class="spark" viewBox="0 0 120 24" preserveAspectRatio="none" aria-hidden="true">
      <polyline points=${points} />
    </svg>
    <span
      ><strong class="num" data-testid="rate">${feed.rate < 10 ? decimals(feed.rate, 1) : count(feed.rate)}</strong> a
      second</span
    >
    <span><strong class="num" data-testid="received">${count(feed.received)}</strong> received</span>
    ${feed.passed > 0 && html`<span class="tone-warn-text" title="the browser could not keep up: these offsets were not looked at"><strong class="num">${count(feed.passed)}</strong> passed over</span>`}
    <label class="check" title="what the node itself writes: acknowledgements, cancellations, sessions"
      ><input type="checkbox" checked=${system} onChange=${(event) => onSystem(event.target.checked)} />System
      records</label
    >
  </div>`;
}

const NARROW = matchMedia("(max-width: 760px)");

function Rows({ app, feed, query, onClear }) {
  const frame = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600, row: NARROW.matches ? 56 : 31 });
  useEffect(() => {
    const measure = () =>
      setView((old) => ({ ...old, height: frame.current.clientHeight, row: NARROW.matches ? 56 : 31 }));
    const resized = new ResizeObserver(measure);
    resized.observe(frame.current);
    return () => resized.disconnect();
  }, []);
  const rows = feed.shown;
  const first = Math.max(0, Math.min(Math.floor(view.top / view.row) - 4, rows.length - 1));
  const last = Math.min(rows.length, first + Math.min(60, Math.ceil(view.height / view.row) + 8));
  const opened = app.openedEvent;

  const onScroll = (event) => {
    const top = event.target.scrollTop;
    feed.hold("scroll", top > view.row);
    setView((old) => ({ ...old, top }));
  };
  const resume = () => {
    frame.current.scrollTop = 0;
    feed.resume();
  };
  const onKey = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.target.role !== "row") return;
    event.preventDefault();
    const next = step > 0 ? event.target.nextElementSibling : event.target.previousElementSibling;
    next?.focus();
  };

  return html`<div class="live-list">
    ${
      feed.isStopped &&
      html`<button type="button" class="pill" onClick=${resume} data-testid="held">
        <${Icon} name="up" size=${14} />${feed.missed > 0 ? `${count(feed.missed)} newer` : "Held"} · resume
      </button>`
    }
    <div class="events" role="table" aria-label="Events, newest first" aria-rowcount=${rows.length}>
      <div class="event-row event-head" role="row">
        <span role="columnheader">Arrived</span><span role="columnheader" title="priority">Pr.</span
        ><span role="columnheader">Type</span> <span role="columnheader">Source</span
        ><span role="columnheader">What it says</span><span role="columnheader" class="event-offset">Offset</span>
      </div>
      <div
        ref=${frame}
        class="events-scroll"
        role="rowgroup"
        onScroll=${onScroll}
        onKeyDown=${onKey}
        onfocusin=${(event) => event.target.matches(".event-row:focus-visible") && feed.hold("focus", true)}
        onfocusout=${() => feed.hold("focus", false)}
      >
        <div class="events-room" style=${`height: ${rows.length * view.row}px`}>
          ${rows
            .slice(first, last)
            .map(
              (event, place) =>
                html`<${EventRow}
                  event=${event}
                  tab=${place === 0 ? 0 : -1}
                  isOpen=${opened && opened.offset === event.offset}
                  onOpen=${app.openEvent}
                  style=${`transform: translateY(${(first + place) * view.row}px)`}
                />`,
            )}
        </div>
        ${!rows.length && html`<${Nothing} feed=${feed} query=${query} onClear=${onClear} />`}
      </div>
    </div>
  </div>`;
}

function Nothing({ feed, query, onClear }) {
  if (!feed.isReady) return html`<p class="loading muted">Asking the node …</p>`;
  if (query.filter) {
    return html`<${Empty} icon="search" title="Nothing matches yet">
      <p>The node looks at every new event with this filter; what matches appears here.</p>
      <p><${Button} small onClick=${onClear}>Show everything<//></p>
    <//>`;
  }
  return html`<${Empty}
    icon="live"
    title="No events yet"
    command=${`tocsin pub machine.value '{"machine": "m7", "value": 9.2}'`}
  >
    <p>As soon as somebody publishes, it is here. In a terminal:</p>
  <//>`;
}
