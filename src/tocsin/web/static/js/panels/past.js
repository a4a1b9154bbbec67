// The past: what the journal holds as a time line. A stretch of it is chosen, and its events are shown below.

import {
  Badge,
  Button,
  Empty,
  FilterBox,
  Loading,
  Panel,
  Problem,
  Segmented,
  count,
  html,
  instant,
  useEffect,
  useMemo,
  usePoll,
  useRef,
  useState,
} from "../ui.js";
import { clock } from "../ui/time.js";
import { EventList } from "./eventlist.js";
import { useNarrow } from "./pictures.js";
import { Overview, Play, TimeLine } from "./timeline.js";
import { several } from "./words.js";

const HOUR = 3_600_000;
const SPANS = [
  [900_000, "15 min"],
  [HOUR, "1 h"],
  [21_600_000, "6 h"],
  [86_400_000, "1 d"],
  [0, "All"],
];
const MOST = 200; // events shown of a stretch
const FOLLOW = 5000;
const AROUND = 600_000; // milliseconds around an event that somebody came from

/** A time in milliseconds, fractions included, as text with microseconds. */
function moment(at) {
  const micros = Math.round(at * 1000);
  const whole = Math.floor(micros / 1000);
  return `${new Date(whole).toISOString().slice(0, -1)}${String(micros - whole * 1000).padStart(3, "0")}Z`;
}

/** A view of so many bars, each of whole milliseconds and at a round time: they stand still while time goes on. */
function grid(from, to, buckets) {
  const step = Math.max(1, Math.ceil((to - from) / buckets));
  const begin = Math.floor(from / step) * step;
  return { from: begin, to: begin + step * buckets, step };
}

/** The last so many milliseconds, up to and with the bar of now. */
function latest(span, buckets, now) {
  const step = Math.ceil(span / buckets);
  const to = (Math.floor(now / step) + 1) * step;
  return { from: to - step * buckets, to, step };
}

/** From before the oldest event to now, in bars of a rounded length: else they would change with every second. */
function all(oldest, now, buckets) {
  const least = Math.max(1000, (now - oldest) / (buckets - 1));
  const unit = 10 ** (Math.floor(Math.log10(least)) - 1);
  return latest(Math.ceil(least / unit) * unit * buckets, buckets, now);
}

export function Past({ app }) {
  const [text, setText] = useState(app.params.filter ?? "");
  const [filter, setFilter] = useState(app.params.filter ?? "");
  const [span, setSpan] = useState(HOUR); // what is followed; null: the view stands still
  const [fixed, setFixed] = useState(null);
  const standing = useRef(null); // the same at once: an effect that runs late must not take the old one for it
  const [chosen, setChosen] = useState(null);
  const buckets = useNarrow() ? 60 : 120;
  useEffect(() => {
    if (app.params.filter !== undefined) {
      setText(app.params.filter);
      setFilter(app.params.filter);
    }
  }, [app.params.filter]);

  useEffect(() => {
    if (!app.params.from) return;
    app.http.get("/events", { from: app.params.from, limit: 1, system: true }).then(
      ([event]) => event && show(instant(event.arrived)),
      (error) => app.toast(error.message, "bad", error.help),
    );
  }, [app.params.from]);

  const whole = usePoll(() => app.http.get("/history", { buckets: 160 }), 2 * FOLLOW);
  const oldest = instant(whole.value?.oldest);
  const newest = whole.value ? Date.parse(whole.value.to) : null;
  useEffect(() => {
    const isFree = span === HOUR && !app.params.from;
    if (oldest && isFree && app.bus.now() - oldest < HOUR / 2) follow(0); // an hour would be a few bars at the edge
  }, [Boolean(oldest)]);
  const shown = usePoll(
    async () => {
      const now = app.bus.now();
      const view = fixed ?? (span ? latest(span, buckets, now) : all(oldest ?? now, now, buckets));
      const found = await app.http.get("/history", {
        from: moment(view.from),
        to: moment(view.to - 0.001),
        filter,
        buckets,
      });
      return { ...found, view, filter };
    },
    fixed ? 0 : FOLLOW,
    [filter, span, fixed, buckets, span === 0 && oldest],
  );
  const found = shown.value;
  const view = found?.view;

  const filtered = useRef(filter); // by what the stretch was chosen
  useEffect(() => {
    if (!found || (standing.current && view !== standing.current)) return; // bars of what was shown before: a stretch evened to them could lose its event
    const isOther = found.filter !== filtered.current; // then what matches now is of interest
    filtered.current = found.filter;
    setChosen((now) => {
      const isAway = !now || now.to <= view.from || now.from >= view.to;
      return isAway || isOther ? lastStretch(found) : evened(found, now);
    });
  }, [found]);

  const stand = (view) => {
    standing.current = view;
    setSpan(null);
    setFixed(view);
  };
  const look = ({ from, to }) => stand(grid(from, to, buckets));
  const show = (at) => {
    const view = grid(at - AROUND / 2, at + AROUND / 2, buckets);
    const bar = Math.floor(at / view.step) * view.step;
    stand(view);
    setChosen({ from: bar, to: bar + view.step });
  };
  const follow = (milliseconds) => {
    standing.current = null;
    setFixed(null);
    setSpan(milliseconds);
    setChosen(null);
  };
  const zoom = (factor) => {
    const middle = chosen ? (chosen.from + chosen.to) / 2 : (view.from + view.to) / 2;
    const wide = (view.to - view.from) * factor;
    look({ from: middle - wide / 2, to: middle + wide / 2 });
  };
  const shift = (part) => {
    const by = part * (view.to - view.from);
    look({ from: view.from + by, to: view.to + by });
  };
  const isEmpty = whole.value && !whole.value.oldest;
  const note =
    "What the journal holds. Drag over the bars to choose a stretch, drag it along or use the slider to scrub, double-click to zoom in.";
  return html`<${Panel} title="Past" note=${note}>
    <${Problem} error=${whole.error ?? shown.error} />
    ${
      isEmpty
        ? html`<${Empty}
            icon="past"
            title="Nothing has happened yet"
            command=${'tocsin pub machine.value \'{"machine": "m7", "value": 9.2}\''}
            >What is published is kept here in the order it came.<//
          >`
        : html`<${FilterBox} app=${app} value=${text} onChange=${setText} onCommit=${setFilter} />
            <div class="toolbar">
              <${Segmented}
                label="How much is shown"
                value=${fixed ? null : span}
                options=${SPANS}
                onChange=${follow}
              />
              <span class="button-row">
                <${Button} small label="Earlier" onClick=${() => shift(-0.5)}>←<//>
                <${Button} small label="Later" onClick=${() => shift(0.5)}>→<//>
                <${Button} small label="Zoom out" onClick=${() => zoom(2)}>−<//>
                <${Button} small label="Zoom in" onClick=${() => zoom(0.5)}>+<//>
                <${Button} small disabled=${!chosen} onClick=${() => look(chosen)}
                  >Zoom to the stretch<//
                >
              </span>
              ${fixed ? html`<${Badge}>stands still<//>` : html`<${Badge} tone="ok">follows<//>`}
              ${found && !found.complete && html`<${Badge} tone="warn" title="Counting all of it would take too long">counted in part<//>`}
            </div>
            ${!found && html`<${Loading} words="Looking at the past …" />`}
            ${found && chosen && html`<${TimeLine} found=${found} chosen=${chosen} onChoose=${setChosen} onZoom=${look} />`}
            ${view && newest > oldest && html`<${Overview} found=${whole.value} shown=${view} onShow=${look} />`}
            ${found && chosen && html`<${Stretch} ...${{ app, found, chosen, filter }} onChoose=${setChosen} />`}`
    }
  <//>`;
}

