// Search: a name, a duration, a place.
//
//   load            regions whose name has these letters          sm 17     that SM
//   load >2us       those of them that last longer                launch 3  that launch
//   >=1us <2us      any region, by its duration                   block 5   records of that block; also warp 3
//   attn            where no region has these letters: kernels whose name has
//
// What does not match is faded everywhere; Enter goes from match to match, on this SM and then on the next.

const PLACE_WORDS = new Set(["sm", "launch", "block", "warp"]);

/** What a text asks for. */
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
    const place = /^(sm|launch|block|warp)[:#]?(\d+)$/i.exec(tokens[at]);
    const word = tokens[at].toLowerCase();
    if (!Number.isNaN(ns)) {
      // a hair's breadth tells > from >=
      if (limit[1][0] === ">") query.least = limit[1] === ">" ? ns * (1 + 1e-12) : ns;
      else query.most = limit[1] === "<" ? ns * (1 - 1e-12) : ns;
    } else if (place) query[place[1].toLowerCase()] = Number(place[2]);
    else if (PLACE_WORDS.has(word) && /^\d+$/.test(tokens[at + 1] ?? "")) query[word] = Number(tokens[++at]);
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

/** What is to be shown in full colour now: by name, and by record (index -1: of a thinned line, by name alone);
 * exact: records must be looked at one by one. */
function matcher() {
  const { query, focus } = view;
  const asked = query && !query.empty ? query : null;
  // In a list of names the chosen one is marked, not alone.
  const name = (index, listed = false) =>
    (!asked || asked.names.has(index)) && (listed || focus === null || focus === index);
  const slice = (line, index, code) => {
    if (!name(nameOf(code))) return false;
    if (!asked) return true;
    if (asked.kernels && !asked.kernels.has(model.launches.kernel[model.lanes.launch[line.lane]])) return false;
    if (asked.warp !== null && model.lanes.warp[line.lane] !== asked.warp) return false;
    if (asked.block !== null && model.lanes.block[line.lane] !== asked.block) return false;
    if (index < 0 || (!asked.least && asked.most === Infinity)) return true;
    const ns = line.dur[index] * model.lanes.pace[line.lane];
    return kindOf(code) === SPAN && ns >= asked.least && ns <= asked.most;
  };
  const exact = asked !== null && (asked.least > 0 || asked.most < Infinity);
  return { name, slice, exact, all: !asked && focus === null };
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

/** Put a text into the search box, as if it had been typed. */
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
    out.textContent = view.query && (view.query.sm !== null || view.query.launch !== null) ? "Enter goes there" : "";
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

/** Select the next match in time, or the one before; first those of this SM, then of the others. */
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
    if (place !== lanesView.found?.place) await loadLanes();
    select(hit.line, hit.index);
    showSlice(hit);
    return undefined;
  }
  return say("nothing matches");
}

/** The match that begins next after the selection: by begin, then by lane, then by line. */
function matchAfter(found, matches, direction, from) {
  const rank = (line, index) => [timesOf(line, index)[0], line.lane, line.number, index];
  const order = (a, b) => a.reduce((sum, value, at) => sum || value - b[at], 0) * direction;
  const start = from && model.lanes.place[from.line.lane] === found.place ? rank(from.line, from.index) : null;
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

/** Bring a record into sight; zoom only where it would be too small or too large. */
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
