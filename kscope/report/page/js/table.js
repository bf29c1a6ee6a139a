// The table of regions, per kernel; a click on a row searches for its region.

const COLUMNS = [
  ["region", (row) => row.region, null],
  ["durations", null, null],
  ["count", (row) => row.count, (row) => countText(row.count)],
  ["warp time", (row) => row.warp_time_ns, (row) => timeText(row.warp_time_ns)],
  ["wall", (row) => row.wall_ns, (row) => timeText(row.wall_ns)],
  ["share", (row) => row.share, (row) => shareText(row.share)],
  ["imbalance", (row) => row.imbalance, (row) => (row.imbalance === null ? "-" : `${row.imbalance.toFixed(2)}×`)],
  ["self", (row) => row.self_ns, (row) => timeText(row.self_ns)],
  ["waits for", null, null],
  ["mean", (row) => row.mean_ns, (row) => timeText(row.mean_ns)],
  ["p50", (row) => row.p50_ns, (row) => timeText(row.p50_ns)],
  ["p99", (row) => row.p99_ns, (row) => timeText(row.p99_ns)],
  ["max", (row) => row.max_ns, (row) => timeText(row.max_ns)],
];
const NOTABLE = 1.5; // highlight imbalance from here
const MOST_ROWS = 500;
const ALL_COLUMNS = 1400; // pixels from which on there are the columns of WIDE
const WIDE = new Set(["mean", "p99", "max"]);
const table = { sort: "warp time", down: true, shown: "regions" };

function setUpTable() {
  const names = ["regions", ...model.about.tables.map(({ name }) => name)];
  const show = (name) => () => {
    table.shown = name;
    drawTable();
  };
  const buttons = names.map((name) => button(show(name), name));
  document.querySelector("#table .choice").replaceChildren(...buttons);
  on(drawTable, "query", "focus", "theme");
}

/** One of the further tables, whose cells are text. */
function plainTable({ head, words, rows, note: about }) {
  const kind = (at) => (at >= words ? "num" : head[at] === "source" ? "word code" : "word");
  const cells = (row, tag) => row.map((text, at) => element(tag, { className: kind(at) }, nameText(text)));
  const body = rows.map((row) => element("tr", {}, ...cells(row, "td")));
  const top = element("thead", {}, element("tr", {}, ...cells(head, "th")));
  const made = element("table", { className: "plain" }, top, element("tbody", {}, ...body));
  return about ? [made, note(about)] : [made];
}

function drawTable() {
  const { about } = model;
  for (const one of document.querySelectorAll("#table .choice button"))
    one.setAttribute("aria-pressed", one.textContent === table.shown);
  const other = about.tables.find(({ name }) => name === table.shown);
  if (other) return document.querySelector("#table .body").replaceChildren(...plainTable(other));
  const columns = shownColumns();
  const heads = columns.map(([name, key]) => {
    const cell = element("th", { scope: "col", title: HEADS[name] ?? "" });
    if (name === table.sort) cell.ariaSort = table.down ? "descending" : "ascending";
    cell.append(key ? sorter(name) : name);
    return cell;
  });
  const rows = [];
  const matches = matcher();
  for (const kernel of new Set(about.table.map((row) => row.kernel))) {
    if (view.query?.kernels && !view.query.kernels.has(about.kernels.indexOf(kernel))) continue;
    if (about.kernels.length > 1)
      rows.push(element("tr", { className: "kernel" }, element("td", { colSpan: columns.length }, nameText(kernel))));
    const own = about.table.filter((row) => row.kernel === kernel && matches.name(model.numbers.get(row.region), true));
    rows.push(...sorted(own).slice(0, MOST_ROWS - rows.length).map(tableRow));
  }
  const top = element("thead", {}, element("tr", {}, ...heads));
  const made = element("table", {}, top, element("tbody", {}, ...rows));
  const points = about.points.map((row) => note(pointText(row)));
  const few = `the first ${MOST_ROWS} of ${countText(about.table.length)} rows; search to narrow them`;
  const cut = about.table.length > MOST_ROWS ? [note(few)] : [];
  document.querySelector("#table .body").replaceChildren(made, ...cut, ...points);
  sparks.disconnect();
  for (const canvas of made.querySelectorAll("canvas")) sparks.observe(canvas);
}

