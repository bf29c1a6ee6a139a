// The details panel: the selected record, the measured range, or the recording.

function setUpDetails() {
  on(drawDetails, "selection", "place", "theme");
}

const pairs = (entries) =>
  element("dl", {}, ...entries.flatMap(([key, value]) => [element("dt", {}, key), element("dd", {}, value)]));

function drawDetails() {
  const body = document.querySelector("#details .body");
  const [heading, ...content] = view.range ? ofRange() : view.selection ? ofSelection() : ofRecording();
  document.querySelector("#details h2").textContent = heading;
  body.replaceChildren(...content);
}

function ofSelection() {
  const { line, index } = view.selection;
  const { about, warps } = model;
  const code = line.code[index],
    name = nameOf(code),
    kind = kindOf(code);
  const { warp } = line;
  const [begin, end] = timesOf(line, index);
  const launch = warps.launch[warp];
  const ticks = warps.timer[warp] ? "ns, globaltimer" : "cycles";
  const what = element("p", { className: "what" }, swatch(colors.css[name]), nameText(about.names[name]));
  const lane = warps.lane[warp] ? ` lane ${warps.lane[warp]}` : "";
  const numbered = `${warps.warp[warp]}${lane}, on ${placeText(warps.place[warp])}`;
  const facts = [
    ["begins", momentText(begin - model.launches.begin[launch], 0.1)],
    ["block", blockText(warp)],
    ["role", model.about.role_names[model.warps.role[warp]]],
    ["warp", numbered],
    ["launch", launchText(launch)],
  ];
  const value = valueText(line, index);
  if (value !== null) facts.unshift(["value", value]);
  const where = about.where[name];
  if (where) facts.push(["marked at", element("span", { title: where }, where.split("/").at(-1))]);
  const unknown = note("duration unknown: longer than a 32-bit clock can measure; ended here");
  if (kind === UNKNOWN) return ["Selected", what, unknown, pairs(facts)];
  if (kind !== SPAN) return ["Selected", what, pairs(facts)];
  facts.unshift(["cycles", warps.timer[warp] ? "-" : countText(line.cycles[index])]);
  if (warps.timer[warp]) facts[0] = ["clock", ticks];
  const long = element("p", { className: "long" }, timeText(end - begin));
  const rank = rankOf(name, end - begin);
  const bar = element("div", { className: "rank" }, element("i"));
  bar.firstChild.style.width = `${rank * 100}%`;
  const ranked = rank === null ? [] : [bar, note(rankText(rank, about.names[name]))];
  return ["Selected", what, long, ...ranked, pairs(facts)];
}

function rankText(rank, name) {
  if (rank === null) return "";
  const few = Number((rank * 100).toPrecision(3));
  return `longer than ${rank > 0.999 && rank < 1 ? "99.9+" : few} % of ${name}`;
}

/** Time per name on this SM within the measured range; spans are clipped to the range. */
function ofRange() {
  const [a, b] = view.range;
  const facts = [
    ["from", momentText(a, 0.1)],
    ["to", momentText(b, 0.1)],
  ];
  const content = [element("p", { className: "long" }, timeText(b - a)), pairs(facts)];
  if (warpsView.found?.place === view.place) {
    const totals = new Map();
    eachSlice(warpsView.found, (line, index) => {
      const [begin, end] = timesOf(line, index);
      const inside = Math.min(end, b) - Math.max(begin, a);
      if (inside < 0 || kindOf(line.code[index]) !== SPAN) return;
      const name = nameOf(line.code[index]);
      const sum = totals.get(name) ?? { count: 0, time: 0 };
      totals.set(name, { count: sum.count + 1, time: sum.time + inside });
    });
    const longest = [...totals].sort((x, y) => y[1].time - x[1].time).slice(0, 40);
    const rows = longest.map(([name, { count, time }]) => {
      const region = element("td", {}, regionText(model.about.names[name], colors.css[name]));
      const numbers = [countText(count), timeText(time)].map((text) => element("td", { className: "num" }, text));
      return element("tr", {}, region, ...numbers);
    });
    content.push(note(`on ${placeText(view.place)}, in all its warps:`));
    content.push(element("table", {}, element("tbody", {}, ...rows)));
  }
  return ["Measured", ...content];
}

function ofRecording() {
  const { about } = model;
  const facts = [["in no region", shareText(about.idle)]];
  if (about.clock === "gpu") facts.push(["SMs aligned", `± ${timeText(about.error)}`]);
  if (about.clock === "gpu" && about.tick) facts.push(["timer tick", timeText(about.tick)]);
  const notes = about.filtered ? ["Filtered trace: times and counts cover the kept records only."] : [];
  const rows = uneven();
  if (!rows.length) notes.push("Click a box to select it, drag with shift to measure, press ? for all keys.");
  const texts = [about.recorded, ...notes].filter(Boolean).map(note);
  return ["Recording", pairs(facts), ...rows, ...texts];
}

/** The least balanced rows: those with the most time above the median. */
function uneven() {
  const weight = (row) => (row.imbalance - 1) * (row.share ?? 0);
  const rows = model.about.table
    .filter((row) => row.imbalance > 1.1 && row.share > 0.005)
    .sort((a, b) => weight(b) - weight(a));
  if (!rows.length) return [];
  const items = rows.slice(0, 4).map((row) => {
    const name = model.numbers.get(row.region);
    const content = [swatch(colors.css[name]), nameText(row.region), ` ${row.worst}`];
    return element("li", {}, button(() => chooseFocus(name), ...content));
  });
  return [element("h3", {}, "Uneven"), element("ul", { className: "uneven" }, ...items)];
}
