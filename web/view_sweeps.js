// SPDX-License-Identifier: Apache-2.0
// Sweeps, and the trials of one, best first.

import { get, post } from './api.js';
import { el, empty, note, number, panel, pill, table } from './dom.js';

const COMPARED = 8;

export async function sweepsView(page) {
  const body = el('div');

  async function refresh() {
    const { sweeps } = await get('/v1/sweeps', page.signal);
    if (!sweeps.length) {
      body.replaceChildren(empty('No sweeps yet: tandem submit job.yaml --sweep sweep.yaml'));
      return;
    }
    body.replaceChildren(panel(table({ rows: true }, ['Sweep', 'State', 'Search', 'Trials', 'Best'],
      sweeps.map((s) => el('tr.row', {},
        el('td.name', {}, el('a', { href: `#/sweep/${s.id}` }, `${s.id}  ${s.name}`)),
        el('td.pill', {}, pill(s.state)),
        el('td', {}, s.search),
        el('td', { 'data-label': 'trials' }, `${s.finished} of ${s.total}`),
        el('td', { 'data-label': s.metric }, s.best ? number(s.best.value) : ''))))));
  }

  await page.live(refresh);
  page.show('Sweeps', el('div.head', {}, el('h1', {}, 'Sweeps')), body);
}

function trialRow(t, names, best) {
  return el(best ? 'tr.best' : 'tr', {},
    el('td', {}, el('a', { href: `#/job/${t.job}` }, String(t.job))),
    el('td', {}, pill(t.state)),
    el('td.n', {}, number(t.value)),
    el('td.n', {}, number(t.step)),
    names.map((n) => el('td.n', {}, String(t.parameters[n] ?? ''))));
}

export async function sweepView(page, id) {
  const body = el('div');

  async function refresh() {
    const s = await get(`/v1/sweeps/${id}`, page.signal);
    const names = [...new Set(s.trials.flatMap((t) => Object.keys(t.parameters)))];
    const sign = s.goal === 'min' ? 1 : -1;
    const worth = (t) => (Number.isFinite(t.value) ? sign * t.value : Infinity);
    const trials = s.trials.slice().sort((a, b) => worth(a) - worth(b) || a.job - b.job);
    const best = trials.slice(0, COMPARED).map((t) => t.job).join(',');
    const cancel = () => post(`/v1/sweeps/${id}/cancel`).then(page.refresh, (e) => note(e.message));
    body.replaceChildren(
      el('div.head', {}, el('h1', {}, `Sweep ${s.id}  ${s.name}`), pill(s.state),
        el('span.sub', {},
          `${s.search}, ${s.finished} of ${s.total} trials, ${s.goal} of ${s.metric}`),
        el('div.actions', {},
          trials.length > 1
            ? el('a.button', { href: `#/compare/${best}` }, 'Compare the best') : null,
          s.state === 'running'
            ? el('button.danger', { type: 'button', onclick: cancel }, 'Cancel') : null)),
      panel(table({}, ['Job', 'State', `#${s.metric}`, '#Step', ...names.map((n) => `#${n}`)],
        trials.map((t, i) => trialRow(t, names, i === 0 && Number.isFinite(t.value))))));
  }

  await page.live(refresh);
  page.show(`Sweep ${id}`, body);
}
