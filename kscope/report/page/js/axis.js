// The time axis of the overview and the warps: a gutter for labels, then time.

const GUTTER = 118,
  RULER = 20;

const scaleOf = (width) => (width - GUTTER) / (view.end - view.begin);
const xOf = (ns, width) => GUTTER + (ns - view.begin) * scaleOf(width);
const nsOf = (x, width) => view.begin + (x - GUTTER) / scaleOf(width);
const CANVAS_FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

/** Draw ticks with times along the top, and faint lines down to `bottom`. */
function drawRuler(context, width, bottom) {
  const span = view.end - view.begin;
  const step = roundStep((span * 110) / Math.max(1, width - GUTTER));
  context.font = CANVAS_FONT;
  context.textBaseline = "middle";
  context.textAlign = "left";
  const last = Math.floor(view.end / step);
  for (let number = Math.ceil(view.begin / step); number <= last; number++) {
    const tick = number * step;
    const x = Math.round(xOf(tick, width)) + 0.5;
    context.fillStyle = themed("--line");
    context.fillRect(x - 0.5, 0, 1, bottom);
    const text = momentText(tick, step);
    if (x + 8 + context.measureText(text).width > width) continue;
    context.fillStyle = themed("--soft");
    context.fillText(text, x + 4, RULER / 2 + 1);
  }
}

/** Draw the measured range, the selection's edges and the pointer. */
function drawMarks(context, width, top, bottom) {
  if (view.range) {
    const [a, b] = view.range.map((ns) => Math.min(Math.max(xOf(ns, width), GUTTER), width));
    context.fillStyle = themed("--accent");
    context.globalAlpha = 0.14;
    context.fillRect(a, top, b - a, bottom - top);
    context.globalAlpha = 1;
    context.fillRect(a - 0.5, top, 1, bottom - top);
    context.fillRect(b - 0.5, top, 1, bottom - top);
    const text = timeText(view.range[1] - view.range[0]);
    const wide = context.measureText(text).width + 10;
    const left = Math.min(Math.max((a + b - wide) / 2, GUTTER), width - wide);
    context.fillRect(left, top + 1, wide, 16);
    context.fillStyle = themed("--panel");
    context.textAlign = "center";
    context.fillText(text, left + wide / 2, top + 9);
    context.textAlign = "left";
  }
  if (view.pointer !== null) {
    const x = view.pointer + 0.5;
    context.fillStyle = themed("--soft");
    context.globalAlpha = 0.5;
    context.fillRect(x - 0.5, top, 1, bottom - top);
    context.globalAlpha = 1;
    const text = momentText(nsOf(view.pointer, width), 1 / scaleOf(width));
    const wide = context.measureText(text).width + 10;
    const left = Math.min(Math.max(x - wide / 2, GUTTER), width - wide);
    context.fillStyle = themed("--ink");
    context.fillRect(left, 2, wide, RULER - 4);
    context.fillStyle = themed("--panel");
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillText(text, left + 5, RULER / 2 + 0.5);
  }
}
