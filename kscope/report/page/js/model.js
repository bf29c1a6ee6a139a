// The trace's names, kernels, launches and warps. Records are in slices.js.

const SPAN = 0,
  INSTANT = 1,
  COUNTER = 2,
  UNKNOWN = 3;

const model = { about: null, warps: null, launches: null, figures: null, heat: [] };

async function readModel() {
  const about = JSON.parse(byId("data-about").textContent);
  const names = ["warps", "launches", "figures", ...about.levels.map((_, level) => `heat-${level}`)];
  const [warps, launches, figures, ...heat] = await Promise.all(names.map((name) => unpack(name, about.specs[name])));
  Object.assign(model, { about, warps, launches, figures, heat });
  model.span = about.span;
  model.placeWarps = edgesOf(warps.place, about.places.length);
  model.numbers = new Map(about.names.map((name, number) => [name, number]));
}

/** The first index of each value 0, 1, ... of a sorted column, and its length. */
function edgesOf(column, count) {
  const edges = new Uint32Array(count + 1);
  for (let i = 0; i < column.length; i++) edges[column[i] + 1] = i + 1;
  for (let i = 1; i <= count; i++) edges[i] = Math.max(edges[i], edges[i - 1]);
  return edges;
}

function placeText(place) {
  const [device, sm] = model.about.places[place] ?? [0, "?"];
  return model.about.devices.length > 1 ? `GPU ${model.about.devices[device]} SM ${sm}` : `SM ${sm}`;
}

/** The place of an SM number; of several GPUs, the one shown now. */
function placeOf(sm, near = 0) {
  const device = model.about.places[near]?.[0];
  const same = model.about.places.findIndex(([gpu, one]) => one === sm && gpu === device);
  return same >= 0 ? same : model.about.places.findIndex(([, one]) => one === sm);
}

/** A warp with its role, if that is known: "producer 4". */
function warpText(warp) {
  const { about, warps } = model;
  return `${about.roles[warps.role[warp]] || "warp"} ${warps.warp[warp]}`;
}

function blockWarpText(warp) {
  const { warps } = model;
  const deeper = warps.lane[warp] ? ` lane ${warps.lane[warp]}` : "";
  return `block ${blockText(warp)} warp ${warps.warp[warp]}${deeper}`;
}

function launchText(launch) {
  const { about, launches } = model;
  const name = about.kernels[launches.kernel[launch]] ?? "?";
  return launches.begin.length > 1 ? `${name} #${launch}` : name;
}

const nameOf = (code) => model.about.codes.name[code];
const kindOf = (code) => model.about.codes.kind[code];
