// SPDX-License-Identifier: Apache-2.0
// Line charts as SVG: axes with round numbers, a thin line for what was measured and a thick one
// for its moving average, values under the pointer. Long series are thinned to a point per pixel.

import { el, number, short, svg } from './dom.js';

const W = 480, H = 240, LEFT = 52, RIGHT = 10, TOP = 8, BOTTOM = 24;
const MOST = W - LEFT - RIGHT;

function ticks(lo, hi, most) {
  const raw = (hi - lo) / most || 1;
  const base = 10 ** Math.floor(Math.log10(raw));
  const step = base * [1, 2, 5, 10].find((m) => base * m >= raw);
  const out = [];
  for (let v = Math.ceil(lo / step) * step; v <= hi + step * 1e-9; v += step) {
    out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  }
  return out;
}

// At most one point per pixel: the mean of those that fall on it.
function thin(points) {
  if (points.length <= MOST) return points;
  const out = [], per = points.length / MOST;
  for (let i = 0; i < MOST; i++) {
    const part = points.slice(Math.floor(i * per), Math.floor((i + 1) * per));
    if (!part.length) continue;
    out.push([part[part.length - 1][0], part.reduce((sum, p) => sum + p[1], 0) / part.length]);
  }
  return out;
}

function smooth(points) {
  const span = Math.max(1, points.length / 25), keep = span / (span + 1);
  let sum = 0, weight = 0;
  return points.map(([x, y]) => {
    sum = sum * keep + y;
    weight = weight * keep + 1;
    return [x, sum / weight];
  });
}

// The range of what is shown: a few outliers, such as the first steps, do not flatten the rest.
function range(values) {
  const sorted = values.slice().sort((a, b) => a - b);
  const at = (q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
  let lo = sorted[0], hi = sorted.length > 60 ? at(0.985) : sorted[sorted.length - 1];
  if (hi - lo < Math.abs(hi) * 1e-9 + 1e-12) { // a constant: room on both sides
    const room = Math.abs(hi) * 0.1 + 1e-6;
    lo -= room;
    hi += room;
  }
  const pad = (hi - lo) * 0.05;
  return [lo >= 0 && lo - pad < 0 ? 0 : lo - pad, hi + pad];
}

// series: [{name, points: [[x, y]...], dots}]
export function chart(title, series, options = {}) {
  const shown = series.filter((s) => s.points.length);
  const figure = el('figure.chart', { role: 'img', 'aria-label': describe(title, shown) });
  const legend = el('span.legend', {}, shown.length > 1 || options.legend
    ? shown.map((s, i) => el('span', {}, el(`i.key.c${(s.color ?? i) % 8}`), s.name)) : []);
  const tip = el('output.tip');
  const plot = svg('svg', { class: 'plot', viewBox: `0 0 ${W} ${H}` });
  figure.append(el('figcaption', {}, el('b', {}, title), legend), plot, tip);
  if (!shown.length) return figure;

  const lines = shown.map((s) => {
    const points = thin(s.points.filter((p) => Number.isFinite(p[1])));
    return { ...s, points, soft: s.dots || points.length < 30 ? points : smooth(points) };
  });
  const xs = lines.flatMap((s) => s.points.map((p) => p[0]));
  const [y0, y1] = range(lines.flatMap((s) => s.points.map((p) => p[1])));
  let x0 = Math.min(...xs), x1 = Math.max(...xs);
  if (x0 === x1) { x0 -= 1; x1 += 1; }
  const px = (x) => LEFT + (x - x0) / (x1 - x0) * (W - LEFT - RIGHT);
  const py = (y) => TOP + (1 - (Math.min(y, y1) - y0) / (y1 - y0)) * (H - TOP - BOTTOM);
  for (const y of ticks(y0, y1, 5)) {
    plot.append(svg('line', { class: 'grid', x1: LEFT, x2: W - RIGHT, y1: py(y), y2: py(y) }),
      svg('text', { x: LEFT - 6, y: py(y) + 4, 'text-anchor': 'end' }, short(y)));
  }
  for (const x of ticks(x0, x1, 6)) {
    plot.append(svg('text', { x: px(x), y: H - 6, 'text-anchor': 'middle' }, short(x)));
  }
  const at = (p) => `${px(p[0]).toFixed(1)},${py(p[1]).toFixed(1)}`;
  const path = (points) => points.map(at).join(' ');
  lines.forEach((s, i) => {
    const color = `c${(s.color ?? i) % 8}`;
    const draw = (kind, points) => plot.append(
      svg('polyline', { class: `${kind} ${color}`, points: path(points) }));
    if (s.soft !== s.points) draw('raw', s.points);
    draw('line', s.soft);
    for (const p of s.dots || s.points.length < 3 ? s.points : []) {
      plot.append(svg('circle', { class: `dot ${color}`, cx: px(p[0]), cy: py(p[1]), r: 3 }));
    }
  });
  const cursor = svg('line', { class: 'cursor', y1: TOP, y2: H - BOTTOM });
  plot.append(cursor);
  plot.addEventListener('pointermove', (e) => {
    const box = plot.getBoundingClientRect();
    const x = x0 + ((e.clientX - box.left) / box.width * W - LEFT) / (W - LEFT - RIGHT) * (x1 - x0);
    const texts = lines.map((s) => {
      const near = s.soft.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
      return { text: `${lines.length > 1 ? `${s.name}  ` : ''}${number(near[1])}`, x: near[0] };
    });
    cursor.setAttribute('x1', px(texts[0].x));
    cursor.setAttribute('x2', px(texts[0].x));
    cursor.style.visibility = 'visible';
    tip.textContent = [`step ${number(texts[0].x)}`, ...texts.map((t) => t.text)].join('\n');
    tip.style.display = 'block';
    const left = px(texts[0].x) / W * box.width + 20;
    tip.style.left = `${Math.max(4, Math.min(left, box.width - tip.offsetWidth - 4))}px`;
  });
  plot.addEventListener('pointerleave', () => {
    cursor.style.visibility = 'hidden';
    tip.style.display = 'none';
  });
  return figure;
}

function describe(title, series) {
  const last = series.map((s) => `${s.name} ${number(s.points[s.points.length - 1][1])}`);
  return `${title}: ${last.join(', ') || 'no values yet'}`;
}
