// Draws the records of a line. Records narrower than two pixels go into an image with one pixel row per line, which is
// stretched to the line's height; wider records are boxes with their names.

const BOX_FROM = 2,
  TEXT_FROM = 26; // pixels
const overlays = []; // drawn over the images of a row

function drawLine(context, line, place, width, matches, pictures) {
  const { start, pace } = model.warps;
  const [at, rate] = [start[line.warp], pace[line.warp]];
  const [from, to] = [(view.begin - at) / rate, (view.end - at) / rate];
  const kind = kindOf(line.code[line.from]);
  const y = place.top + line.number * place.high;
  if (kind === COUNTER) return drawCounter(context, line, y, place.high, width);
  const pixels = Math.max(1, Math.round(width - GUTTER));
  const perTick = (rate * pixels) / (view.end - view.begin);
  const level = matches.exact ? line : levelFor(line, from, to, pixels);
  const origin = ((at - view.begin) / (view.end - view.begin)) * pixels;
  const { end, dur, code, busy } = level;
  const thin = level !== line;
  const { ratio } = warpsView.surface;
  let drawn = -1;
  for (let i = firstAfter(end, level.from, level.to, from - 2 / perTick); i < level.to; i++) {
    const begin = end[i] - dur[i];
    if (begin > to) break;
    const a = origin + begin * perTick,
      b = origin + end[i] * perTick;
    const one = code[i];
    if (!thin && kindOf(one) !== SPAN) {
      if (b > drawn + 2) overlays.push(() => drawPoint(context, line, i, GUTTER + b, y, place.high, matches));
      drawn = b;
      continue;
    }
    const matching = matches.slice(line, thin ? -1 : i, one);
    if (b - a >= BOX_FROM && !thin) {
      drawBox(context, one, GUTTER + a, GUTTER + b, y, place.high, width, matching);
      continue;
    }
    const picture = (pictures[line.number] ??= new Uint32Array(Math.round(pixels * ratio)));
    const isMatch = matching && !matches.all; // highlight matches of any length
    const first = Math.max(0, Math.floor(a * ratio));
    const last = Math.min(picture.length, Math.max(Math.ceil(b * ratio), first + (isMatch ? 2 : 1)));
    const filled = isMatch ? 1 : thin ? Math.min(1, busy[i] / Math.max(dur[i], 1)) : Math.min(1, Math.max(0.45, b - a));
    const packed = matching ? colors.packed[nameOf(one)] : colors.faded[nameOf(one)];
    const pixel = ((Math.round(90 + 165 * filled) << 24) | packed) >>> 0;
    for (let x = first; x < last; x++) if (matching || !picture[x]) picture[x] = pixel;
  }
}

/** The finest level with at most one visible item per pixel. */
function levelFor(line, from, to, pixels) {
  if (line.to - line.from <= 2 * pixels) return line;
  for (const level of levelsOf(line)) {
    const first = firstAfter(level.end, level.from, level.to, from);
    if (firstAfter(level.end, first, level.to, to) - first <= 2 * pixels) return level;
  }
  return line.levels.at(-1);
}

function drawBox(context, code, a, b, y, high, width, matching) {
  const name = nameOf(code);
  const left = Math.max(a, GUTTER - 2),
    right = Math.min(b, width + 2);
  const gap = right - left > 4 ? 0.5 : 0;
  fill(context, matching ? colors.css[name] : colors.fadedCss[name], left, y, right - left - gap, high - 1);
  if (right - left < TEXT_FROM || high < 11) return;
  clip(context, left, y, right - left - 3, high);
  context.fillStyle = matching ? colors.ink[name] : themed("--faint");
  context.fillText(model.about.names[name], Math.max(left, GUTTER) + 4, y + high / 2 - 0.5);
  context.restore();
}

/** Draw an instant, or the end of a span of unknown length. */
function drawPoint(context, line, index, x, y, high, matches) {
  const code = line.code[index];
  const name = nameOf(code);
  context.fillStyle = matches.slice(line, index, code) ? colors.css[name] : colors.fadedCss[name];
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

/** Draw a counter as steps, scaled to its global minimum and maximum. */
function drawCounter(context, line, y, high, width) {
  const { start, pace } = model.warps;
  const name = nameOf(line.code[line.from]);
  const point = model.about.points.find((one) => one.name === model.about.names[name]);
  const [least, most] = [Math.min(0, point?.least ?? 0), Math.max(point?.greatest ?? 1, (point?.least ?? 0) + 1e-9)];
  const [at, rate] = [start[line.warp], pace[line.warp]];
  const first = Math.max(line.from, firstAfter(line.end, line.from, line.to, (view.begin - at) / rate) - 1);
  context.fillStyle = colors.css[name];
  let drawn = -Infinity;
  for (let i = first; i < line.to; i++) {
    const a = xOf(at + line.end[i] * rate, width);
    if (a > width) break;
    const b = i + 1 < line.to ? xOf(at + line.end[i + 1] * rate, width) : xOf(model.warps.end[line.warp], width);
    if (b < drawn + 0.5) continue;
    const tall = Math.max(1, ((line.value[i] - least) / (most - least)) * (high - 2));
    context.fillRect(a, y + high - 1 - tall, Math.max(b - a, 0.8), tall);
    drawn = b;
  }
}

function stretch(context, picture, y, high, width) {
  const buffer = (warpsView.buffer ??= new OffscreenCanvas(1, 1));
  if (buffer.width !== picture.length) buffer.width = picture.length;
  const image = new ImageData(new Uint8ClampedArray(picture.buffer), picture.length, 1);
  buffer.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(buffer, 0, 0, picture.length, 1, GUTTER, y, width - GUTTER, high - 1);
}
