// SPDX-License-Identifier: Apache-2.0
// One job: its state, live curves, waits of its workers, log, artifacts, history.

import { del, download, events, follow, get } from './api.js';
import { chart } from './chart.js';
import { ago, bytes, clock, duration, el, empty, jobTime, note, number, pill } from './dom.js';
import { Run } from './run.js';
import { act, message, needs } from './view_jobs.js';

const SECOND = new Set(['lr', 'grad_norm', 'samples/s', 'data wait %']);

export function rankBars(ranks) {
  const parts = [['compute', 0], ['update', 2], ['comm', 1], ['wait', 4], ['data', 6]];
  const n = ranks.compute?.length ?? 0;
  const all = Array.from({ length: n }, (_, r) => parts.reduce((sum, [p]) => sum + (ranks[p]?.[r] ?? 0), 0));
  const most = Math.max(...all, 1e-12);
  return el('div', {},
    el('p.legend', {}, parts.map(([p, c]) => el('span', {}, el(`i.key.c${c}`), p))),
    el('div.panel', {}, el('table', {},
      el('thead', {}, el('tr', {}, el('th', {}, 'Rank'), el('th', {}, 'Time of a step'), el('th.n', {}, 'Waits'),
        el('th.n', {}, 'Memory'))),
      el('tbody', {}, all.map((sum, r) => el('tr', {},
        el('td', {}, String(r)),
        el('td', {}, el('div.split', { title: parts.map(([p]) => `${p} ${duration((ranks[p]?.[r] ?? 0) * 1000)}`).join(', ') },
          parts.map(([p, c]) => el(`i.c${c}`, { 'width%': 100 * (ranks[p]?.[r] ?? 0) / most })))),
        el('td.n', {}, `${number(100 * (ranks.wait?.[r] ?? 0) / (sum || 1))} %`),
        el('td.n', {}, ranks.memory?.[r] ? bytes(ranks.memory[r]) : '')))))));
}

export function curves(run) {
  const names = run.names().filter((n) => !run.single(n));
  const figures = names.filter((n) => !SECOND.has(n)).map((n) => chart(n, run.both(n)));
  figures.push(...names.filter((n) => SECOND.has(n)).map((n) => chart(n, run.both(n))));
  return figures.length ? el('div.charts', {}, figures) : empty('No metrics yet.');
}

function facts(pairs) {
  return el('dl.facts', {}, pairs.filter(([, v]) => v !== undefined && v !== null && v !== '')
    .map(([k, v]) => el('div', {}, el('dt', {}, k), el('dd', {}, v))));
}

function logPanel(page, id, members) {
  const out = el('pre.log', { tabindex: '0', 'aria-label': 'Log' });
  const stick = el('input', { type: 'checkbox' });
  stick.checked = true;
  const member = el('select', { 'aria-label': 'Member', onchange: () => start() },
    Array.from({ length: members }, (_, i) => el('option', { value: i }, `member ${i}`)));
  let stop = null;
  function start() {
    stop?.abort();
    stop = new AbortController();
    page.signal.addEventListener('abort', () => stop.abort());
    out.textContent = '';
    let pending = '';
    follow(`/v1/jobs/${id}/logs?member=${member.value}&follow=1`, stop.signal, (piece) => {
      if (!pending) {
        requestAnimationFrame(() => {
          out.append(pending);
          pending = '';
          while (out.childNodes.length > 2000) out.firstChild.remove();
          if (stick.checked) out.scrollTop = out.scrollHeight;
        });
      }
      pending += piece;
    }).catch((e) => { if (e.name !== 'AbortError') note(e.message); });
  }
  start();
  return el('section', {}, el('h2', {}, 'Log'), el('div.panel', {},
    el('div.tools', {}, members > 1 ? member : null, el('label', {}, stick, 'follow'),
      el('button', { type: 'button', onclick: () => download(`/v1/jobs/${id}/logs?member=${member.value}`, `job-${id}-${member.value}.log`).catch((e) => note(e.message)) }, 'Download')), out));
}

