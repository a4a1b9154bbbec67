// Figures as they were over the last minutes, for charts. The page gathers them while it is open.

/** The last figures of something, oldest first. They outlive a panel that is closed and opened again. */
export class Series {
  constructor(most = 240) {
    this.most = most;
    this.at = [];
    this.rows = [];
  }

  /** Add figures of now. After a pause there is a gap, so that no line is drawn through what was not seen. */
  add(row, now = Date.now() / 1000) {
    const last = this.at[this.at.length - 1];
    if (last !== undefined && now - last < 0.5) return;
    if (last !== undefined && now - last > 20) this._push({}, last + 1);
    this._push(row, now);
    const over = this.at.length - this.most;
    if (over > 0) {
      this.at.splice(0, over);
      this.rows.splice(0, over);
    }
  }

  _push(row, at) {
    this.at.push(at);
    this.rows.push(row);
  }

  /** One figure over time; null where it is not known. */
  of(name) {
    return this.rows.map((row) => row[name] ?? null);
  }

  /** How much a count grows in a second. A count that falls began anew: the node was started again. */
  rate(name) {
    const values = this.of(name);
    return values.map((value, place) => {
      const before = place ? values[place - 1] : null;
      if (value === null || before === null || value < before) return null;
      return (value - before) / (this.at[place] - this.at[place - 1]);
    });
  }
}

const figures = new Series();

/** Keep the node's own figures (GET /figures); gives them back. */
export function remember(found) {
  if (found) figures.add({ ...found.node, ...found.matcher });
  return found;
}

/** The node's own figures over the last minutes. */
export const remembered = figures;
