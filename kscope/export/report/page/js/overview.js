// Every SM over time. Far away it is drawn from the levels that were computed at export; closer than their bins, from
// the records themselves, SM by SM as they are unpacked.

const overview = { surface: null, image: null, legend: [] };
const STRIP = 14, NOTHING = 255, EXACT_FROM = 2.5; // pixels per bin of the finest level
const MOST_HIGH = 26; // pixels of an SM

function setUpOverview() {
  overview.surface = new Surface(document.querySelector("#overview canvas"));
  // few SMs leave the room to their warps
  const wanted = RULER + STRIP + 38 + Math.max(3, model.about.places.length) * MOST_HIGH;
  document.querySelector("main").style.setProperty("--overview", `${wanted}px`);
  on(drawOverview, "window", "place", "query", "focus", "theme", "size");
  on(drawLegend, "query", "focus", "theme");
  const buttons = document.querySelectorAll("#shade button");
  for (const button of buttons) {
    button.onclick = () => {
      view.shade = button.dataset.shade;
      for (const one of buttons) one.setAttribute("aria-pressed", one === button);
      changed("window");
    };
  }
}

/** Where rows stand: {top, height} of the whole, and of one place. */
function overviewRows() {
  const top = RULER + STRIP;
  const height = Math.max(1, overview.surface.height - top - 4);
  const count = Math.max(1, model.about.places.length);
  const each = Math.min(MOST_HIGH, height / count);
  return { top, height: each * count, each };
}

const placeAt = (y) => Math.min(Math.max(Math.floor((y - overviewRows().top) / overviewRows().each), 0), model.about.places.length - 1);

function drawOverview() {
  const { surface } = overview;
  const context = surface.fresh();
  const { width } = surface;
  const { top, height, each } = overviewRows();
  drawRuler(context, width, top + height);
  drawWhole(context, width);
  drawLaunches(context, width);
  const pixels = Math.max(1, Math.round((width - GUTTER) * surface.ratio));
  const count = model.about.places.length;
  if (count) {
    paintPlaces(pixels, count);
    context.imageSmoothingEnabled = each * surface.ratio < 1;
    context.drawImage(overview.buffer, 0, 0, pixels, count, GUTTER, top, width - GUTTER, height);
  }
  drawPlaceLabels(context, top, each);
  const y = top + view.place * each;
  context.strokeStyle = themed("--ink");
  context.lineWidth = 1.5;
  context.strokeRect(GUTTER - 0.5, y - 1, width - GUTTER, each + 2);
  context.lineWidth = 1;
  drawMarks(context, width, top, top + height);
  byId("window").textContent = `${timeText(view.end - view.begin)} of ${timeText(model.span)}`;
}

/** Which part of everything is shown, as a thin bar along the top. */
function drawWhole(context, width) {
  const part = (view.end - view.begin) / model.span;
  if (part > 0.9999) return;
  const wide = width - GUTTER;
  context.fillStyle = themed("--sunken");
  context.fillRect(GUTTER, 0, wide, 3);
  context.fillStyle = themed("--accent");
  context.fillRect(GUTTER + (view.begin / model.span) * wide, 0, Math.max(part * wide, 2), 3);
}

/** The picture of all places; painted again only where something that it shows has changed. */
function paintPlaces(pixels, count) {
  const { query, focus, begin, end, shade } = view;
  const key = [query?.text, focus, begin, end, shade, colours.dark, pixels, ready.size].join();
  if (overview.key === key) return;
  overview.key = key;
  const image = imageOf(pixels, count);
  paintCells(new Uint32Array(image.data.buffer), pixels, count);
  overview.buffer.getContext("2d").putImageData(image, 0, 0);
}

function imageOf(width, height) {
  if (overview.image?.width !== width || overview.image.height !== height) {
    overview.buffer = new OffscreenCanvas(width, height);
    overview.image = new ImageData(width, height);
  }
  return overview.image;
}

