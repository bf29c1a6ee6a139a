// Pointer and keyboard input of the overview and the warps.

const KEYS = [
  ["w  s  +  -", "zoom in and out, or use the wheel"],
  ["a  d  ←  →", "pan, or drag"],
  ["↑  ↓", "select the SM above or below"],
  ["PageUp  PageDown", "scroll through the warps of this SM"],
  ["[  ]", "previous, next launch"],
  ["f", "fit the selection or the measured range"],
  ["0", "show everything"],
  ["/", "search: load, >2us, sm 17, block 0,8, warp 3, launch 2"],
  ["Enter  n  N", "next match, previous match"],
  [",  .", "previous, next record in the same line"],
  ["shift + drag", "measure a time range"],
  ["t", "switch between dark and light"],
  ["Escape", "clear selection, range and search"],
];

function setUpInput() {
  listen(overview.surface.canvas, overviewPointer);
  listen(warpsView.surface.canvas, warpsPointer);
  document.addEventListener("keydown", pressed);
  byId("help").onclick = showKeys;
  byId("theme").onclick = turnTheme;
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.onclick = (event) => {
      if (event.target === dialog) dialog.close();
    };
  }
}

/** The launch at a time of the strip; -1 if there is none, or the pointer is below. */
function launchAt(event, ns) {
  const { begin, end } = model.launches;
  return event.offsetY < RULER + STRIP ? begin.findIndex((at, one) => at <= ns && end[one] >= ns) : -1;
}

const overviewPointer = {
  hover(event, ns) {
    if (event.offsetX < GUTTER || event.offsetY < RULER) return hideTip();
    if (event.offsetY < RULER + STRIP) {
      const launch = launchAt(event, ns);
      if (launch < 0) return hideTip();
      const lasted = timeText(model.launches.end[launch] - model.launches.begin[launch]);
      return showTip(event, launchText(launch), null, `lasted ${lasted}`, "double-click to show it");
    }
    const place = placeAt(event.offsetY);
    const moment = momentText(ns, 1 / scaleOf(overview.surface.width));
    return showTip(event, placeText(place), null, moment, cellText(place, ns));
  },
  click(event) {
    if (event.offsetY > RULER + STRIP) choosePlace(placeAt(event.offsetY));
  },
  twice(event, ns) {
    const launch = launchAt(event, ns);
    if (launch >= 0) showLaunch(launch);
    else zoom(0.25, ns, 220);
  },
  scroll: null,
};

const warpsPointer = {
  hover(event) {
    const hit = warpsAt(event.offsetX, event.offsetY);
    warpsView.surface.canvas.style.cursor = hit?.line ? "pointer" : "default";
    if (!hit) return hideTip();
    const outside = model.warps.done[hit.warp] ? "outside all regions" : "did not finish";
    if (!hit.line) return showTip(event, blockWarpText(hit.warp), null, outside);
    const { line, index } = hit;
    const code = line.code[index],
      [begin, end] = timesOf(line, index);
    const lines =
      kindOf(code) === SPAN
        ? [`${timeText(end - begin)}${model.warps.timer[line.warp] ? "" : `, ${counted(line.cycles[index], "cycle")}`}`]
        : [kindOf(code) === UNKNOWN ? "duration unknown" : momentText(begin, 0.1)];
    const value = valueText(line, index);
    if (value !== null) lines.push(`value ${value}`);
    const name = nameOf(code);
    return showTip(event, model.about.names[name], colors.css[name], ...lines, blockWarpText(line.warp));
  },
  click(event) {
    const hit = warpsAt(event.offsetX, event.offsetY);
    view.range = null;
    select(hit?.line ?? null, hit?.index);
  },
  twice(event, ns) {
    const hit = warpsAt(event.offsetX, event.offsetY);
    if (hit?.line) frame(...timesOf(hit.line, hit.index));
    else zoom(0.25, ns, 220);
  },
  get scroll() {
    return warpsView.scroll;
  },
};

/** The tooltip text of an overview cell. */
function cellText(place, ns) {
  const { levels, rows, names, far } = model.about;
  const level = levels.length - 1,
    bins = levels[level];
  const cell = place * bins + Math.min(bins - 1, Math.max(0, Math.floor((ns / model.span) * bins)));
  const { name, alive, busy } = model.heat[level];
  const warps = (share) => Number(((share[cell] / 255) * rows).toFixed(1));
  if (!alive[cell]) return "no warp recorded here";
  if (name[cell] === NOTHING) return `${warps(alive)} warps alive, outside all regions`;
  const most = name[cell] === far && names.length > far + 1 ? "others" : names[name[cell]];
  return `mostly ${most}; ${warps(busy)} of ${warps(alive)} warps in a region`;
}

