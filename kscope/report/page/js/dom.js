// Elements and canvases. Text is inserted as text, never as markup.

const byId = (id) => document.getElementById(id);

/** Create an element with properties and children; string children become text. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const note = (text) => element("p", { className: "note" }, text);

const button = (onclick, ...children) => element("button", { type: "button", onclick }, ...children);

/** Let one button of a group be pressed at a time. choose: gets its data. */
function exclusive(group, choose) {
  const buttons = document.querySelectorAll(`${group} button`);
  for (const pressed of buttons) {
    pressed.onclick = () => {
      for (const one of buttons) one.setAttribute("aria-pressed", one === pressed);
      choose(pressed.dataset);
    };
  }
}

/** A user-defined name, in an element that isolates its text direction. */
const nameText = (text) => element("span", { className: "name", title: text }, text);

function swatch(color) {
  const made = element("i", { className: "swatch" });
  made.style.background = color;
  return made;
}

/** A region's name with its color. */
const regionText = (text, color) => element("span", { className: "region" }, swatch(color), nameText(text));

/** A canvas at screen resolution, drawn in CSS pixels. */
class Surface {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
  }

  /** Resize and clear; returns the context. */
  fresh() {
    const { clientWidth, clientHeight } = this.canvas;
    this.ratio = window.devicePixelRatio || 1;
    this.width = clientWidth;
    this.height = clientHeight;
    const [wide, high] = [Math.round(clientWidth * this.ratio), Math.round(clientHeight * this.ratio)];
    if (this.canvas.width !== wide || this.canvas.height !== high)
      Object.assign(this.canvas, { width: wide, height: high });
    this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.context.clearRect(0, 0, clientWidth, clientHeight);
    return this.context;
  }
}

const tip = byId("tip");

/** Show a tooltip at the pointer: a heading, and lines below it. */
function showTip(event, heading, color, ...lines) {
  const what = element("div", { className: "what" }, ...(color ? [swatch(color)] : []), nameText(heading));
  tip.replaceChildren(what, ...lines.map((line) => element("div", { className: "more" }, line)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = event.clientX + 14 + width > innerWidth ? event.clientX - width - 10 : event.clientX + 14;
  const top = event.clientY + 16 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}

const hideTip = () => {
  tip.hidden = true;
};

/** A value of the theme, such as --ink. */
let themeValues = {};
const themed = (name) =>
  (themeValues[name] ??= getComputedStyle(document.documentElement).getPropertyValue(name).trim());
