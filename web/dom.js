// SPDX-License-Identifier: Apache-2.0
// Elements, and numbers and times as people write them. Text is always set as text, never parsed:
// what jobs are called cannot become part of the page.

export function el(name, attributes = {}, ...children) {
  const at = name.split('.');
  const node = document.createElement(at[0] || 'div');
  if (at.length > 1) node.className = at.slice(1).join(' ');
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (key === 'width%') node.style.width = `${value}%`;
    else node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

export function svg(name, attributes = {}, text) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

export const pill = (state) => el(`span.state.${state}`, {}, state);

export const panel = (...children) => el('div.panel', {}, ...children);

// Titles that begin with # stand above numbers. `rows`: on a phone each row is a card.
export function table({ rows }, titles, body) {
  const head = titles.map((t) => (t.startsWith('#')
    ? el('th.n', { scope: 'col' }, t.slice(1)) : el('th', { scope: 'col' }, t)));
  return el(rows ? 'table.rows' : 'table', {}, el('thead', {}, el('tr', {}, head)),
    el('tbody', {}, body));
}

export const empty = (text) => el('p.empty', {}, text);

export function duration(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  const two = (v) => String(Math.floor(v)).padStart(2, '0');
  if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${two(s / 60 % 60)} min`;
  return `${Math.round(s / 86400)} days`;
}

export function ago(ms) {
  return ms ? `${duration(Date.now() - ms)} ago` : '';
}

export function clock(ms) {
  return ms ? new Date(ms).toLocaleString([], { dateStyle: 'medium', timeStyle: 'medium' }) : '';
}

export function number(v) {
  if (v === null || v === undefined || Number.isNaN(v)) return '–';
  if (typeof v !== 'number') return String(v);
  const a = Math.abs(v);
  if (Number.isInteger(v) && a < 1e7) return v.toLocaleString('en');
  if (a !== 0 && (a < 1e-3 || a >= 1e7)) return v.toExponential(2);
  return v.toPrecision(4).replace(/\.?0+$/, '');
}

// Short enough for an axis: 2.5M.
export function short(v) {
  const a = Math.abs(v);
  for (const [unit, size] of [['G', 1e9], ['M', 1e6], ['k', 1e4]]) {
    if (a >= size) return `${+(v / (unit === 'k' ? 1e3 : size)).toPrecision(3)}${unit}`;
  }
  return number(v);
}

export function bytes(n) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) { n /= 1000; i++; }
  return `${i ? n.toFixed(n < 10 ? 2 : 1) : n} ${units[i]}`;
}

// How long a job has been doing what it does, or how long it ran.
export function jobTime(job) {
  const now = Date.now();
  if (job.finished_ms) {
    return job.started_ms ? duration(job.finished_ms - job.started_ms) : '';
  }
  if (job.state === 'running') return duration(now - job.started_ms);
  return `waits ${duration(now - job.submitted_ms)}`;
}

let noteTimer;
export function note(message) {
  const box = document.getElementById('note');
  box.textContent = message;
  box.classList.add('shown');
  clearTimeout(noteTimer);
  noteTimer = setTimeout(() => box.classList.remove('shown'), 6000);
}
