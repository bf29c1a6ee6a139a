// The warps of the chosen SM: a row for each warp slot, in it a line for each depth.
//
// What is narrower than two pixels goes into a picture, one row of pixels per line, which is stretched to the line's
// height; what is wider is drawn as a box with its name.

const lanesView = { surface: null, scroll: null, tall: null, found: null, layout: [], height: 0 };
const BOX_FROM = 2, TEXT_FROM = 26, ROW_GAP = 4, SLOT_GAP = 7, LABEL = 17;

function setUpLanes() {
  lanesView.scroll = document.querySelector("#lanes .scroll");
  lanesView.tall = document.querySelector("#lanes .tall");
  lanesView.surface = new Surface(document.querySelector("#lanes canvas"));
  on(drawLanes, "window", "query", "focus", "selection", "theme");
  on(loadLanes, "place");
  on(layoutLanes, "size");
  lanesView.scroll.onscroll = drawLanes;
}

async function loadLanes() {
  const { place } = view;
  byId("place").textContent = placeText(place);
  const found = await placeSlices(place);
  if (place !== view.place) return; // somebody was faster
  lanesView.found = found;
  lanesView.scroll.scrollTop = 0;
  layoutLanes();
  describeLanes();
  changed("selection");
}

function describeLanes() {
  const { found } = lanesView;
  const [first, last] = [model.placeLanes[view.place], model.placeLanes[view.place + 1]];
  const blocks = new Set();
  let unfinished = 0, lost = 0;
  for (let lane = first; lane < last; lane++) {
    blocks.add(`${model.lanes.launch[lane]} ${model.lanes.block[lane]}`);
    unfinished += 1 - model.lanes.done[lane];
    lost += model.lanes.lost[lane];
  }
  const parts = [counted(found.count, "record"), counted(blocks.size, "block"), counted(found.rows.length, "warp slot")];
  if (lost) parts.push(`${countText(lost)} records dropped`);
  if (unfinished) parts.push(`${counted(unfinished, "warp")} unfinished`);
  byId("lanes-about").textContent = parts.join(" · ");
}

/** Heights: all rows in sight where lines of 7 pixels allow it, never higher than 22. Blocks side by side have a gap. */
function layoutLanes() {
  const { found, scroll, tall } = lanesView;
  if (!found) return;
  const lines = found.rows.reduce((sum, row) => sum + row.lines, 0);
  const space = scroll.clientHeight - RULER - 6 - found.rows.length * ROW_GAP;
  const high = Math.min(22, Math.max(7, Math.floor(space / Math.max(1, lines))));
  let top = RULER + 4;
  lanesView.layout = found.rows.map((row, at) => {
    if (at && row.who <= found.rows[at - 1].who) top += SLOT_GAP;
    const place = { row, top, high, height: high * row.lines };
    top += place.height + ROW_GAP;
    return place;
  });
  tall.style.height = `${Math.max(top + 2, scroll.clientHeight)}px`;
  lanesView.surface.canvas.style.height = `${scroll.clientHeight}px`;
  drawLanes();
}

function drawLanes() {
  const { surface, scroll, found } = lanesView;
  if (!found) return;
  const context = surface.fresh();
  const { width, height } = surface;
  const shown = lanesView.layout.filter(({ top, height: high }) => top + high > scroll.scrollTop && top < scroll.scrollTop + height);
  const matches = matcher();
  context.save();
  context.beginPath();
  context.rect(0, RULER, width, height - RULER);
  context.clip();
  context.translate(0, -scroll.scrollTop);
  for (const place of shown) drawRow(context, place, width, matches);
  drawSelection(context, width);
  context.restore();
  drawRuler(context, width, RULER);
  context.fillStyle = themed("--line");
  context.fillRect(0, RULER - 1, width, 1);
  drawMarks(context, width, RULER, height);
}

function drawRow(context, place, width, matches) {
  const { row, top, high, height } = place;
  const { lanes } = model;
  context.font = CANVAS_FONT;
  context.textBaseline = "middle";
  context.textAlign = "right";
  if (row.same) {
    context.fillStyle = themed("--soft");
    const lane = row.who % 32 ? `.${row.who % 32}` : "";
    context.fillText(`warp ${Math.floor(row.who / 32)}${lane}`, GUTTER - 8, top + Math.min(height / 2, LABEL));
  }
  context.textAlign = "left";
  context.save();
  context.beginPath();
  context.rect(GUTTER, top - 1, width - GUTTER, height + 2);
  context.clip();
  const pictures = Array.from({ length: row.lines }, () => null);
  for (let at = laneAfter(row, view.begin); at < row.lanes.length; at++) {
    const { lane, lines } = row.lanes[at];
    if (lanes.start[lane] > view.end) break;
    drawLife(context, lane, top, height, width);
    for (const line of lines) drawLine(context, line, place, width, matches, pictures);
  }
  pictures.forEach((picture, number) => picture && stretch(context, picture, top + number * high, high, width));
  for (const draw of overlays.splice(0)) draw();
  context.restore();
}

