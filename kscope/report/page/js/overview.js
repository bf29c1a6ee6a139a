// All SMs over time: ruler, launches, labels and legend. cells.js paints the image.

const overview = { surface: null, image: null, legend: [] };
const STRIP = 14,
  MOST_HIGH = 26; // pixels: height of the launches; maximum height of an SM

function setUpOverview() {
  overview.surface = new Surface(document.querySelector("#overview canvas"));
  // with few SMs, leave the space to the warps
  const height = RULER + STRIP + 38 + Math.max(3, model.about.places.length) * MOST_HIGH;
  document.querySelector("main").style.setProperty("--overview", `${height}px`);
  on(drawOverview, "window", "place", "query", "focus", "theme", "size");
  on(drawLegend, "query", "focus", "theme");
  exclusive("#shade", ({ shade }) => {
    view.shade = shade;
    changed("window");
  });
}

/** Row geometry: {top, height} of all rows, and the height of one. */
function overviewRows() {
  const top = RULER + STRIP;
  const height = Math.max(1, overview.surface.height - top - 4);
  const count = Math.max(1, model.about.places.length);
  const each = Math.min(MOST_HIGH, height / count);
  return { top, height: each * count, each };
}

const placeAt = (y) =>
  Math.min(Math.max(Math.floor((y - overviewRows().top) / overviewRows().each), 0), model.about.places.length - 1);

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

/** Draw the shown part of the recording as a thin bar along the top. */
function drawWhole(context, width) {
  const part = (view.end - view.begin) / model.span;
  if (part > 0.9999) return;
  const wide = width - GUTTER;
  fill(context, themed("--sunken"), GUTTER, 0, wide, 3);
  fill(context, themed("--accent"), GUTTER + (view.begin / model.span) * wide, 0, Math.max(part * wide, 2), 3);
}

/** Draw the image of all SMs; repaint it only when its inputs changed. */
function paintPlaces(pixels, count) {
  const { query, focus, begin, end, shade } = view;
  const key = [query?.text, focus, begin, end, shade, colors.dark, pixels, ready.size].join();
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

/** Draw launches as a strip below the ruler, so that short ones stay visible. */
function drawLaunches(context, width) {
  const { begin, end, kernel } = model.launches;
  textStyle(context);
  let free = -Infinity;
  for (let launch = 0; launch < begin.length; launch++) {
    if (end[launch] < view.begin || begin[launch] > view.end) continue;
    const a = Math.max(xOf(begin[launch], width), GUTTER);
    const b = Math.min(Math.max(xOf(end[launch], width), a + 1), width);
    if (b < free) continue;
    free = b + 0.5;
    const ground = themed(kernel[launch] % 2 ? "--sunken" : "--accent-ground");
    fill(context, ground, a, RULER, Math.max(1, b - a - 1), STRIP - 3);
    const text = launchText(launch);
    if (b - a > context.measureText(text).width + 8) {
      context.fillStyle = themed("--soft");
      context.fillText(text, a + 4, RULER + (STRIP - 3) / 2 + 0.5);
    }
  }
}

function drawPlaceLabels(context, top, each) {
  textStyle(context, "right");
  const every = Math.max(1, Math.ceil(13 / each));
  const labelY = Math.max(top + (view.place + 0.5) * each, top + 5);
  for (let place = 0; place < model.about.places.length; place += every) {
    const y = top + (place + 0.5) * each;
    if (place !== view.place && Math.abs(y - labelY) < 12) continue;
    context.fillStyle = themed("--faint");
    if (place !== view.place) context.fillText(placeText(place), GUTTER - 8, y);
  }
  context.fillStyle = themed("--ink");
  context.font = `600 ${CANVAS_FONT}`;
  context.fillText(placeText(view.place), GUTTER - 8, labelY);
  context.textAlign = "left";
}

/** Names with their colors; a click searches for one. */
function drawLegend() {
  const matches = matcher();
  const most = Math.min(model.about.names.length, 12);
  const items = model.about.names.slice(0, most).map((name, index) => {
    const color = matches.name(index) ? colors.css[index] : colors.fadedCss[index];
    const made = button(() => chooseFocus(index), swatch(color), nameText(name));
    made.ariaPressed = String(view.focus === index);
    return element("li", {}, made);
  });
  byId("legend").replaceChildren(...items);
}
