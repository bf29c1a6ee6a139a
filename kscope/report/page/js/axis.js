// The time axis of the overview and the warps: a gutter for labels, then time.

const GUTTER = 118,
  RULER = 20;

const scaleOf = (width) => (width - GUTTER) / (view.end - view.begin);
const xOf = (ns, width) => GUTTER + (ns - view.begin) * scaleOf(width);
const nsOf = (x, width) => view.begin + (x - GUTTER) / scaleOf(width);

/** Draw ticks with times along the top, and faint lines down to `bottom`. */
function drawRuler(context, width, bottom) {
  const span = view.end - view.begin;
  const step = roundStep((span * 110) / Math.max(1, width - GUTTER));
  textStyle(context);
  const last = Math.floor(view.end / step);
  for (let number = Math.ceil(view.begin / step); number <= last; number++) {
    const tick = number * step;
    const x = Math.round(xOf(tick, width)) + 0.5;
    fill(context, themed("--line"), x - 0.5, 0, 1, bottom);
    const text = momentText(tick, step);
    if (x + 8 + context.measureText(text).width > width) continue;
    context.fillStyle = themed("--soft");
    context.fillText(text, x + 4, RULER / 2 + 1);
  }
}

/** Draw a text on a ground, centered at x. */
function drawChip(context, text, x, y, high, ground, width) {
  const wide = context.measureText(text).width + 10;
  const left = Math.min(Math.max(x - wide / 2, GUTTER), width - wide);
  fill(context, ground, left, y, wide, high);
  context.fillStyle = themed("--panel");
  context.fillText(text, left + 5, y + high / 2 + 0.5);
}

/** Draw the measured range, the selection's edges and the pointer. */
function drawMarks(context, width, top, bottom) {
  textStyle(context);
  if (view.range) {
    const [a, b] = view.range.map((ns) => Math.min(Math.max(xOf(ns, width), GUTTER), width));
    context.globalAlpha = 0.14;
    fill(context, themed("--accent"), a, top, b - a, bottom - top);
    context.globalAlpha = 1;
    for (const edge of [a, b]) context.fillRect(edge - 0.5, top, 1, bottom - top);
    const text = timeText(view.range[1] - view.range[0]);
    drawChip(context, text, (a + b) / 2, top + 1, 16, themed("--accent"), width);
  }
  if (view.pointer !== null) {
    context.globalAlpha = 0.5;
    fill(context, themed("--soft"), view.pointer, top, 1, bottom - top);
    context.globalAlpha = 1;
    const text = momentText(nsOf(view.pointer, width), 1 / scaleOf(width));
    drawChip(context, text, view.pointer + 0.5, 2, RULER - 4, themed("--ink"), width);
  }
}
