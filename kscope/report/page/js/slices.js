// The records of an SM, unpacked when first shown. Counterpart of slices.py.
//
// A place (SM) has rows; a row has warps that are disjoint in time; a warp has lines, one per depth, with sorted
// records that do not overlap. A line with more records than pixels is thinned into levels: each item of a level
// replaces four of the level below.
//
// `thread` of a row is warp * 32 + lane of its warps; `same` is true if all its warps agree.

const THIN = 4,
  THIN_FROM = 1024;
const places = new Map();

/** A promise of the rows of a place. */
function placeSlices(place) {
  if (!places.has(place)) places.set(place, readPlace(place));
  return places.get(place);
}

const ready = new Map(); // place -> rows, once unpacked

async function readPlace(place) {
  const { about, warps } = model;
  const rows = [];
  for (const [index, chunk] of about.chunks.entries()) {
    if (chunk.place !== place) continue;
    const columns = await unpack(`slices-${index}`, chunk.spec);
    for (const one of readWarps(columns, chunk)) {
      const thread = warps.warp[one.warp] * 32 + warps.lane[one.warp];
      const row = (rows[warps.row[one.warp]] ??= { warps: [], lines: 1, thread, same: true });
      row.same &&= row.thread === thread;
      row.warps.push(one);
      for (const line of one.lines) row.lines = Math.max(row.lines, line.number + 1);
    }
  }
  for (let row = 0; row < rows.length; row++) rows[row] ??= { warps: [], lines: 1, thread: 0, same: false };
  const count = rows.reduce((sum, row) => sum + row.warps.reduce((n, warp) => n + warp.count, 0), 0);
  const found = { place, rows, count };
  ready.set(place, found);
  return found;
}

/** The warps of a chunk: records sorted by line, then by end. Times are ticks since the warp's first. */
function readWarps(columns, chunk) {
  const { about, warps } = model;
  const lineOf = Uint8Array.from(about.codes.line);
  const valued = about.codes.valued;
  const total = columns.code.length;
  const end = new Float64Array(total);
  const dur = new columns.dur.constructor(total);
  const cycles = columns.cycles ? new columns.cycles.constructor(total) : dur;
  const code = new columns.code.constructor(total);
  const value = columns.value?.length ? new Float64Array(total).fill(NaN) : null;
  const exact = new Map(); // index -> digits, of integers beyond 2^53
  const counts = new Uint32Array(129);
  const found = [];
  let from = 0,
    taken = 0;
  for (let warp = chunk.first; warp < chunk.last; warp++) {
    const to = from + warps.count[warp];
    counts.fill(0);
    for (let i = from; i < to; i++) counts[lineOf[columns.code[i]] + 1]++;
    const lines = [];
    for (let number = 0; number < 128; number++) {
      counts[number + 1] += counts[number];
      const [a, b] = [from + counts[number], from + counts[number + 1]];
      if (b > a) lines.push({ warp, number, end, dur, cycles, code, value, exact, from: a, to: b, levels: null });
    }
    let tick = 0;
    for (let i = from; i < to; i++) {
      const step = columns.end[i];
      tick += chunk.signed ? (step % 2 ? -(step + 1) / 2 : step / 2) : step;
      const one = columns.code[i];
      const at = from + counts[lineOf[one]]++;
      end[at] = tick;
      dur[at] = columns.dur[i];
      if (columns.cycles) cycles[at] = columns.cycles[i];
      code[at] = one;
      if (value && valued[one]) {
        const number = numberOf(columns.value[taken], columns.high?.[taken] ?? 0, warp, one);
        taken++;
        value[at] = Number(number);
        if (typeof number === "bigint" && !Number.isSafeInteger(value[at])) exact.set(at, String(number));
      }
    }
    found.push({ warp, lines, count: to - from });
    from = to;
  }
  return found;
}

const scratch = new DataView(new ArrayBuffer(8));
const TYPES = [
  () => scratch.getInt32(4),
  () => scratch.getUint32(4),
  () => scratch.getFloat32(4),
  () => scratch.getBigInt64(0),
  () => scratch.getBigUint64(0),
  () => scratch.getFloat64(0),
];

/** A user value in its declared type: i32, u32, f32, or the same of 64 bits, whose integers are BigInts. */
function numberOf(bits, high, warp, code) {
  const { about, warps, launches } = model;
  scratch.setUint32(0, high);
  scratch.setUint32(4, bits);
  return TYPES[about.codes.types[launches.kernel[warps.launch[warp]]]?.[code] ?? 0]();
}

/** The text of a record's value; null without one. */
function valueText(line, index) {
  const number = line.value?.[index] ?? NaN;
  if (Number.isNaN(number)) return null;
  return line.exact.get(index) ?? String(Number.isInteger(number) ? number : Number(number.toPrecision(9)));
}

/** The first number in [from, to) that is not before something. */
function firstNot(isBefore, from, to) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (isBefore(middle)) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** The first index in [from, to) whose end is after a tick. */
const firstAfter = (end, from, to, tick) => firstNot((index) => end[index] <= tick, from, to);

/** The first warp of a row that ends at or after a time. */
const warpAfter = ({ warps }, ns) => firstNot((at) => model.warps.end[warps[at].warp] < ns, 0, warps.length);

/** The levels of a line: level 0 is the line itself. */
function levelsOf(line) {
  if (line.levels) return line.levels;
  line.levels = [line];
  let below = { end: line.end, dur: line.dur, busy: line.dur, code: line.code, from: line.from, to: line.to };
  while (below.to - below.from > THIN_FROM) {
    const size = Math.ceil((below.to - below.from) / THIN);
    const level = {
      end: new Float64Array(size),
      dur: new Float64Array(size),
      busy: new Float64Array(size),
      code: new Uint16Array(size),
      from: 0,
      to: size,
    };
    for (let at = 0, i = below.from; at < size; at++, i += THIN) {
      const last = Math.min(i + THIN, below.to) - 1;
      let longest = i,
        busy = 0;
      for (let j = i; j <= last; j++) {
        busy += below.busy[j];
        if (below.busy[j] > below.busy[longest]) longest = j;
      }
      level.end[at] = below.end[last];
      level.dur[at] = below.end[last] - (below.end[i] - below.dur[i]);
      level.busy[at] = busy;
      level.code[at] = below.code[longest];
    }
    line.levels.push(level);
    below = level;
  }
  return line.levels;
}

/** [begin, end] of a record on the page's axis, ns. */
function timesOf(line, index) {
  const { start, pace } = model.warps;
  const [at, rate] = [start[line.warp], pace[line.warp]];
  return [at + (line.end[index] - line.dur[index]) * rate, at + line.end[index] * rate];
}

/** Call back with (line, index) for every record of a place. */
function eachSlice(found, visit) {
  for (const row of found.rows) {
    for (const warp of row.warps) {
      for (const line of warp.lines) {
        for (let index = line.from; index < line.to; index++) visit(line, index);
      }
    }
  }
}

let reading = false;

/** Unpack the remaining places one by one in the background. */
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
