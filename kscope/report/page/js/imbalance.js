// Imbalance: the time of each region by SM, warp or block, relative to the row's median.

const balance = { surface: null, across: "place", row: 20 };
const MUCH = 0.5; // relative distance from the median with full color

function setUpBalance() {
  balance.surface = new Surface(document.querySelector("#balance canvas"));
  on(drawBalance, "query", "focus", "place", "theme", "size");
  exclusive("#balance .choice", ({ across }) => {
    balance.across = across;
    drawBalance();
  });
  const { canvas } = balance.surface;
  canvas.onpointermove = (event) => {
    const hit = balanceAt(event);
    if (!hit) return hideTip();
    const text = hit.median ? `${(hit.value / hit.median).toFixed(2)}× the median of ${timeText(hit.median)}` : "";
    const value = `${columnText(hit.column)}: ${timeText(hit.value)}`;
    return showTip(event, model.about.names[hit.name], colors.css[hit.name], value, text);
  };
  canvas.onpointerleave = hideTip;
  canvas.onclick = (event) => {
    const hit = balanceAt(event);
    if (!hit) return;
    if (balance.across === "place") choosePlace(hit.column);
    if (balance.across === "warp") search(`warp ${hit.column}`);
    if (balance.across === "block") search(`block #${model.figures.first_block[hit.column]}`);
    if (view.focus !== hit.name) chooseFocus(hit.name);
  };
}

function balanceColumns() {
  const { figures, places } = model.about;
  return { place: places.length, warp: figures.warps, block: model.figures.first_block.length }[balance.across];
}

function columnText(column) {
  if (balance.across === "place") return placeText(column);
  if (balance.across === "warp") return `warp ${column}`;
  const [first, last] = [model.figures.first_block[column], model.figures.last_block[column]];
  return last > first ? `blocks ${blockOfAny(first)} to ${blockOfAny(last)}` : `block ${blockOfAny(first)}`;
}

/** The rows to show: names with spans that match the search. */
function balanceRows() {
  const matches = matcher();
  const count = model.about.figures.names;
  return Array.from({ length: count }, (_, name) => name)
    .filter((name) => binsOf(name) && matches.name(name, true))
    .slice(0, 200);
}

function balanceRow(name) {
  const columns = balanceColumns();
  const values = model.figures[`by_${balance.across}`].subarray(name * columns, (name + 1) * columns);
  const some = values.filter((value) => value > 0).sort();
  const median = some.length ? (some[(some.length - 1) >> 1] + some[some.length >> 1]) / 2 : 0;
  return { values, median };
}

/** As wide as the longest name, within limits. */
function balanceGutter() {
  const { context, width } = balance.surface;
  context.font = CANVAS_FONT;
  const names = balanceRows().map((name) => context.measureText(model.about.names[name]).width);
  return Math.min(Math.max(60, ...names) + 20, 160, width * 0.5);
}

function drawBalance() {
  const { surface } = balance;
  const names = balanceRows();
  const space = document.querySelector("#balance .body").clientHeight;
  balance.row = Math.min(30, Math.max(14, Math.floor(space / Math.max(1, names.length))));
  surface.canvas.style.height = `${Math.max(1, names.length * balance.row)}px`;
  const context = surface.fresh();
  const columns = balanceColumns(),
    gutter = balanceGutter();
  const wide = (surface.width - gutter - 10) / columns;
  let worst = null;
  textStyle(context);
  names.forEach((name, at) => {
    const y = at * balance.row;
    const { values, median } = balanceRow(name);
    context.fillStyle = themed(view.focus === name ? "--ink" : "--soft");
    context.fillText(shortened(context, model.about.names[name], gutter - 16), 10, y + balance.row / 2);
    values.forEach((value, column) => {
      const color = value ? deviation(value / median - 1) : themed("--sunken");
      const cell = Math.max(wide - (wide > 4 ? 1 : 0), 0.6);
      fill(context, color, gutter + column * wide, y + 1, cell, balance.row - 2);
      const far = value - median; // the time that it costs, so that short regions do not count as much as long ones
      if (value > median * 1.01 && far > (worst?.far ?? 0)) worst = { far, times: value / median, name, column };
    });
  });
  if (balance.across === "place" && names.length) {
    context.strokeStyle = themed("--ink");
    context.strokeRect(gutter + view.place * wide - 0.5, 0.5, Math.max(wide, 2), names.length * balance.row - 1);
  }
  const times = worst && `${worst.times.toFixed(2)}× the median of ${model.about.names[worst.name]}`;
  const most = worst && `${columnText(worst.column)}, ${times}`;
  document.querySelector("#balance .scale").textContent = worst ? `farthest above the median: ${most}` : "";
}

function shortened(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) length--;
  return `${text.slice(0, length)}…`;
}

/** Blue below the median, orange above. */
function deviation(part) {
  const strength = Math.min(1, Math.abs(part) / MUCH);
  const ground = colors.dark ? [38, 45, 55] : [236, 239, 243];
  const target = part > 0 ? [232, 112, 40] : [52, 120, 226];
  return `rgb(${ground.map((value, at) => Math.round(value + (target[at] - value) * strength)).join(" ")})`;
}

function balanceAt(event) {
  const names = balanceRows();
  const columns = balanceColumns(),
    gutter = balanceGutter();
  const column = Math.floor(((event.offsetX - gutter) / (balance.surface.width - gutter - 10)) * columns);
  const name = names[Math.floor(event.offsetY / balance.row)];
  if (name === undefined || column < 0 || column >= columns) return null;
  const { values, median } = balanceRow(name);
  return { name, column, value: values[column], median };
}