export async function jobView(page, id) {
  let job = await get(`/v1/jobs/${id}`, page.signal);
  const head = el('div.head'), about = el('div'), plots = el('div'), ranks = el('div'), files = el('div'), past = el('div');
  const run = new Run();
  const history = [];

  function drawHead() {
    const live = !['succeeded', 'failed', 'cancelled'].includes(job.state);
    const button = (what, label, danger) => el(danger ? 'button.danger' : 'button', {
      type: 'button',
      onclick: () => act(id, what, (a) => { if (what === 'retry') location.hash = `#/job/${a.id}`; }),
    }, label);
    head.replaceChildren(el('h1', {}, `${job.id}  ${job.name || job.algorithm || ''}`), pill(job.state),
      el('span.sub', {}, jobTime(job)),
      el('div.actions', {},
        live && job.state !== 'paused' ? button('pause', 'Pause') : null,
        job.state === 'paused' ? button('resume', 'Resume') : null,
        live ? button('cancel', 'Cancel', true) : button('retry', 'Retry'),
        live ? null : el('button.danger', {
          type: 'button',
          onclick: async () => {
            if (!confirm(`Delete job ${id} with its log and artifacts?`)) return;
            try { await del(`/v1/jobs/${id}`); location.hash = '#/jobs'; } catch (e) { note(e.message); }
          },
        }, 'Delete')));
    const progress = run.progress();
    about.replaceChildren(
      progress !== null && live ? el('div.meter', { role: 'progressbar', 'aria-valuenow': Math.round(progress * 100) },
        el('i', { 'width%': progress * 100 })) : '',
      facts([['Message', message(job)], ['User', job.user], ['Tracker', job.tracker], ['Needs', needs(job)],
        ['Submitted', clock(job.submitted_ms)], ['Waited', job.launched_ms ? duration(job.launched_ms - job.submitted_ms) : ''],
        ['Attempt', job.attempt > 1 ? `${job.attempt} (${job.failures} failed)` : ''],
        ['Step', run.step ? `${number(run.step)}${run.begin?.steps ? ` of ${number(run.begin.steps)}` : ''}` : ''],
        ['Best', run.best ? Object.entries(run.best.metrics).map(([k, v]) => `${k} ${number(v)}`).join(', ') : ''],
        ...run.names().filter((n) => run.single(n) && run.end).map((n) => [n, number(run.last(n))]),
        ['Checkpoints', run.checkpoints || ''],
        ['Labels', Object.entries(job.labels ?? {}).map(([k, v]) => `${k}=${v}`).join(' ')],
        ['Sweep', job.sweep ? el('a', { href: `#/sweep/${job.sweep}` }, String(job.sweep)) : '']]));
  }

  let drawn = false;
  function drawRun() {
    if (drawn) return;
    drawn = true;
    setTimeout(() => {
      drawn = false;
      plots.replaceChildren(el('h2', {}, 'Curves'), curves(run));
      ranks.replaceChildren(...(run.ranks ? [el('h2', {}, 'Workers and their waits'), rankBars(run.ranks)] : []));
      drawHead();
    }, 250);
  }

  async function drawFiles() {
    const answer = await get(`/v1/jobs/${id}/artifacts`, page.signal).catch(() => ({ artifacts: [] }));
    files.replaceChildren(el('h2', {}, 'Artifacts'), answer.artifacts.length
      ? el('div.panel', {}, el('table', {}, el('tbody', {}, answer.artifacts.map((a) => el('tr', {},
        el('td.name', {}, el('a', {
          href: `/v1/jobs/${id}/artifacts/${a.name}`,
          onclick: (e) => {
            e.preventDefault();
            download(`/v1/jobs/${id}/artifacts/${a.name.split('/').map(encodeURIComponent).join('/')}`, a.name).catch((x) => note(x.message));
          },
        }, a.name)),
        el('td.n', {}, bytes(a.nbytes)), el('td.mono', { title: a.sha256 }, a.sha256.slice(0, 12)))))))
      : el('div.panel', {}, empty('None yet.')));
  }

  function drawPast() {
    past.replaceChildren(el('h2', {}, 'History'), el('div.panel', {}, el('table', {}, el('tbody', {},
      history.slice(-60).reverse().map((e) => el('tr', {}, el('td', { title: clock(e.time_ms) }, ago(e.time_ms)),
        el('td', {}, e.kind === 'state' ? pill(e.state) : e.kind), el('td.wide', {}, e.text ?? '')))))));
  }

  drawHead();
  plots.replaceChildren(el('h2', {}, 'Curves'), empty('No metrics yet.'));
  page.show(`Job ${id}`, head, about, plots, ranks, el('div.two', {},
    logPanel(page, id, job.resources?.members ?? 1), el('section', {}, files, past)),
  specPanel(job));
  drawPast();
  await drawFiles();

  events((last) => `/v1/jobs/${id}/metrics?follow=1&from=${last ?? 0}`, page.signal, (kind, data) => {
    if (run.add(data)) drawRun();
  }).catch((e) => note(e.message));
  events((last) => `/v1/jobs/${id}/events?after=${last ?? 0}`, page.signal, async (kind, data) => {
    const e = JSON.parse(data);
    if (e.kind === 'log' || e.kind === 'metrics') return;
    history.push(e);
    drawPast();
    if (e.kind === 'artifact') drawFiles();
    job = await get(`/v1/jobs/${id}`, page.signal);
    drawHead();
  }, page.linkState).catch((e) => note(e.message));
  page.every(5000, drawHead);
}

function specPanel(job) {
  const { job: file, ...rest } = job.spec ?? {};
  const text = JSON.stringify(rest, null, 2) + (file ? `\n\n# job file\n${file}` : '');
  return el('section', {}, el('h2', {}, 'As submitted'),
    el('div.panel', {}, el('pre.log', { tabindex: '0' }, text)));
}
