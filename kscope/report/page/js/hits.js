// Where a record is drawn, and which one is under the pointer.

/** The rectangle of a record: {a, b, y, high}; null if it is on another SM. */
function boxOf({ line, index }, width) {
  const place = warpsView.layout[model.warps.row[line.warp]];
  if (!place || model.warps.place[line.warp] !== view.place) return null;
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

/** The record within three pixels of a point: {line, index}; {warp} if there is only a warp. */
function warpsAt(x, y) {
  const { layout, scroll, surface } = warpsView;
  const inside = y + scroll.scrollTop;
  const place = layout.find(({ top, height }) => inside >= top - 1 && inside < top + height + 1);
  if (!place || x < GUTTER) return null;
  const ns = nsOf(x, surface.width),
    near = 3 / scaleOf(surface.width);
  const one = place.row.warps[warpAfter(place.row, ns - near)];
  if (!one || model.warps.start[one.warp] > ns + near) return null;
  const number = Math.min(Math.floor((inside - place.top) / place.high), place.row.lines - 1);
  const line = one.lines.find((found) => found.number === number);
  const hit = line && nearest(line, ns, near);
  return hit === null || hit === undefined ? { warp: one.warp } : { warp: one.warp, line, index: hit };
}

function nearest(line, ns, near) {
  const tick = (ns - model.warps.start[line.warp]) / model.warps.pace[line.warp];
  const after = firstAfter(line.end, line.from, line.to, tick);
  let best = null,
    least = near;
  for (const index of [after, after - 1]) {
    if (index < line.from || index >= line.to) continue;
    const [begin, end] = timesOf(line, index);
    const away = Math.max(begin - ns, ns - end, 0);
    if (away <= least && (best === null || away < least)) [best, least] = [index, away];
  }
  return best;
}

/** Scroll to the selection. */
function showSelectedRow() {
  const box = view.selection && boxOf(view.selection, warpsView.surface.width);
  if (!box) return;
  const { scroll } = warpsView;
  if (box.y < scroll.scrollTop + RULER) scroll.scrollTop = box.y - RULER - 6;
  else if (box.y + box.high > scroll.scrollTop + scroll.clientHeight)
    scroll.scrollTop = box.y + box.high + 6 - scroll.clientHeight;
}
