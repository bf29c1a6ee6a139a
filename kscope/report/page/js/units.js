// Formatting and parsing of numbers with units.

const SCALES = [
  ["ns", 1],
  ["µs", 1e3],
  ["ms", 1e6],
  ["s", 1e9],
];

/** Nanoseconds with a unit and four digits: 5.05 ns, 123.4 µs; - if unknown. */
function timeText(ns) {
  if (ns === null || ns === undefined || Number.isNaN(ns)) return "-";
  const size = Math.abs(ns);
  const [unit, scale] = SCALES.find(([, one]) => size < 999.95 * one) ?? SCALES[3];
  return `${Number((ns / scale).toPrecision(4))} ${unit}`;
}

/** A point in time, to the resolution of a pixel. */
function momentText(ns, step) {
  const [unit, scale] = SCALES.findLast(([, one]) => Math.abs(ns) >= one) ?? SCALES[0];
  const digits = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step / scale))));
  return `${(ns / scale).toFixed(digits)} ${unit}`;
}

const countText = (count) => count.toLocaleString("en-US");
const counted = (count, noun) =>
  `${countText(count)} ${count === 1 ? noun : noun + (/(s|ch)$/.test(noun) ? "es" : "s")}`;
const shareText = (share) => (share === null || Number.isNaN(share) ? "-" : `${(share * 100).toFixed(1)} %`);

/** A rounded count: 1.2 M, 45 k. */
function roughly(count) {
  if (count < 1e4) return countText(count);
  return count < 1e6 ? `${Number((count / 1e3).toPrecision(3))} k` : `${Number((count / 1e6).toPrecision(3))} M`;
}

/** Parse "2us", "1.5 ms", "300" (ns) to ns; NaN for anything else. */
function parseTime(text) {
  const found = /^(\d+(?:\.\d+)?|\.\d+)\s*(ns|us|µs|ms|s)?$/i.exec(text);
  if (!found) return NaN;
  const unit = (found[2] ?? "ns").toLowerCase().replace("us", "µs");
  return Number(found[1]) * SCALES.find(([name]) => name === unit)[1];
}

/** The smallest 1, 2 or 5 times a power of ten that is at least `least`. */
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= least * 0.999999);
}