/** Launches as a strip below the ruler, so that short ones far apart can be found. */
function drawLaunches(context, width) {
  const { begin, end, kernel } = model.launches;
  context.font = CANVAS_FONT;
  context.textBaseline = "middle";
  let free = -Infinity;
  for (let launch = 0; launch < begin.length; launch++) {
    if (end[launch] < view.begin || begin[launch] > view.end) continue;
    const a = Math.max(xOf(begin[launch], width), GUTTER);
    const b = Math.min(Math.max(xOf(end[launch], width), a + 1), width);
    if (b < free) continue;
    free = b + 0.5;
    context.fillStyle = themed(kernel[launch] % 2 ? "--sunken" : "--accent-ground");
    context.fillRect(a, RULER, Math.max(1, b - a - 1), STRIP - 3);
    const text = launchText(launch);
    if (b - a > context.measureText(text).width + 8) {
      context.fillStyle = themed("--soft");
      context.fillText(text, a + 4, RULER + (STRIP - 3) / 2 + 0.5);
    }
  }
}

function drawPlaceLabels(context, top, each) {
  context.font = CANVAS_FONT;
  context.textAlign = "right";
  const every = Math.max(1, Math.ceil(13 / each));
  const chosen = Math.max(top + (view.place + 0.5) * each, top + 5);
  for (let place = 0; place < model.about.places.length; place += every) {
    const y = top + (place + 0.5) * each;
    if (place !== view.place && Math.abs(y - chosen) < 12) continue;
    context.fillStyle = themed("--faint");
    if (place !== view.place) context.fillText(placeText(place), GUTTER - 8, y);
  }
  context.fillStyle = themed("--ink");
  context.font = `600 ${CANVAS_FONT}`;
  context.fillText(placeText(view.place), GUTTER - 8, chosen);
  context.textAlign = "left";
}

/** Fill the picture, a row of pixels per place. */
function paintCells(out, pixels, count) {
  out.fill(0);
  const { levels } = model.about;
  const span = view.end - view.begin;
  // the coarsest level whose bins are no wider than a pixel, else the finest
  let level = levels.findIndex((bins) => (span / model.span) * bins >= pixels);
  if (level < 0) level = levels.length - 1;
  const exact = pixels / ((span / model.span) * levels.at(-1)) > EXACT_FROM;
  if (exact) readRest();
  const wanted = wantedNames();
  for (let place = 0; place < count; place++) {
    if (exact && ready.has(place)) paintExact(out, place, pixels, wanted);
    else if (wanted?.list.every((name) => name < model.about.shares)) paintShares(out, place, pixels, wanted.list);
    else paintLevel(out, place, pixels, level, wanted);
  }
}

/** Names that are looked for, as a list and as a mask; null where all are. Names far down the list share a code. */
function wantedNames() {
  const matches = matcher();
  if (view.shade === "alive" || matches.all) return null;
  const list = model.about.names.map((_, index) => index).filter((index) => matches.name(index));
  if (list.length === model.about.names.length) return null;
  const mask = new Uint8Array(256);
  for (const name of list) mask[Math.min(name, model.about.far)] = 1;
  return { list, mask };
}

/** A place from a level of the pyramid. */
function paintLevel(out, place, pixels, level, wanted) {
  const bins = model.about.levels[level];
  const { name, busy, alive } = model.heat[level];
  const first = (view.begin / model.span) * bins, step = ((view.end - view.begin) / model.span) * (bins / pixels);
  for (let x = 0, to = place * pixels; x < pixels; x++, to++) {
    const cell = place * bins + Math.min(bins - 1, Math.floor(first + (x + 0.5) * step));
    const hit = name[cell] !== NOTHING && (!wanted || wanted.mask[name[cell]]);
    out[to] = cellColour(hit ? name[cell] : NOTHING, busy[cell] / 255, alive[cell] / 255);
  }
}

/** A place where some names are looked for: the one of them with the most warps, as strong as they are many. */
function paintShares(out, place, pixels, wanted) {
  const { levels, shares: names } = model.about;
  const bins = levels[0];
  const { shares, alive } = model.heat[0];
  const first = (view.begin / model.span) * bins, step = ((view.end - view.begin) / model.span) * (bins / pixels);
  for (let x = 0, to = place * pixels; x < pixels; x++, to++) {
    const bin = Math.min(bins - 1, Math.floor(first + (x + 0.5) * step));
    let best = NOTHING, most = 0, sum = 0;
    for (const name of wanted) {
      const share = shares[(place * names + name) * bins + bin];
      sum += share;
      if (share > most) [most, best] = [share, name];
    }
    out[to] = cellColour(best, sum / 255, alive[place * bins + bin] / 255);
  }
}

