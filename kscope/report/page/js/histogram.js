// Histogram of a region's durations. A bin is the upper bits of the duration as a float32; a bar merges narrow bins.

const histogram = { surface: null, bars: [], hover: null };
const BAR = 4; // minimum width of a bar, pixels
const SPARK = { width: 48, height: 18 }; // as in panels.css

/** The lower and upper duration of a bin, ns. */
function binEdges(bin) {
  const edge = (number) => 2 ** ((number >> 6) - 127) * (1 + (number & 63) / 64);
  const number = bin + model.about.figures.first;
  return [edge(number), edge(number + 1)];
}

/** The nonempty bins of a name: {counts, first, last}; null for a name without spans. */
function binsOf(name) {
  const { bins, names } = model.about.figures;
  if (name >= names) return null;
  const counts = model.figures.histogram.subarray(name * bins, (name + 1) * bins);
  const first = counts.findIndex(Boolean);
  return first < 0 ? null : { counts, first, last: counts.findLastIndex(Boolean) };
}

/** The fraction of a name's spans shorter than a duration, to bin resolution; null if unknown. */
function rankOf(name, ns) {
  const found = binsOf(name);
  if (!found) return null;
  let below = 0,
    total = 0;
  for (let bin = found.first; bin <= found.last; bin++) {
    const [a, b] = binEdges(bin);
    total += found.counts[bin];
    below += found.counts[bin] * Math.min(1, Math.max(0, (ns - a) / (b - a)));
  }
  return below / total;
}

function setUpHistogram() {
  histogram.surface = new Surface(document.querySelector("#durations canvas"));
  on(drawHistogram, "query", "focus", "selection", "theme", "size");
  on(listLongest, "focus", "query", "selection", "theme");
  const { canvas } = histogram.surface;
  canvas.onpointermove = (event) => {
    histogram.hover = histogram.bars.find((bar) => event.offsetX >= bar.x && event.offsetX < bar.x + bar.wide) ?? null;
    drawHistogram();
    const { hover } = histogram;
    if (!hover) return hideTip();
    const range = `${timeText(hover.from)} to ${timeText(hover.to)}`;
    return showTip(event, range, null, counted(hover.count, "span"), "click to search for them");
  };
  canvas.onpointerleave = () => {
    histogram.hover = null;
    hideTip();
    drawHistogram();
  };
  canvas.onclick = () => {
    if (!histogram.hover) return;
    const [from, to] = [histogram.hover.from, histogram.hover.to].map((ns) => Number(ns.toPrecision(4)));
    search(`${model.about.names[shownName()]} >=${from}ns <${to}ns`);
  };
}

/** The name to show: focused, selected, searched for, or the first. */
function shownName() {
  if (view.focus !== null) return view.focus;
  if (view.query?.names.size === 1) return [...view.query.names][0];
  if (view.selection) return nameOf(view.selection.line.code[view.selection.index]);
  return 0;
}

function drawHistogram() {
  const context = histogram.surface.fresh();
  const { width, height } = histogram.surface;
  const name = shownName();
  const found = binsOf(name);
  document.querySelector("#durations .of").replaceChildren(nameText(model.about.names[name] ?? ""));
  histogram.bars = [];
  if (!found) return;
  const [left, right, bottom, top] = [10, width - 10, height - 18, 6];
  const low = Math.log2(Math.max(binEdges(found.first)[0], 1e-3)),
    high = Math.log2(binEdges(found.last)[1]);
  const x = (ns) => left + ((Math.log2(Math.max(ns, 1e-3)) - low) / Math.max(high - low, 1e-9)) * (right - left);
  let bar = null;
  for (let bin = found.first; bin <= found.last; bin++) {
    const [from, to] = binEdges(bin);
    bar ??= { x: x(from), from, count: 0 };
    Object.assign(bar, { to, count: bar.count + found.counts[bin], wide: x(to) - bar.x });
    if (bar.wide >= BAR || bin === found.last) {
      histogram.bars.push(bar);
      bar = null;
    }
  }
  const most = Math.max(...histogram.bars.map((one) => one.count / one.wide));
  for (const one of histogram.bars) {
    const tall = Math.sqrt(one.count / one.wide / most) * (bottom - top);
    context.globalAlpha = histogram.hover && one.from !== histogram.hover.from ? 0.45 : 1;
    fill(context, colors.css[name], one.x, bottom - tall, Math.max(one.wide - 1, 1), tall);
  }
  context.globalAlpha = 1;
  drawDurationAxis(context, x, left, right, bottom, [2 ** low, 2 ** high]);
  if (view.selection && nameOf(view.selection.line.code[view.selection.index]) === name) {
    const [begin, end] = timesOf(view.selection.line, view.selection.index);
    fill(context, themed("--ink"), x(end - begin) - 1, top, 2, bottom - top);
  }
}

