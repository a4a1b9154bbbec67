// What all panels are made of. One import for a panel: `import { html, Panel, Table, … } from "../ui.js"`.

export {
  createContext,
  h,
  html,
  render,
  useCallback,
  useContext,
  useEffect,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "../vendor/preact.js";
export {
  Badge,
  Button,
  Card,
  Copy,
  Empty,
  Loading,
  Panel,
  Priority,
  Problem,
  Segmented,
  Stat,
  Stats,
} from "./ui/bits.js";
export { Chart } from "./ui/chart.js";
export { Dialog, Drawer } from "./ui/dialogs.js";
export { EventRow, gist } from "./ui/events.js";
export { FilterBox } from "./ui/filterbox.js";
export { Icon } from "./ui/icons.js";
export { Json } from "./ui/json.js";
export { usePoll } from "./ui/poll.js";
export { Table } from "./ui/table.js";
export { Ago, Time, bytes, count, decimals, duration, instant, useTick } from "./ui/time.js";