function cellColour(name, busy, alive) {
  if (view.shade === "alive") {
    if (!alive) return 0;
    const [r, g, b] = colours.dark ? [118, 165, 255] : [47, 107, 222];
    return ((Math.round(40 + 215 * alive) << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }
  if (name === NOTHING) return alive ? ((colours.dark ? 0x16ffffff : 0x0e000000) >>> 0) : 0;
  return ((Math.round(60 + 195 * Math.sqrt(Math.min(1, busy))) << 24) | colours.packed[Math.min(name, colours.packed.length - 1)]) >>> 0;
}

/** A place from its records: for each pixel the innermost regions of its warps, and of these the most frequent. */
function paintExact(out, place, pixels, wanted) {
  const found = ready.get(place);
  const { lanes } = model;
  const names = Math.min(model.about.names.length, model.about.far + 1);
  const votes = (overview.votes = overview.votes?.length === pixels * names ? overview.votes.fill(0) : new Uint8Array(pixels * names));
  const alive = new Uint8Array(pixels);
  const top = new Int16Array(pixels);
  const perNs = pixels / (view.end - view.begin);
  const pixel = (ns) => Math.min(Math.max(Math.round((ns - view.begin) * perNs), 0), pixels);
  for (const row of found.rows) {
    for (let at = laneAfter(row, view.begin); at < row.lanes.length; at++) {
      const { lane, lines } = row.lanes[at];
      if (lanes.start[lane] > view.end) break;
      const [a, b] = [pixel(lanes.start[lane]), Math.max(pixel(lanes.end[lane]), pixel(lanes.start[lane]) + 1)];
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
    let best = -1, most = 0, sum = 0;
    for (let name = 0; name < names; name++) {
      if (wanted && !wanted.mask[name]) continue;
      const count = votes[x * names + name];
      sum += count;
      if (count > most) [most, best] = [count, name];
    }
    out[to] = cellColour(best < 0 ? NOTHING : best, sum / rows, alive[x] / rows);
  }
}

function paintTop(line, top, pixel) {
  const { start, pace } = model.lanes;
  const [at, rate] = [start[line.lane], pace[line.lane]];
  const last = (view.end - at) / rate;
  for (let i = firstAfter(line.end, line.from, line.to, (view.begin - at) / rate); i < line.to; i++) {
    const begin = line.end[i] - line.dur[i];
    if (begin > last) break;
    if (kindOf(line.code[i]) !== SPAN) continue;
    const a = pixel(at + begin * rate);
    top.fill(Math.min(nameOf(line.code[i]), model.about.far), a, Math.max(pixel(at + line.end[i] * rate), a + 1));
  }
}

/** First lane of a row that has not ended before a time. */
function laneAfter(row, ns) {
  let from = 0, to = row.lanes.length;
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (model.lanes.end[row.lanes[middle].lane] < ns) from = middle + 1;
    else to = middle;
  }
  return from;
}

let reading = false;

/** Unpack the places that nobody chose, one after another, while the page stays usable. */
async function readRest() {
  if (reading) return;
  reading = true;
  let shown = performance.now();
  for (let place = 0; place < model.about.places.length; place++) {
    if (ready.has(place)) continue;
    await placeSlices(place);
    if (performance.now() - shown > 120) {
      changed("window");
      await new Promise((resume) => requestAnimationFrame(resume));
      shown = performance.now();
    }
  }
  changed("window");
}

/** Names with their colours; a click looks for one. */
function drawLegend() {
  const matches = matcher();
  const most = Math.min(model.about.names.length, 12);
  const items = model.about.names.slice(0, most).map((name, index) => {
    const button = element("button", { type: "button", ariaPressed: String(view.focus === index) });
    button.append(swatch(matches.name(index) ? colours.css[index] : colours.fadedCss[index]), nameText(name));
    button.onclick = () => chooseFocus(index);
    return element("li", {}, button);
  });
  byId("legend").replaceChildren(...items);
}
