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
  drawLaunches(context, width);
  const pixels = Math.max(1, Math.round((width - GUTTER) * surface.ratio));
  const count = model.about.places.length;
  if (count) {
    const image = imageOf(pixels, count);
    paintCells(new Uint32Array(image.data.buffer), pixels, count);
    overview.buffer.getContext("2d").putImageData(image, 0, 0);
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
  const bins = levels[level];
  const { name, busy, alive } = model.heat[level];
  const shown = shownNames();
  const first = (view.begin / model.span) * bins, step = ((span / model.span) * bins) / pixels;
  for (let place = 0; place < count; place++) {
    if (exact && ready.has(place)) {
      paintExact(out, place, pixels, shown);
      continue;
    }
    for (let x = 0, to = place * pixels; x < pixels; x++, to++) {
      const cell = place * bins + Math.min(bins - 1, Math.floor(first + (x + 0.5) * step));
      out[to] = cellColour(name[cell], busy[cell] / 255, alive[cell] / 255, shown);
    }
  }
}

/** Colours of names in this frame: [packed with alpha left out, strength], faded where they are not looked for. */
function shownNames() {
  const matches = matcher();
  return colours.packed.map((packed, index) => (matches.name(index) ? packed : -1));
}

function cellColour(name, busy, alive, shown) {
  if (view.shade === "alive") {
    if (!alive) return 0;
    const [r, g, b] = colours.dark ? [118, 165, 255] : [47, 107, 222];
    return ((Math.round(40 + 215 * alive) << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }
  if (name === NOTHING) return alive ? ((colours.dark ? 0x16ffffff : 0x0e000000) >>> 0) : 0;
  const packed = shown[Math.min(name, shown.length - 1)];
  const strength = Math.sqrt(busy);
  if (packed < 0) return ((Math.round(20 + 40 * strength) << 24) | 0x808080) >>> 0;
  return ((Math.round(70 + 185 * strength) << 24) | packed) >>> 0;
}

/** A place from its records: for each pixel the innermost regions of its warps, and of these the most frequent. */
function paintExact(out, place, pixels, shown) {
  const found = ready.get(place);
  const { lanes } = model;
  const names = Math.min(model.about.names.length, 64);
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
      const count = votes[x * names + name];
      sum += count;
      if (count > most) [most, best] = [count, name];
    }
    out[to] = cellColour(best < 0 ? NOTHING : best, sum / rows, alive[x] / rows, shown);
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
    top.fill(Math.min(nameOf(line.code[i]), 63), a, Math.max(pixel(at + line.end[i] * rate), a + 1));
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