/** The last bar in which something happened (and matched), or the last of all. */
function lastStretch({ from, seconds, counts, matched }) {
  const values = matched?.some(Boolean) ? matched : counts;
  let place = values.length - 1;
  while (place > 0 && !values[place]) place -= 1;
  if (!values[place]) place = values.length - 1;
  const start = Date.parse(from) + place * seconds * 1000;
  return { from: start, to: start + seconds * 1000 };
}

/** The same stretch, from one bar's edge to another's. */
function evened({ from, seconds }, chosen) {
  const start = Date.parse(from);
  const step = seconds * 1000;
  const first = Math.round((chosen.from - start) / step);
  const last = first + Math.max(1, Math.round((chosen.to - chosen.from) / step));
  const even = { from: start + first * step, to: start + last * step };
  return even.from === chosen.from && even.to === chosen.to ? chosen : even;
}

/** The events of a stretch. While it is scrubbed, the last ones that are known stay. */
function Stretch({ app, found, chosen, onChoose, filter }) {
  const [state, setState] = useState({ events: null, error: null });
  useEffect(() => {
    const given = new AbortController();
    const timer = setTimeout(async () => {
      const range = { from: moment(chosen.from), to: moment(chosen.to - 0.001), filter, limit: MOST };
      try {
        setState({ events: await app.http.get("/events", range, { signal: given.signal }), error: null });
      } catch (error) {
        if (!given.signal.aborted) setState({ events: null, error });
      }
    }, 120);
    return () => {
      clearTimeout(timer);
      given.abort();
    };
  }, [chosen.from, chosen.to, filter, found]);
  const { events, error } = state;
  const number = useMemo(() => inside(found, chosen), [found, chosen]);
  const precise = { millis: found.seconds < 1 };
  return html`<section class="stretch" aria-label="Events of the stretch">
    <header class="stretch-head">
      <h2>${several(number, filter ? "match" : "event", filter ? "matches" : "events")}</h2>
      <span class="muted num">${clock(chosen.from, precise)} – ${clock(chosen.to, precise)}</span>
      ${events?.length >= MOST && html`<${Badge}>the first ${count(MOST)}<//>`}
      <span class="spacer"></span>
      <${Play} found=${found} chosen=${chosen} onChoose=${onChoose} />
      <${Button} small icon="tester" onClick=${() => app.go("tester", { filter })}>Test the filter<//>
    </header>
    <${Problem} error=${error} />
    ${events?.length === 0 && html`<p class="muted">Nothing ${filter ? "matched" : "happened"} then. Choose another stretch.</p>`}
    ${events?.length > 0 && html`<${EventList} app=${app} events=${events} label="Events" />`}
  </section>`;
}

function inside({ from, seconds, counts, matched }, chosen) {
  const start = Date.parse(from);
  const first = Math.round((chosen.from - start) / seconds / 1000);
  const last = Math.round((chosen.to - start) / seconds / 1000);
  return (matched ?? counts).slice(Math.max(0, first), Math.max(0, last)).reduce((sum, each) => sum + each, 0);
}
