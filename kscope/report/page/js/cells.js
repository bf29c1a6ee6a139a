// The image of all SMs over time, one pixel row per SM: painted from the levels computed at export, or from the records
// when zoomed in further than their finest bins.

const NOTHING = 255,
  EXACT_FROM = 2.5; // pixels per bin of the finest level

/** Paint the image, one pixel row per SM. */
function paintCells(out, pixels, count) {
  out.fill(0);
  const { levels } = model.about;
  const span = view.end - view.begin;
  // the coarsest level whose bins are no wider than a pixel, else the finest
  let level = levels.findIndex((bins) => (span / model.span) * bins >= pixels);
  if (level < 0) level = levels.length - 1;
  const exact = pixels / ((span / model.span) * levels.at(-1)) > EXACT_FROM;
  if (exact) readRest();
  const searched = searchedNames();
  for (let place = 0; place < count; place++) {
    if (exact && ready.has(place)) paintExact(out, place, pixels, searched);
    else if (searched?.list.every((name) => name < model.about.shares)) paintShares(out, place, pixels, searched.list);
    else paintLevel(out, place, pixels, level, searched);
  }
}

/** The searched names as a list and a mask; null without a search. Rare names share a code. */
function searchedNames() {
  const matches = matcher();
  if (view.shade === "alive" || matches.all) return null;
  const list = model.about.names.map((_, index) => index).filter((index) => matches.name(index));
  if (list.length === model.about.names.length) return null;
  const mask = new Uint8Array(256);
  for (const name of list) mask[Math.min(name, model.about.far)] = 1;
  return { list, mask };
}

/** Paint an SM from a precomputed level. */
function paintLevel(out, place, pixels, level, searched) {
  const bins = model.about.levels[level];
  const { name, busy, alive } = model.heat[level];
  const first = (view.begin / model.span) * bins,
    step = ((view.end - view.begin) / model.span) * (bins / pixels);
  for (let x = 0, to = place * pixels; x < pixels; x++, to++) {
    const cell = place * bins + Math.min(bins - 1, Math.floor(first + (x + 0.5) * step));
    const hit = name[cell] !== NOTHING && (!searched || searched.mask[name[cell]]);
    out[to] = cellColor(hit ? name[cell] : NOTHING, busy[cell] / 255, alive[cell] / 255);
  }
}

/** Paint an SM during a search: the match with the most warps, shaded by their share. */
function paintShares(out, place, pixels, searched) {
  const { levels, shares: names } = model.about;
  const bins = levels[0];
  const { shares, alive } = model.heat[0];
  const first = (view.begin / model.span) * bins,
    step = ((view.end - view.begin) / model.span) * (bins / pixels);
  for (let x = 0, to = place * pixels; x < pixels; x++, to++) {
    const bin = Math.min(bins - 1, Math.floor(first + (x + 0.5) * step));
    let best = NOTHING,
      most = 0,
      sum = 0;
    for (const name of searched) {
      const share = shares[(place * names + name) * bins + bin];
      sum += share;
      if (share > most) [most, best] = [share, name];
    }
    out[to] = cellColor(best, sum / 255, alive[place * bins + bin] / 255);
  }
}

function cellColor(name, busy, alive) {
  if (view.shade === "alive") {
    if (!alive) return 0;
    const [r, g, b] = colors.dark ? [118, 165, 255] : [47, 107, 222];
    return ((Math.round(40 + 215 * alive) << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }
  if (name === NOTHING) return alive ? (colors.dark ? 0x16ffffff : 0x0e000000) >>> 0 : 0;
  const opacity = Math.round(60 + 195 * Math.sqrt(Math.min(1, busy)));
  return ((opacity << 24) | colors.packed[Math.min(name, colors.packed.length - 1)]) >>> 0;
}

/** Paint an SM from its records: each pixel shows the most frequent innermost region of its warps. */
function paintExact(out, place, pixels, searched) {
  const found = ready.get(place);
  const { warps } = model;
  const names = Math.min(model.about.names.length, model.about.far + 1);
  const votes = (overview.votes =
    overview.votes?.length === pixels * names ? overview.votes.fill(0) : new Uint8Array(pixels * names));
  const alive = new Uint8Array(pixels);
  const top = new Int16Array(pixels);
  const perNs = pixels / (view.end - view.begin);
  const pixel = (ns) => Math.min(Math.max(Math.round((ns - view.begin) * perNs), 0), pixels);
  for (const row of found.rows) {
    for (let at = warpAfter(row, view.begin); at < row.warps.length; at++) {
      const { warp, lines } = row.warps[at];
      if (warps.start[warp] > view.end) break;
      const [a, b] = [pixel(warps.start[warp]), Math.max(pixel(warps.end[warp]), pixel(warps.start[warp]) + 1)];
      top.fill(-1, a, b);
      for (const line of lines) paintTop(line, top, pixel);
      for (let x = a; x < b && x < pixels; x++) {
        if (alive[x] < 255) alive[x]++;
        if (top[x] >= 0 && votes[x * names + top[x]] < 255) votes[x * names + top[x]]++;
      }
    }
  }
  const { rows } = model.about;
  for (let x = 0, to = place * pixels; x < pixels; x++, to++) {
    let best = -1,
      most = 0,
      sum = 0;
    for (let name = 0; name < names; name++) {
      if (searched && !searched.mask[name]) continue;
      const count = votes[x * names + name];
      sum += count;
      if (count > most) [most, best] = [count, name];
    }
    out[to] = cellColor(best < 0 ? NOTHING : best, sum / rows, alive[x] / rows);
  }
}

function paintTop(line, top, pixel) {
  const { start, pace } = model.warps;
  const [at, rate] = [start[line.warp], pace[line.warp]];
  const last = (view.end - at) / rate;
  for (let i = firstAfter(line.end, line.from, line.to, (view.begin - at) / rate); i < line.to; i++) {
    const begin = line.end[i] - line.dur[i];
    if (begin > last) break;
    if (kindOf(line.code[i]) !== SPAN) continue;
    const a = pixel(at + begin * rate);
    top.fill(Math.min(nameOf(line.code[i]), model.about.far), a, Math.max(pixel(at + line.end[i] * rate), a + 1));
  }
}