/** A warp's life as a soft ground; a red end where it did not finish. */
function drawLife(context, lane, top, height, width) {
  const { lanes } = model;
  const [a, b] = [xOf(lanes.start[lane], width), xOf(lanes.end[lane], width)];
  context.fillStyle = themed("--sunken");
  context.fillRect(a, top, Math.max(b - a, 1), height);
  context.fillStyle = themed("--faint");
  if (b - a > 3) context.fillRect(a, top, 1, height);
  if (lanes.done[lane]) return;
  context.fillStyle = themed("--bad");
  context.fillRect(b - 1, top - 1, 3, height + 2);
}

const overlays = []; // drawn over the pictures of a row

function drawLine(context, line, place, width, matches, pictures) {
  const { start, pace } = model.lanes;
  const [at, rate] = [start[line.lane], pace[line.lane]];
  const [from, to] = [(view.begin - at) / rate, (view.end - at) / rate];
  const kind = kindOf(line.code[line.from]);
  const y = place.top + line.number * place.high;
  if (kind === COUNTER) return drawCounter(context, line, y, place.high, width);
  const pixels = Math.max(1, Math.round(width - GUTTER));
  const perTick = (rate * pixels) / (view.end - view.begin);
  const level = matches.exact ? line : levelFor(line, from, to, pixels);
  const origin = (at - view.begin) / (view.end - view.begin) * pixels;
  const { end, dur, code, busy } = level;
  const thin = level !== line;
  const { ratio } = lanesView.surface;
  let drawn = -1;
  for (let i = firstAfter(end, level.from, level.to, from - 2 / perTick); i < level.to; i++) {
    const begin = end[i] - dur[i];
    if (begin > to) break;
    const a = origin + begin * perTick, b = origin + end[i] * perTick;
    const one = code[i];
    if (!thin && kindOf(one) !== SPAN) {
      if (b > drawn + 2) overlays.push(() => drawPoint(context, line, i, GUTTER + b, y, place.high, matches));
      drawn = b;
      continue;
    }
    const wanted = matches.slice(line, thin ? -1 : i, one);
    if (b - a >= BOX_FROM && !thin) {
      drawBox(context, one, GUTTER + a, GUTTER + b, y, place.high, width, wanted);
      continue;
    }
    const picture = (pictures[line.number] ??= new Uint32Array(Math.round(pixels * ratio)));
    const sought = wanted && !matches.all; // seen however short it is
    const first = Math.max(0, Math.floor(a * ratio));
    const last = Math.min(picture.length, Math.max(Math.ceil(b * ratio), first + (sought ? 2 : 1)));
    const filled = sought ? 1 : thin ? Math.min(1, busy[i] / Math.max(dur[i], 1)) : Math.min(1, Math.max(0.45, b - a));
    const packed = wanted ? colours.packed[nameOf(one)] : colours.faded[nameOf(one)];
    const pixel = ((Math.round(90 + 165 * filled) << 24) | packed) >>> 0;
    for (let x = first; x < last; x++) if (wanted || !picture[x]) picture[x] = pixel;
  }
}

/** The finest level that has no more items in sight than there are pixels. */
function levelFor(line, from, to, pixels) {
  if (line.to - line.from <= 2 * pixels) return line;
  for (const level of levelsOf(line)) {
    const first = firstAfter(level.end, level.from, level.to, from);
    if (firstAfter(level.end, first, level.to, to) - first <= 2 * pixels) return level;
  }
  return line.levels.at(-1);
}

function drawBox(context, code, a, b, y, high, width, wanted) {
  const name = nameOf(code);
  const left = Math.max(a, GUTTER - 2), right = Math.min(b, width + 2);
  const gap = right - left > 4 ? 0.5 : 0;
  context.fillStyle = wanted ? colours.css[name] : colours.fadedCss[name];
  context.fillRect(left, y, right - left - gap, high - 1);
  if (right - left < TEXT_FROM || high < 11) return;
  context.save();
  context.beginPath();
  context.rect(left, y, right - left - 3, high);
  context.clip();
  context.fillStyle = wanted ? colours.ink[name] : themed("--faint");
  context.fillText(model.about.names[name], Math.max(left, GUTTER) + 4, y + high / 2 - 0.5);
  context.restore();
}

/** An instant, or a span of unknown length where it ended. */
function drawPoint(context, line, index, x, y, high, matches) {
  const code = line.code[index];
  const name = nameOf(code);
  context.fillStyle = matches.slice(line, index, code) ? colours.css[name] : colours.fadedCss[name];
  context.strokeStyle = themed("--panel");
  const half = Math.min(5, high / 2 - 1);
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x + half, y + high / 2 - 0.5);
  context.lineTo(x, y + high - 1);
  context.lineTo(x - half, y + high / 2 - 0.5);
  context.closePath();
  context.stroke();
  context.fill();
}

