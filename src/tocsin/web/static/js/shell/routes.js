// The panels, in the order of the navigation. `key` after `g` goes there.

export const ROUTES = [
  { path: "live", label: "Live", key: "l", load: () => import("../panels/live.js") },
  { path: "alerts", label: "Alerts", key: "a", load: () => import("../panels/alerts.js") },
  { path: "consumers", label: "Consumers", key: "c", load: () => import("../panels/consumers.js") },
  { path: "tester", label: "Tester", key: "t", load: () => import("../panels/tester.js") },
  { path: "definitions", label: "Definitions", key: "d", load: () => import("../panels/definitions.js") },
  { path: "past", label: "Past", key: "p", load: () => import("../panels/past.js") },
  { path: "pipeline", label: "Pipeline", key: "i", load: () => import("../panels/pipeline.js") },
  { path: "peers", label: "Peers", key: "e", load: () => import("../panels/peers.js") },
];
