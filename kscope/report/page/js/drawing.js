// What is drawn on canvases: filled rectangles, parts that are cut off, and the style of texts.

function fill(context, color, ...rectangle) {
  context.fillStyle = color;
  context.fillRect(...rectangle);
}

/** Draw only inside of a rectangle, until context.restore(). */
function clip(context, ...rectangle) {
  context.save();
  context.beginPath();
  context.rect(...rectangle);
  context.clip();
}

const CANVAS_FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
/** How the next texts are drawn. */
function textStyle(context, textAlign = "left", textBaseline = "middle") {
  Object.assign(context, { font: CANVAS_FONT, textAlign, textBaseline });
}