/** A counter as steps between the least and the greatest number that it has anywhere. */
function drawCounter(context, line, y, high, width) {
  const { start, pace } = model.lanes;
  const name = nameOf(line.code[line.from]);
  const point = model.about.points.find((one) => one.name === model.about.names[name]);
  const [least, most] = [Math.min(0, point?.least ?? 0), Math.max(point?.greatest ?? 1, (point?.least ?? 0) + 1e-9)];
  const [at, rate] = [start[line.lane], pace[line.lane]];
  const first = Math.max(line.from, firstAfter(line.end, line.from, line.to, (view.begin - at) / rate) - 1);
  context.fillStyle = colours.css[name];
  let drawn = -Infinity;
  for (let i = first; i < line.to; i++) {
    const a = xOf(at + line.end[i] * rate, width);
    if (a > width) break;
    const b = i + 1 < line.to ? xOf(at + line.end[i + 1] * rate, width) : xOf(model.lanes.end[line.lane], width);
    if (b < drawn + 0.5) continue;
    const tall = Math.max(1, ((line.value[i] - least) / (most - least)) * (high - 2));
    context.fillRect(a, y + high - 1 - tall, Math.max(b - a, 0.8), tall);
    drawn = b;
  }
}

function stretch(context, picture, y, high, width) {
  const buffer = (lanesView.buffer ??= new OffscreenCanvas(1, 1));
  if (buffer.width !== picture.length) buffer.width = picture.length;
  const image = new ImageData(new Uint8ClampedArray(picture.buffer), picture.length, 1);
  buffer.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(buffer, 0, 0, picture.length, 1, GUTTER, y, width - GUTTER, high - 1);
}

/** Where a record is drawn: {a, b, y, high}; null where its row is of another SM. */
function boxOf({ line, index }, width) {
  const place = lanesView.layout[model.lanes.row[line.lane]];
  if (!place || model.lanes.place[line.lane] !== view.place) return null;
  const [begin, end] = timesOf(line, index);
  return { a: xOf(begin, width), b: xOf(end, width), y: place.top + line.number * place.high, high: place.high };
}

function drawSelection(context, width) {
  const box = view.selection && boxOf(view.selection, width);
  if (!box || box.b < GUTTER || box.a > width) return;
  const left = Math.max(box.a, GUTTER);
  context.strokeStyle = themed("--panel");
  context.lineWidth = 4;
  context.strokeRect(left - 1, box.y - 1, Math.max(box.b - left, 2) + 1, box.high + 1);
  context.strokeStyle = themed("--ink");
  context.lineWidth = 2;
  context.strokeRect(left - 1, box.y - 1, Math.max(box.b - left, 2) + 1, box.high + 1);
  context.lineWidth = 1;
}

/** The record at a point of the canvas, within three pixels: {line, index}, or {lane} where only a warp lives. */
function lanesAt(x, y) {
  const { layout, scroll, surface } = lanesView;
  const inside = y + scroll.scrollTop;
  const place = layout.find(({ top, height }) => inside >= top - 1 && inside < top + height + 1);
  if (!place || x < GUTTER) return null;
  const ns = nsOf(x, surface.width), near = 3 / scaleOf(surface.width);
  const one = place.row.lanes[laneAfter(place.row, ns - near)];
  if (!one || model.lanes.start[one.lane] > ns + near) return null;
  const number = Math.min(Math.floor((inside - place.top) / place.high), place.row.lines - 1);
  const line = one.lines.find((found) => found.number === number);
  const hit = line && nearest(line, ns, near);
  return hit === null || hit === undefined ? { lane: one.lane } : { lane: one.lane, line, index: hit };
}

function nearest(line, ns, near) {
  const tick = (ns - model.lanes.start[line.lane]) / model.lanes.pace[line.lane];
  const after = firstAfter(line.end, line.from, line.to, tick);
  let best = null, least = near;
  for (const index of [after, after - 1]) {
    if (index < line.from || index >= line.to) continue;
    const [begin, end] = timesOf(line, index);
    const away = Math.max(begin - ns, ns - end, 0);
    if (away <= least && (best === null || away < least)) [best, least] = [index, away];
  }
  return best;
}

/** Scroll so that the selection is in sight. */
function showSelectedRow() {
  const box = view.selection && boxOf(view.selection, lanesView.surface.width);
  if (!box) return;
  const { scroll } = lanesView;
  if (box.y < scroll.scrollTop + RULER) scroll.scrollTop = box.y - RULER - 6;
  else if (box.y + box.high > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = box.y + box.high + 6 - scroll.clientHeight;
}
