// SPDX-License-Identifier: Apache-2.0
// What a run's metrics say: lines of metrics.jsonl (begin, step, eval, checkpoint, ranks, end) as
// series for charts. Lines of other programs count too: any number in a line without a kind
// becomes a series by its name.

export class Run {
  constructor() {
    this.series = new Map(); // "loss" -> [[step, value]...]
    this.evals = new Map();  // "accuracy" -> [[step, value]...]
    this.begin = null;
    this.end = null;
    this.ranks = null;       // the last line about ranks
    this.step = 0;
    this.checkpoints = 0;
    this.best = null;
  }

  add(line) {
    let e;
    try {
      e = JSON.parse(line);
    } catch {
      return false;
    }
    if (typeof e !== 'object' || e === null) return false;
    const step = typeof e.step === 'number' ? e.step : this.step + 1;
    this.step = Math.max(this.step, step);
    switch (e.kind) {
      case 'begin':
        if (e.step <= 1) { this.series.clear(); this.evals.clear(); }
        this.begin = e;
        break;
      case 'step':
        this.#put(this.series, 'loss', step, e.loss);
        this.#put(this.series, 'lr', step, e.lr);
        this.#put(this.series, 'grad_norm', step, e.grad_norm);
        if (e.seconds > 0) {
          this.#put(this.series, 'samples/s', step, e.samples / e.seconds);
          this.#put(this.series, 'data wait %', step, e.data_wait / e.seconds * 100);
        }
        break;
      case 'eval':
        for (const [name, value] of Object.entries(e.metrics ?? {})) {
          const of = e.part && e.part !== 'valid' ? `${e.part} ` : '';
          this.#put(this.evals, of + name, step, value);
        }
        if (e.best) this.best = { step, metrics: e.metrics };
        break;
      case 'checkpoint': this.checkpoints++; break;
      case 'ranks': this.ranks = e; break;
      case 'order': break; // of messages between ranks, for replays
      case 'end': this.end = e; break;
      default:
        for (const [name, value] of Object.entries(e.metrics ?? e)) {
          const v = typeof value === 'string' && value !== '' ? Number(value) : value;
          if (name === 'step' || name === 'time') continue;
          this.#put(this.evals, name, step, v);
        }
    }
    return true;
  }

  #put(where, name, step, value) {
    if (typeof value !== 'number') return;
    if (!where.has(name)) where.set(name, []);
    const points = where.get(name);
    // A resumed run repeats steps: the later line counts.
    while (points.length && points[points.length - 1][0] >= step) points.pop();
    points.push([step, value]);
  }

  last(name) {
    const points = this.evals.get(name) ?? this.series.get(name);
    return points?.length ? points[points.length - 1][1] : undefined;
  }

  // Measured once, as the test of a finished run: a number, not a curve.
  single(name) {
    return name.startsWith('test ') && (this.evals.get(name)?.length ?? 0) < 2;
  }

  progress() {
    return this.begin?.steps ? Math.min(1, this.step / this.begin.steps) : null;
  }

  names() {
    return [...new Set([...this.evals.keys(), ...this.series.keys()])];
  }

  // What was measured while training and in validations, as lines of one chart.
  both(name) {
    const train = this.series.get(name), valid = this.evals.get(name), out = [];
    if (train) out.push({ name: valid ? `train ${name}` : name, points: train });
    if (valid) {
      out.push({ name: train ? `valid ${name}` : name, points: valid, dots: valid.length < 60 });
    }
    return out;
  }
}
