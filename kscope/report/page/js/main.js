// Entry point: read the data, select the first view, draw.

const report = { view, model, ready: false, milliseconds: NaN };
window.report = report; // for tests and the console

let saying = 0;

/** Show a message at the bottom of the page for two seconds. */
function say(text) {
  byId("status").textContent = text;
  clearTimeout(saying);
  saying = setTimeout(() => {
    byId("status").textContent = "";
  }, 2000);
}

function applyTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  themeValues = {};
  chooseColors(model.about.names.length, dark);
  changed("theme");
}

const turnTheme = () => applyTheme(!colors.dark);

function drawHeader() {
  const { about, launches, warps } = model;
  const title = about.kernels.length === 1 ? about.kernels[0] : counted(about.kernels.length, "kernel");
  document.title = `${title} - kscope`;
  byId("title").replaceChildren(nameText(title));
  const facts = [
    `${roughly(about.records)} records`,
    counted(warps.place.length, "warp"),
    counted(launches.begin.length, "launch"),
    counted(about.places.length, "SM"),
    timeText(model.span),
  ];
  byId("facts").replaceChildren(...facts.map((text) => element("li", {}, text)));
  const button = byId("problems");
  button.hidden = !about.problems.length;
  button.textContent = `⚠ ${counted(about.problems.length, "problem")}`;
  button.onclick = () => {
    const items = about.problems.map(({ kind, text }) => element("li", {}, element("strong", {}, kind), ` ${text}`));
    byId("doubts").replaceChildren(element("h2", {}, "Problems in this data"), element("ul", {}, ...items));
    byId("doubts").showModal();
  };
}

/** The first view: the longest of several distant launches, else everything; the SM with the most records. */
function chooseBeginning() {
  const { launches, warps, about } = model;
  const counts = new Float64Array(about.places.length);
  warps.count.forEach((count, warp) => {
    counts[warps.place[warp]] += count;
  });
  view.place = Math.max(0, counts.indexOf(Math.max(...counts)));
  setWindow(0, model.span);
  let covered = 0,
    longest = 0;
  launches.begin.forEach((begin, launch) => {
    covered += Math.max(0, launches.end[launch] - begin);
    if (launches.end[launch] - begin > launches.end[longest] - launches.begin[longest]) longest = launch;
  });
  if (launches.begin.length > 1 && covered < model.span / 4) {
    const [begin, end] = [launches.begin[longest], launches.end[longest]];
    setWindow(begin - (end - begin) * 0.03, end + (end - begin) * 0.03);
  }
  readAddress();
}

/** Keep the view in the URL, for reloads and links. */
function readAddress() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const [begin, end, place] = ["from", "to", "place"].map((key) => Number.parseFloat(parameters.get(key)));
  if (begin >= 0 && end > begin) setWindow(begin, end);
  if (place >= 0 && place < model.about.places.length) view.place = Math.floor(place);
  const text = parameters.get("find");
  if (text) search(text);
}

let writing = 0;

function writeAddress() {
  if (location.protocol === "about:") return; // a notebook's frame has no address
  clearTimeout(writing);
  writing = setTimeout(() => {
    const now = new URLSearchParams({ place: view.place, from: view.begin.toFixed(1), to: view.end.toFixed(1) });
    if (view.query) now.set("find", view.query.text);
    history.replaceState(null, "", `#${now}`);
  }, 400);
}

async function start() {
  await readModel();
  const liked = matchMedia("(prefers-color-scheme: dark)");
  applyTheme(liked.matches);
  liked.onchange = () => applyTheme(liked.matches);
  setUpOverview();
  setUpWarps();
  setUpDetails();
  setUpTable();
  setUpHistogram();
  setUpBalance();
  setUpSearch();
  setUpInput();
  drawHeader();
  chooseBeginning();
  if (model.about.places.length) await placeSlices(view.place);
  for (const event of ["size", "place", "window", "query", "focus", "selection"]) changed(event);
  new ResizeObserver(() => changed("size")).observe(document.querySelector("main"));
  await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
  say("");
  on(writeAddress, "window", "place", "query");
  report.milliseconds = performance.now();
  report.ready = true;
}

start().catch((error) => {
  byId("status").textContent = `this report cannot be shown: ${error.message}`;
  throw error;
});
