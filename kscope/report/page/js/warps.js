// The warps of the selected SM: one row per warp slot, one line per depth. boxes.js draws a line; hits.js finds the
// record under the pointer.

const warpsView = { surface: null, scroll: null, tall: null, found: null, layout: [], height: 0 };
const ROW_GAP = 4,
  SLOT_GAP = 7,
  LABEL = 17;

function setUpWarps() {
  warpsView.scroll = document.querySelector("#warps .scroll");
  warpsView.tall = document.querySelector("#warps .tall");
  warpsView.surface = new Surface(document.querySelector("#warps canvas"));
  on(drawWarps, "window", "query", "focus", "selection", "theme");
  on(loadWarps, "place");
  on(layoutWarps, "size");
  warpsView.scroll.onscroll = drawWarps;
}

async function loadWarps() {
  const { place } = view;
  byId("place").textContent = placeText(place);
  const found = await placeSlices(place);
  if (place !== view.place) return; // another SM was selected meanwhile
  warpsView.found = found;
  warpsView.scroll.scrollTop = 0;
  layoutWarps();
  describeWarps();
  changed("selection");
}

function describeWarps() {
  const { found } = warpsView;
  const [first, last] = [model.placeWarps[view.place], model.placeWarps[view.place + 1]];
  const blocks = new Set();
  let unfinished = 0,
    lost = 0;
  for (let warp = first; warp < last; warp++) {
    blocks.add(`${model.warps.launch[warp]} ${model.warps.block[warp]}`);
    unfinished += 1 - model.warps.done[warp];
    lost += model.warps.lost[warp];
  }
  const counts = { record: found.count, block: blocks.size, "warp slot": found.rows.length };
  const parts = Object.entries(counts).map(([noun, count]) => counted(count, noun));
  if (lost) parts.push(`${countText(lost)} records dropped`);
  if (unfinished) parts.push(`${counted(unfinished, "warp")} unfinished`);
  byId("warps-about").textContent = parts.join(" · ");
}

/** Row heights: fit all rows if lines keep at least 7 pixels, at most 22; with a gap between blocks. */
function layoutWarps() {
  const { found, scroll, tall } = warpsView;
  if (!found) return;
  const lines = found.rows.reduce((sum, row) => sum + row.lines, 0);
  const space = scroll.clientHeight - RULER - 6 - found.rows.length * ROW_GAP;
  const high = Math.min(22, Math.max(7, Math.floor(space / Math.max(1, lines))));
  let top = RULER + 4;
  warpsView.layout = found.rows.map((row, at) => {
    if (at && row.thread <= found.rows[at - 1].thread) top += SLOT_GAP;
    const place = { row, top, high, height: high * row.lines };
    top += place.height + ROW_GAP;
    return place;
  });
  tall.style.height = `${Math.max(top + 2, scroll.clientHeight)}px`;
  warpsView.surface.canvas.style.height = `${scroll.clientHeight}px`;
  drawWarps();
}

function drawWarps() {
  const { surface, scroll, found } = warpsView;
  if (!found) return;
  const context = surface.fresh();
  const { width, height } = surface;
  const { scrollTop } = scroll;
  const shown = warpsView.layout.filter((row) => row.top + row.height > scrollTop && row.top < scrollTop + height);
  const matches = matcher();
  clip(context, 0, RULER, width, height - RULER);
  context.translate(0, -scroll.scrollTop);
  for (const place of shown) drawRow(context, place, width, matches);
  drawSelection(context, width);
  context.restore();
  drawRuler(context, width, RULER);
  fill(context, themed("--line"), 0, RULER - 1, width, 1);
  drawMarks(context, width, RULER, height);
  drawThumb(context, width, height);
}

/** The visible rows. A native scroll bar would make this canvas narrower than the overview. */
function drawThumb(context, width, height) {
  const { scrollTop, scrollHeight, clientHeight } = warpsView.scroll;
  if (scrollHeight <= clientHeight + 1) return;
  const space = height - RULER;
  context.fillStyle = themed("--faint");
  context.globalAlpha = 0.7;
  context.fillRect(width - 5, RULER + (scrollTop / scrollHeight) * space, 4, (clientHeight / scrollHeight) * space);
  context.globalAlpha = 1;
}

function drawRow(context, place, width, matches) {
  const { row, top, high, height } = place;
  const { warps } = model;
  textStyle(context, "right");
  if (row.same) {
    context.fillStyle = themed("--soft");
    context.fillText(shortened(context, rowText(row), GUTTER - 12), GUTTER - 8, top + Math.min(height / 2, LABEL));
  }
  context.textAlign = "left";
  clip(context, GUTTER, top - 1, width - GUTTER, height + 2);
  const pictures = Array.from({ length: row.lines }, () => null);
  for (let at = warpAfter(row, view.begin); at < row.warps.length; at++) {
    const { warp, lines } = row.warps[at];
    if (warps.start[warp] > view.end) break;
    drawLife(context, warp, top, height, width);
    for (const line of lines) drawLine(context, line, place, width, matches, pictures);
  }
  pictures.forEach((picture, number) => picture && stretch(context, picture, top + number * high, high, width));
  for (const draw of overlays.splice(0)) draw();
  context.restore();
}

/** A row's label: the first block in the window, how many others follow, and the warp. */
function rowText(row) {
  const { warps } = model;
  const shown = row.warps
    .slice(warpAfter(row, view.begin))
    .map(({ warp }) => warp)
    .filter((warp) => warps.start[warp] <= view.end);
  const lane = row.thread % 32 ? `.${row.thread % 32}` : "";
  if (!shown.length) return `warp ${Math.floor(row.thread / 32)}${lane}`;
  const others = new Set(shown.map((one) => warps.block[one])).size - 1;
  return `${blockText(shown[0])}${others ? ` +${others}` : ""} · ${warpText(shown[0])}${lane}`;
}

/** Draw a warp's lifetime as background, with a red end if it did not finish. */
function drawLife(context, warp, top, height, width) {
  const { warps } = model;
  const [a, b] = [xOf(warps.start[warp], width), xOf(warps.end[warp], width)];
  fill(context, themed("--sunken"), a, top, Math.max(b - a, 1), height);
  if (b - a > 3) fill(context, themed("--faint"), a, top, 1, height);
  if (!warps.done[warp]) fill(context, themed("--bad"), b - 1, top - 1, 3, height + 2);
}
