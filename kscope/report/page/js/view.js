// The view's state and its listeners.

const view = {
  begin: 0,
  end: 1, // ns after the first warp's start
  place: 0,
  focus: null, // index of the name shown by table and histogram
  query: null, // parsed by search.js
  selection: null, // {line, index}
  range: null, // [begin, end], measured by dragging with shift
  pointer: null, // pixels from the left edge of either canvas
  shade: "region",
};
const listeners = { window: [], place: [], query: [], focus: [], selection: [], theme: [], size: [] };
/** The narrowest window, ns: far from 0, closer pixels round to the same double. */
const leastSpan = () => Math.max(4, model.span * 2 ** -40);

const on = (what, ...events) => events.forEach((event) => listeners[event].push(what));
const pending = new Set();

/** Notify the listeners of an event, once, before the next frame. */
function changed(event) {
  if (!pending.size) requestAnimationFrame(notify);
  pending.add(event);
}

function notify() {
  const events = [...pending];
  pending.clear();
  for (const listener of new Set(events.flatMap((event) => listeners[event]))) listener();
}

function setWindow(begin, end) {
  const span = Math.min(Math.max(end - begin, leastSpan()), model.span);
  const middle = (begin + end) / 2;
  view.begin = Math.min(Math.max(middle - span / 2, 0), model.span - span);
  view.end = view.begin + span;
  changed("window");
}

let gliding = 0;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** Animate to a window; its width changes geometrically. */
function glide(begin, end, milliseconds = 180) {
  cancelAnimationFrame(gliding);
  const [fromBegin, fromSpan, toSpan] = [view.begin, view.end - view.begin, Math.max(end - begin, leastSpan())];
  if (calm.matches || milliseconds === 0) return setWindow(begin, end);
  const started = performance.now();
  const step = (now) => {
    const part = Math.min(1, Math.max(0, (now - started) / milliseconds));
    const eased = 1 - (1 - part) ** 3;
    const span = fromSpan * (toSpan / fromSpan) ** eased;
    const moved = Math.abs(toSpan - fromSpan) > 1e-9 * fromSpan ? (fromSpan - span) / (fromSpan - toSpan) : eased;
    const at = fromBegin + (begin - fromBegin) * moved;
    setWindow(at, at + span);
    if (part < 1) gliding = requestAnimationFrame(step);
  };
  gliding = requestAnimationFrame(step);
}

/** Zoom by a factor around a time; above 1 zooms out. */
function zoom(factor, around = (view.begin + view.end) / 2, milliseconds = 0) {
  const span = Math.min(Math.max((view.end - view.begin) * factor, leastSpan()), model.span);
  const part = (around - view.begin) / (view.end - view.begin);
  glide(around - span * part, around + span * (1 - part), milliseconds);
}

function pan(part, milliseconds = 0) {
  const span = view.end - view.begin;
  const begin = Math.min(Math.max(view.begin + span * part, 0), model.span - span);
  glide(begin, begin + span, milliseconds);
}

/** Show [begin, end] with a margin. */
function frame(begin, end, room = 0.15) {
  const span = Math.max(end - begin, leastSpan() / 2);
  const wide = Math.min(span * (1 + 2 * room), model.span);
  const middle = Math.min(Math.max((begin + end) / 2, wide / 2), model.span - wide / 2);
  glide(middle - wide / 2, middle + wide / 2, 260);
}

function choosePlace(place) {
  const count = model.about.places.length;
  const next = Math.min(Math.max(place, 0), count - 1);
  if (next === view.place || !count) return;
  view.place = next;
  changed("place");
}

function chooseFocus(name) {
  view.focus = view.focus === name ? null : name;
  changed("focus");
}

function select(line, index) {
  view.selection = line ? { line, index } : null;
  changed("selection");
}

/** Select the SM of a warp and its record that begins at a time, and show it. */
async function reveal(warp, name, begin) {
  const place = model.warps.place[warp];
  choosePlace(place);
  const found = await placeSlices(place);
  let best = null,
    least = Infinity;
  eachSlice(found, (line, index) => {
    if (line.warp !== warp || nameOf(line.code[index]) !== name) return;
    const away = Math.abs(timesOf(line, index)[0] - begin);
    if (away < least) [least, best] = [away, { line, index }];
  });
  if (!best) return;
  select(best.line, best.index);
  frame(...timesOf(best.line, best.index), 2);
}
