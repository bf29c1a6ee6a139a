// Search: a name, a duration, a place.
//
//   load            regions whose name contains the text          sm 17     that SM
//   load >2us       the longer ones of them                       launch 3  that launch
//   >=1us <2us      any region, by duration                       block 0,8 that block (blocks.js); also warp 3
//   attn            if no region matches: kernels whose name contains the text
//
// Other records are faded; Enter goes to the next match, first on this SM.

const PLACE_WORDS = new Set(["sm", "launch", "warp"]);

/** Parse a search text. */
function parseQuery(text) {
  const query = {
    text,
    names: new Set(),
    words: "",
    least: 0,
    most: Infinity,
    kernels: null,
    block: null,
    warp: null,
    sm: null,
    launch: null,
  };
  const rest = [];
  const spread = text.replace(/([<>]=?)\s+/g, "$1").trim();
  const tokens = spread ? spread.split(/\s+/) : [];
  for (let at = 0; at < tokens.length; at++) {
    const limit = /^([<>]=?)(.+)$/.exec(tokens[at]);
    const ns = limit ? parseTime(limit[2]) : NaN;
    const place = /^(sm|launch|warp)[:#]?(\d+)$/i.exec(tokens[at]);
    const word = tokens[at].toLowerCase();
    const joined = /^block:?([\d#].*)$/i.exec(tokens[at]);
    const blocks = parseBlocks(joined ? joined[1] : word === "block" ? (tokens[at + 1] ?? "") : "");
    if (!Number.isNaN(ns)) {
      // > excludes equality
      if (limit[1][0] === ">") query.least = limit[1] === ">" ? ns * (1 + 1e-12) : ns;
      else query.most = limit[1] === "<" ? ns * (1 - 1e-12) : ns;
    } else if (place) query[place[1].toLowerCase()] = Number(place[2]);
    else if (blocks) {
      query.block = [...(query.block ?? []), blocks];
      if (!joined) at++;
    } else if (PLACE_WORDS.has(word) && /^\d+$/.test(tokens[at + 1] ?? "")) query[word] = Number(tokens[++at]);
    else rest.push(tokens[at]);
  }
  query.words = rest.join(" ").toLowerCase();
  model.about.names.forEach((name, index) => {
    if (name.toLowerCase().replace(/\s+/g, " ").includes(query.words)) query.names.add(index);
  });
  const kernels = model.about.kernels
    .map((name, kernel) => (name.toLowerCase().includes(query.words) ? kernel : -1))
    .filter((kernel) => kernel >= 0);
  if (query.words && !query.names.size && kernels.length) {
    query.kernels = new Set(kernels);
    model.about.names.forEach((_, index) => query.names.add(index));
  }
  query.empty = !query.words && !query.least && query.most === Infinity && query.block === null && query.warp === null;
  return query;
}

/** Predicates for full color: by name, and by record (index -1 in a thinned line: by name only).
 * exact: records must be tested one by one. */
function matcher() {
  const { query, focus } = view;
  const active = query && !query.empty ? query : null;
  // A focused name is highlighted in a list; others are not faded.
  const name = (index, listed = false) =>
    (!active || active.names.has(index)) && (listed || focus === null || focus === index);
  const slice = (line, index, code) => {
    if (!name(nameOf(code))) return false;
    if (!active) return true;
    if (active.kernels && !active.kernels.has(model.launches.kernel[model.warps.launch[line.warp]])) return false;
    if (active.warp !== null && model.warps.warp[line.warp] !== active.warp) return false;
    if (active.block !== null && !active.block.some((axes) => inBlocks(line.warp, axes))) return false;
    if (index < 0 || (!active.least && active.most === Infinity)) return true;
    const ns = line.dur[index] * model.warps.pace[line.warp];
    return kindOf(code) === SPAN && ns >= active.least && ns <= active.most;
  };
  const exact = active !== null && (active.least > 0 || active.most < Infinity);
  return { name, slice, exact, all: !active && focus === null };
}

function setUpSearch() {
  const input = byId("query");
  input.oninput = () => applyQuery(input.value);
  byId("search").onsubmit = (event) => event.preventDefault();
  input.onkeydown = (event) => {
    if (event.key === "Escape") {
      if (input.value) search("");
      input.blur();
    }
    if (event.key === "Enter") nextMatch(event.shiftKey ? -1 : 1);
    event.stopPropagation();
  };
  on(countMatches, "query", "place", "focus");
}

/** Search for a text, as if typed into the box. */
function search(text) {
  byId("query").value = text;
  applyQuery(text);
}

function applyQuery(text) {
  view.query = text.trim() ? parseQuery(text) : null;
  changed("query");
}

async function countMatches() {
  const out = byId("found");
  if (!view.query || view.query.empty) {
    out.textContent = view.query && (view.query.sm !== null || view.query.launch !== null) ? "Enter: go there" : "";
    return;
  }
  const { place, query } = view;
  if (!query.names.size) {
    out.textContent = "no such region";
    return;
  }
  const found = await placeSlices(place);
  if (query !== view.query || place !== view.place) return;
  const matches = matcher();
  let count = 0;
  eachSlice(found, (line, index) => {
    if (matches.slice(line, index, line.code[index])) count++;
  });
  out.textContent = `${roughly(count)} on ${placeText(place)}`;
}

/** Select the next or previous match in time, first on this SM. */
async function nextMatch(direction) {
  const { query } = view;
  if (query && query.launch !== null) return showLaunch(query.launch);
  if (query && query.sm !== null) {
    const place = placeOf(query.sm, view.place);
    if (place < 0) return say(`no SM ${query.sm} in this recording`);
    choosePlace(place);
    if (query.empty) return undefined;
  }
  const count = model.about.places.length;
  const matches = matcher();
  const only = query && query.sm !== null ? 1 : count + 1;
  for (let step = 0; step < only; step++) {
    const place = (((view.place + direction * step) % count) + count) % count;
    const found = await placeSlices(place);
    if (query !== view.query) return undefined;
    const hit = matchAfter(found, matches, direction, step === 0 ? view.selection : null);
    if (!hit) continue;
    choosePlace(place);
    if (place !== warpsView.found?.place) await loadWarps();
    select(hit.line, hit.index);
    showSlice(hit);
    return undefined;
  }
  return say("nothing matches");
}

/** The match after the selection, ordered by begin, warp, line. */
function matchAfter(found, matches, direction, from) {
  const rank = (line, index) => [timesOf(line, index)[0], line.warp, line.number, index];
  const order = (a, b) => a.reduce((sum, value, at) => sum || value - b[at], 0) * direction;
  const start = from && model.warps.place[from.line.warp] === found.place ? rank(from.line, from.index) : null;
  let best = null,
    bestRank = null;
  eachSlice(found, (line, index) => {
    if (!matches.slice(line, index, line.code[index])) return;
    const mine = rank(line, index);
    if (start && order(mine, start) <= 0) return;
    if (!best || order(mine, bestRank) < 0) [best, bestRank] = [{ line, index }, mine];
  });
  return best;
}

/** Scroll to a record; zoom only if it would be too small or too large. */
function showSlice({ line, index }) {
  const [begin, end] = timesOf(line, index);
  const span = view.end - view.begin,
    part = (end - begin) / span;
  if (part < 0.004 || part > 0.9) frame(begin, end, 4);
  else if (begin < view.begin || end > view.end) glide((begin + end - span) / 2, (begin + end + span) / 2, 200);
  showSelectedRow();
}

function showLaunch(launch) {
  const { begin, end } = model.launches;
  if (!(launch >= 0 && launch < begin.length) || begin[launch] > end[launch])
    return say(`no launch ${launch} in this recording`);
  frame(begin[launch], end[launch], 0.03);
  return say(launchText(launch));
}