function drawDurationAxis(context, x, left, right, bottom, [low, high]) {
  textStyle(context, "center", "top");
  fill(context, themed("--line"), left, bottom, right - left, 1);
  let free = -Infinity;
  const tens = Array.from({ length: 40 }, (_, at) => 10 ** (at - 4));
  const powers = tens.flatMap((power) => [power, 2 * power, 5 * power]);
  const step = roundStep((high - low) / 4);
  const even = Array.from({ length: 6 }, (_, at) => (Math.ceil(low / step) + at) * step);
  for (const ns of high > 6 * low ? powers : even) {
    const at = x(ns),
      half = context.measureText(timeText(ns)).width / 2;
    if (ns < low || ns > high || at - half < Math.max(free, 0) || at + half > right + 10) continue;
    fill(context, themed("--line"), at, bottom, 1, 4);
    context.fillStyle = themed("--soft");
    context.fillText(timeText(ns), at, bottom + 5);
    free = at + half + 14;
  }
}

/** Draw a small histogram for a table row. Its size is fixed because measuring it would force a layout. */
function drawSpark(canvas, name) {
  const ratio = window.devicePixelRatio || 1;
  Object.assign(canvas, { width: SPARK.width * ratio, height: SPARK.height * ratio });
  const found = binsOf(name);
  if (!found) return;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const { first, bins } = sharedBins();
  const columns = new Float64Array(SPARK.width / 2);
  for (let bin = found.first; bin <= found.last; bin++)
    columns[Math.floor(((bin - first) / bins) * columns.length)] += found.counts[bin];
  const most = Math.max(...columns);
  context.fillStyle = colors.css[name];
  columns.forEach((count, at) => {
    const tall = count ? Math.max(1.5, Math.sqrt(count / most) * SPARK.height) : 0;
    context.fillRect(at * 2, SPARK.height - tall, 1.6, tall);
  });
}

/** The bins shared by the table's small histograms, so that rows are comparable. */
function sharedBins() {
  if (!histogram.shared) {
    const found = model.about.names.map((_, name) => binsOf(name)).filter(Boolean);
    const first = Math.min(...found.map((one) => one.first)),
      last = Math.max(...found.map((one) => one.last));
    histogram.shared = { first, bins: last - first + 1 };
  }
  return histogram.shared;
}

function listLongest() {
  const { long_name, long_warp, long_begin, long_ns } = model.figures;
  const name = shownName();
  const items = [];
  for (let at = 0; at < long_name.length; at++) {
    if (long_name[at] !== name) continue;
    const warp = long_warp[at];
    const place = `${placeText(model.warps.place[warp])} ${blockWarpText(warp)}`;
    const time = element("span", { className: "num" }, timeText(long_ns[at]));
    const show = () => reveal(warp, name, long_begin[at]);
    items.push(element("li", {}, button(show, time, element("span", { className: "at" }, place))));
  }
  document.querySelector("#durations ol").replaceChildren(...items);
}
