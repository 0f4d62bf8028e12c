// SPDX-License-Identifier: Apache-2.0
// The dashboard: pages by the part of the address after #, one stream of events for all of them,
// keys, light and dark.

import { api, events } from './api.js';
import { empty, note } from './dom.js';
import { compareView } from './view_compare.js';
import { jobView } from './view_job.js';
import { jobsView, marked, queueView } from './view_jobs.js';
import { sweepsView, sweepView } from './view_sweeps.js';
import { workersView } from './view_workers.js';

const ROUTES = [
  [/^\/jobs$/, jobsView],
  [/^\/queue$/, queueView],
  [/^\/workers$/, workersView],
  [/^\/sweeps$/, sweepsView],
  [/^\/sweep\/(\d+)$/, sweepView],
  [/^\/job\/(\d+)$/, jobView],
  [/^\/compare\/([\d,]+)$/, (page, ids) => compareView(page, unique(ids).slice(0, 8))],
];
const unique = (ids) => [...new Set(ids.split(','))].filter(Boolean);
const main = document.getElementById('main');
const link = document.getElementById('link');
let current = null, opening = null; // the page, and the promise that it is shown
const listeners = new Set();

// What a view may use; everything it starts ends when another page is opened.
class Page {
  constructor(query) {
    this.query = query;
    this.control = new AbortController();
    this.signal = this.control.signal;
    this.ends = [];
  }

  show(title, ...nodes) {
    if (this.signal.aborted) return;
    document.title = `${title} · Tandem`;
    main.replaceChildren(...nodes);
    main.inert = false;
  }

  // The address of what the page shows now, where it changes by itself.
  setAddress(hash) {
    if (!this.signal.aborted && hash !== location.hash) history.pushState(null, '', hash);
  }

  // Calls fn now, and again soon after any job changes; never twice at a time, so that an older
  // answer does not replace a newer one. this.refresh() is the same at once.
  async live(fn) {
    let timer = null, running = false, again = false;
    this.refresh = async () => {
      again = true;
      if (running) return;
      running = true;
      try {
        while (again && !this.signal.aborted) {
          again = false;
          await fn();
        }
      } finally {
        running = false;
      }
    };
    const quietly = () => { timer = null; this.refresh().catch(() => {}); };
    // First: nothing that happens from now on is missed.
    this.onEvent((kind) => {
      if (kind !== 'log' && kind !== 'metrics') timer ??= setTimeout(quietly, 400);
    });
    this.ends.push(() => clearTimeout(timer));
    await this.refresh();
  }

  // Every event of every job; "connected" when some may have been missed.
  onEvent(fn) {
    listeners.add(fn);
    this.ends.push(() => listeners.delete(fn));
  }

  every(ms, fn) {
    const timer = setInterval(() => {
      if (!document.hidden) Promise.resolve(fn()).catch(() => {});
    }, ms);
    this.ends.push(() => clearInterval(timer));
  }

  close() {
    this.control.abort();
    for (const end of this.ends) end();
  }
}

function notify(kind, event) {
  for (const listener of listeners) listener(kind, event);
}

function linkState(live) {
  // What happened while there was no connection is in no event.
  if (live && !link.classList.contains('live')) notify('connected', {});
  link.className = `link ${live ? 'live' : 'lost'}`;
  link.textContent = live ? 'live' : 'connecting';
}

// Until the page is there, the one before it is still seen, but takes no input: it would be lost.
async function open() {
  const [path, query = ''] = (location.hash.slice(1) || '/jobs').split('?');
  const route = ROUTES.find(([pattern]) => pattern.test(path));
  current?.close();
  const page = current = new Page(query);
  main.inert = true;
  for (const a of document.querySelectorAll('nav a')) {
    const one = a.getAttribute('href').slice(1).replace(/s$/, ''); // "/job" is a page of "/jobs"
    if (path.startsWith(one)) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current');
  }
  if (!route) {
    page.show('Not found', empty('There is no such page.'));
    return;
  }
  try {
    await route[1](page, ...path.match(route[0]).slice(1));
  } catch (e) {
    if (!page.signal.aborted) page.show('Problem', empty(e.message));
  }
}

// At once, so that keys pressed after it are for the new page; hashchange comes later.
function go(hash) {
  if (hash === location.hash) return;
  history.pushState(null, '', hash);
  opening = open();
}

// ---- keys ----

function rows() {
  return [...document.querySelectorAll('tr.row')];
}

function move(by) {
  const all = rows(), at = all.findIndex((r) => r.classList.contains('at'));
  const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))];
  for (const r of all) r.classList.toggle('at', r === next);
  next?.scrollIntoView({ block: 'nearest' });
}

// Keys for what the page has: they wait for it.
const IN_PAGE = {
  j: () => move(1),
  k: () => move(-1),
  Enter: () => document.querySelector('tr.at .name a')?.click(),
  x: () => document.querySelector('tr.at input[type=checkbox]')?.click(),
  c: () => { if (marked.size > 1) go(`#/compare/${[...marked].join(',')}`); },
  '/': () => document.getElementById('filter')?.focus(),
};

const KEYS = {
  1: () => go('#/jobs'),
  2: () => go('#/queue'),
  3: () => go('#/workers'),
  4: () => go('#/sweeps'),
  u: () => go('#/jobs'),
  t: () => theme(!document.documentElement.classList.contains('dark')),
  '?': () => document.getElementById('keys').showModal(),
};

document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector('dialog[open]')) return;
  // Fields take all keys, buttons and links only what presses them.
  if (e.target.closest('input:not([type=checkbox]), select, textarea')) {
    if (e.key === 'Escape') e.target.blur();
    return;
  }
  if (e.key === 'Enter' && e.target.closest('button, a')) return;
  if (KEYS[e.key]) {
    e.preventDefault();
    KEYS[e.key]();
  } else if (IN_PAGE[e.key]) {
    e.preventDefault();
    const page = current;
    if (!main.inert) IN_PAGE[e.key]();
    else opening.then(() => { if (page === current) IN_PAGE[e.key](); });
  }
});

// ---- light and dark ----

function theme(dark) {
  document.documentElement.classList.toggle('dark', dark);
  localStorage.setItem('dark', dark ? '1' : '0');
}

const kept = localStorage.getItem('dark');
theme(kept === null ? matchMedia('(prefers-color-scheme: dark)').matches : kept === '1');
if (kept === null) localStorage.removeItem('dark');
document.getElementById('theme').addEventListener('click', KEYS.t);
document.getElementById('help').addEventListener('click', KEYS['?']);

// ---- token ----

let asking = null;
api.unauthorized = () => {
  asking ??= new Promise((done) => {
    const dialog = document.getElementById('login'), field = document.getElementById('token');
    if (sessionStorage.getItem('token')) note('The service does not know this token.');
    dialog.addEventListener('close', () => {
      sessionStorage.setItem('token', field.value);
      field.value = '';
      asking = null;
      done();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
};

addEventListener('hashchange', () => { opening = open(); });
const forever = new AbortController().signal;
opening = open();
opening
  .then(() => events((last) => `/v1/events?after=${last ?? -1}`, forever,
    (kind, data) => notify(kind, JSON.parse(data)), linkState))
  .catch((e) => note(e.message));