/** Handle wheel, drag, click, double click and hover on a canvas. */
function listen(canvas, act) {
  let drag = null;
  const nsAt = (event) => nsOf(event.offsetX, canvas.clientWidth);
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      hideTip();
      const unit = event.deltaMode === 1 ? 33 : 1;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
        pan(((event.deltaX || event.deltaY) * unit) / canvas.clientWidth);
      else zoom(Math.exp(event.deltaY * unit * 0.0018), nsAt(event));
    },
    { passive: false },
  );
  canvas.onpointerdown = (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    drag = {
      x: event.offsetX,
      y: event.clientY,
      begin: view.begin,
      end: view.end,
      at: nsAt(event),
      moved: false,
      measures: event.shiftKey,
      top: act.scroll?.scrollTop,
    };
  };
  canvas.onpointermove = (event) => {
    view.pointer = event.offsetX < GUTTER ? null : event.offsetX;
    if (!drag) {
      act.hover(event, nsAt(event));
      changed("window");
      return;
    }
    if (Math.abs(event.offsetX - drag.x) + Math.abs(event.clientY - drag.y) > 3) drag.moved = true;
    if (!drag.moved) return;
    hideTip();
    if (drag.measures) {
      const [a, b] = [drag.at, nsAt(event)].map((ns) => Math.min(Math.max(ns, 0), model.span));
      view.range = [Math.min(a, b), Math.max(a, b)];
      changed("window");
      changed("selection");
      return;
    }
    cancelAnimationFrame(gliding);
    const shift = (drag.x - event.offsetX) / scaleOf(canvas.clientWidth);
    const begin = Math.min(Math.max(drag.begin + shift, 0), model.span - (drag.end - drag.begin));
    setWindow(begin, begin + drag.end - drag.begin);
    if (act.scroll) act.scroll.scrollTop = drag.top + drag.y - event.clientY;
  };
  canvas.onpointerup = (event) => {
    if (drag && !drag.moved) act.click(event);
    drag = null;
  };
  canvas.onpointercancel = () => {
    drag = null;
  };
  canvas.ondblclick = (event) => act.twice(event, nsAt(event));
  canvas.onpointerleave = () => {
    view.pointer = null;
    hideTip();
    changed("window");
  };
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const deeds = {
    w: () => zoom(0.5, pointed(), 140),
    "+": () => zoom(0.5, pointed(), 140),
    "=": () => zoom(0.5, pointed(), 140),
    s: () => zoom(2, pointed(), 140),
    "-": () => zoom(2, pointed(), 140),
    a: () => pan(-0.25, 120),
    ArrowLeft: () => pan(-0.25, 120),
    d: () => pan(0.25, 120),
    ArrowRight: () => pan(0.25, 120),
    ArrowUp: () => choosePlace(view.place - 1),
    ArrowDown: () => choosePlace(view.place + 1),
    "[": () => stepLaunch(-1),
    "]": () => stepLaunch(1),
    f: fitChosen,
    0: () => glide(0, model.span, 260),
    "/": () => {
      byId("query").focus();
      byId("query").select();
    },
    n: () => nextMatch(1),
    N: () => nextMatch(-1),
    Enter: () => (event.target.tagName === "BUTTON" ? null : nextMatch(event.shiftKey ? -1 : 1)),
    PageUp: () => scrollWarps(-1),
    PageDown: () => scrollWarps(1),
    ".": () => stepRecord(1),
    ",": () => stepRecord(-1),
    t: turnTheme,
    "?": showKeys,
    Escape: letGo,
  };
  const deed = deeds[event.key];
  if (!deed || (event.key === "Enter" && event.target.tagName === "BUTTON")) return;
  event.preventDefault();
  hideTip();
  deed();
}

const pointed = () =>
  view.pointer === null ? (view.begin + view.end) / 2 : nsOf(view.pointer, overview.surface.width);

function scrollWarps(direction) {
  warpsView.scroll.scrollTop += direction * 0.8 * warpsView.scroll.clientHeight;
}

function fitChosen() {
  if (view.range) frame(...view.range, 0.05);
  else if (view.selection) frame(...timesOf(view.selection.line, view.selection.index));
  else glide(0, model.span, 260);
}

function letGo() {
  view.range = null;
  if (view.query) search("");
  if (view.focus !== null) chooseFocus(null);
  select(null);
  changed("window");
}

/** The previous or next launch, relative to the middle of the window. */
function stepLaunch(direction) {
  const { begin, end } = model.launches;
  const middle = (view.begin + view.end) / 2;
  let near = -1,
    least = Infinity;
  begin.forEach((at, launch) => {
    const away = Math.abs((at + end[launch]) / 2 - middle);
    if (end[launch] >= at && away < least) [near, least] = [launch, away];
  });
  const inside = view.end - view.begin < model.span * 0.999 || begin.length < 2;
  const next = inside ? near + direction : direction > 0 ? 0 : begin.length - 1;
  if (next >= 0 && next < begin.length) showLaunch(next);
}

function stepRecord(direction) {
  if (!view.selection) return nextMatch(direction);
  const { line, index } = view.selection;
  const next = index + direction;
  if (next < line.from || next >= line.to)
    return say(direction > 0 ? "the last record of this line" : "the first record of this line");
  select(line, next);
  return showSlice({ line, index: next });
}

function showKeys() {
  const rows = KEYS.flatMap(([keys, what]) => [
    element("dt", {}, ...keys.split("  ").flatMap((key) => [element("kbd", {}, key), " "])),
    element("dd", {}, what),
  ]);
  const made = element("p", { className: "note" }, `made by kscope ${model.about.version}`);
  byId("keys").replaceChildren(element("h2", {}, "Keys"), element("dl", {}, ...rows), made);
  byId("keys").showModal();
}