/** Draw the small histograms of rows when they become visible. */
const sparks = new IntersectionObserver((seen) => {
  for (const { isIntersecting, target } of seen) {
    if (!isIntersecting) continue;
    sparks.unobserve(target);
    drawSpark(target, Number(target.dataset.name));
  }
});

/** Without nested regions, self equals warp time; without samples, nothing is known of waits. A narrow window has no
 * room for every column. */
function shownColumns() {
  table.nested ??= model.about.table.some((row) => row.self_ns < row.warp_time_ns * 0.9999);
  const roomy = innerWidth >= ALL_COLUMNS;
  const absent = new Set([
    ...(table.nested ? [] : ["self"]),
    ...(roomy ? [] : WIDE),
    ...(model.about.table.some((row) => row.waits) ? [] : ["waits for"]),
  ]);
  return COLUMNS.filter(([name]) => !absent.has(name));
}

const HEADS = {
  "warp time": "duration of all spans, summed over warps",
  wall: "how long at least one warp was in the region",
  share: "share of the warps' lifetime",
  self: "warp time minus the time in nested regions",
  imbalance: "largest warp time of an SM, block or warp divided by the median",
  "waits for": "samples by reason; what was issued is green",
  durations: "histogram of durations, logarithmic axis",
};

function sorter(name) {
  const arrow = name === table.sort ? (table.down ? " ↓" : " ↑") : "";
  const sort = () => {
    table.down = table.sort === name ? !table.down : name !== "region";
    table.sort = name;
    drawTable();
    document.querySelector("#table th[aria-sort] button").focus();
  };
  return button(sort, name + arrow);
}

function sorted(rows) {
  const key = COLUMNS.find(([name]) => name === table.sort)[1];
  const order = (a, b) => (typeof key(a) === "string" ? key(a).localeCompare(key(b)) : (key(a) ?? -1) - (key(b) ?? -1));
  return rows.sort((a, b) => (table.down ? order(b, a) : order(a, b)));
}

function tableRow(row) {
  const name = model.numbers.get(row.region);
  const made = element("tr", { className: view.focus === name ? "focused" : "" });
  for (const [column, key, text] of shownColumns()) {
    const cell = element("td", { className: column === "region" ? "" : "num" });
    if (column === "region") {
      cell.append(regionText(row.region, colors.css[name]));
      if (row.hint) cell.append(element("span", { className: "hint" }, row.hint));
    } else if (column === "waits for") cell.append(waitsBar(row.waits ?? []));
    else if (column === "durations") cell.append(element("canvas", { "data-name": name }));
    else cell.append(text(row));
    if (column === "share") {
      cell.classList.add("share");
      cell.style.backgroundSize = `${Math.min(1, row.share ?? 0) * 100}% 100%`;
    }
    if (column === "imbalance") {
      cell.title = row.worst;
      if (key(row) > NOTABLE) cell.classList.add("much");
    }
    made.append(cell);
  }
  made.tabIndex = 0;
  made.onclick = () => chooseFocus(name);
  made.onkeydown = (event) => {
    if (event.key !== "Enter") return;
    event.stopPropagation();
    chooseFocus(name);
  };
  return made;
}

/** A part for each reason, as wide as its share of the region's samples. */
function waitsBar(waits) {
  const parts = waits.map(([reason, share, color]) => {
    const part = element("span", { title: `${reason} ${shareText(share)}` });
    part.style.background = color;
    part.style.width = `${share * 100}%`;
    return part;
  });
  return element("div", { className: "waits" }, ...parts);
}

function pointText(row) {
  const numbers = row.mean === null ? "" : `: ${row.least} to ${row.greatest}, mean ${Number(row.mean.toPrecision(6))}`;
  return `${row.name}, ${counted(row.count, row.kind)}${numbers}`;
}
